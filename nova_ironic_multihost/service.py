# SPDX-License-Identifier: Apache-2.0

"""The parts of this package in one nova-compute, their start and their stop.

Where two parts need each other, one gets a function that is called later.

Locks, the outer ones first: nova's of an instance, ``Auditor._lock``, nova's
of claims (``compute_resources``), nova's of a node. ``Lister._lock`` is held
while Ironic is asked, so a thread with another lock only tries it.
``BuildCopier._turn`` is held for at most ``COPY_PATIENCE``. No thread asks a
service or waits for another lock while it has one of the rest.
"""

import os

from oslo_log import log as logging
from oslo_reports import guru_meditation_report

from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_facts
from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.adapters.patches import table
from nova_ironic_multihost.adapters import retry
from nova_ironic_multihost.adapters import rpc_queue
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost.adapters import undo
from nova_ironic_multihost import conf
from nova_ironic_multihost.engine.audit import auditor
from nova_ironic_multihost.engine.audit import lister
from nova_ironic_multihost.engine.audit import recheck
from nova_ironic_multihost.engine.base import metrics
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.builds import build_backups
from nova_ironic_multihost.engine.builds import build_guard
from nova_ironic_multihost.engine.builds import lost_builds
from nova_ironic_multihost.engine.builds import queue_forwarder
from nova_ironic_multihost.engine import lifecycle
from nova_ironic_multihost.engine.nodes import due_nodes
from nova_ironic_multihost.engine.nodes import node_moves
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.engine.servers import recovery
from nova_ironic_multihost.engine.servers import stuck_instances
from nova_ironic_multihost import exception
from nova_ironic_multihost import node_audits
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.telemetry import status_server

LOG = logging.getLogger(__name__)
CONF = names.CONF


class DriverService:
    """What the driver delegates to.

    :param driver: the virt driver; its own ``__init__`` has not run yet.
    :ivar threads: the threads with periodic tasks, by name.
    :ivar moving: node -> (old host, deleted), while the tracker moves it.
    """

    def __init__(self, driver, virtapi):
        self._driver = driver
        self._virtapi = virtapi
        self.moving = {}
        self.nodes = node_audits.NodeAudits(driver, self)
        self._make_audits(driver, virtapi)
        self._make_builds(driver, virtapi)
        self._make_lifecycle()
        self.threads = {name: periodic.PeriodicThread(name, tasks)
                        for name, tasks in self._tasks().items()}

    def _make_audits(self, driver, virtapi):
        self.recorder = metrics.Metrics()
        self.tracker = nova_tracker.NovaTracker(
            virtapi, self.nodes.note_move, self.nodes.bar)
        self.shutdown = lifecycle.Shutdown(
            nova_facts.ServiceRecord(CONF.host),
            lambda: self.peer_poller.may_close(settings.read()))
        ending = self.shutdown.begun
        self.lister = lister.Lister(
            ironic.NodePages(driver), recorder=self.recorder)
        self.cloud = nova_facts.NovaCloud(
            driver, self.tracker, ending, self.recorder,
            lambda: self.recovery.note_silence())
        self.auditor = auditor.Auditor(
            self.cloud, self.lister, recorder=self.recorder)
        self.due_nodes = due_nodes.DueNodes(
            CONF.host, self.auditor, self.tracker)
        self.provider_changes = due_nodes.ProviderChanges(
            CONF.host, self.auditor, self.due_nodes.note_provider_changes,
            self.tracker.generations)
        self.background_audit = due_nodes.BackgroundAudit(
            self.due_nodes, self.tracker,
            lambda: ending() or self.peer_poller.busy)
        self.recheck = recheck.Recheck(self.auditor, self.tracker, ending)
        self.rebalancer = node_moves.Rebalancer(
            self.auditor, self.tracker, self.due_nodes, self.recheck,
            self.nodes.is_free, self.recorder)
        self.peer_poller = peer_poll.PeerPoller(
            self.auditor, self.tracker, self.nodes.acquire, ending=ending,
            to_move=self.nodes.to_move, recorder=self.recorder,
            pull=lambda nodes: self.rebalancer.pull(
                nodes, settings.partition().label, Work.PEER_POLL),
            note_pulled=self.due_nodes.note_pulled)

    def _make_builds(self, driver, virtapi):
        self.guard = build_guard.BuildGuard(
            CONF.host, self.cloud, settings.patience,
            passing=retry.passing,
            refused=lambda: self.recorder.count(Event.REFUSED))
        self.ironic_retry = retry.IronicRetry(
            settings.patience,
            lambda: self.nodes.settled and not self.guard.hurried)

        def here(instance):
            return self.in_flight.here(instance)

        queues = rpc_queue.RpcQueues(virtapi)
        self.attempts = undo.BuildAttempts(driver)
        requests = build_backups.RequestSorter(
            CONF.host, self.auditor, self.peer_poller, self.attempts)
        self.backups = build_backups.BackupStore(
            CONF.host, queues, rpc_queue.BuildCopier(CONF.host), requests,
            here)
        instances = nova_servers.ServerCalls(virtapi)
        sent = undo.BuildRequests(CONF.host, self.tracker)
        self.recovery = recovery.Recovery(
            CONF.host, instances, ironic.IronicMachines(driver), self.guard,
            lost_builds.BuildRetry(self.backups, self.attempts, here),
            recorder=self.recorder, receive=sent.receive)
        self.forwarder = queue_forwarder.QueueForwarder(
            CONF.host, queues, self.auditor, self.peer_poller, requests)
        self.in_flight = lost_builds.InFlightBuilds(
            sent, self.auditor,
            lambda build: self.backups.copy(build) is not None,
            self.forwarder)
        self.evacuation_refusals = stuck_instances.EvacuationRefusals(
            CONF.host, undo.EvacuationUndo(driver),
            lambda: self.auditor.preferences)

    def _make_lifecycle(self):
        """Make the parts that tell others how this service is."""
        self.attendance = listeners.Attendance()
        self.health_probe = lifecycle.HealthProbe(
            CONF.host, self.auditor, self.peer_poller, self.recorder,
            settings.bounds, self.shutdown.begun, self.attendance.goes_on)
        # oslo.service takes it out of the environment when it has started.
        self.watchdog = lifecycle.find_watchdog(os.environ, os.getpid())
        self.lease_renewer = lifecycle.LeaseRenewer(
            lambda: self.cloud.service(CONF.host), settings.terms,
            lambda: settings.read().heartbeats.period, self.watchdog,
            self.shutdown.begun)
        self.status_server = status_server.StatusServer(
            CONF.host, self.health_probe.picture, self.health_probe.verdict,
            self.lease_renewer.verdict, settings.metrics())

    def _tasks(self):
        """Return thread -> its tasks, by the services they may wait for."""
        def period():
            return settings.read().heartbeats.period

        return {
            'peer_poll': {'peer_poll': (
                self.nodes.poll_peers,
                lambda: self.peer_poller.pause(settings.read()))},
            # The conductor.
            'heartbeats': {'heartbeats': (
                lambda: self.peer_poller.listen(settings.read()), period)},
            'recovery': {'recovery': (
                lambda: self.recovery.sweep(self.peer_poller.view), period)},
            # Ironic and the conductor.
            'ironic': {'ironic_changes': (self.nodes.poll_ironic, period)},
            # The conductor; placement and Ironic for each that is refused.
            'evacuations': {'evacuation_refusals': (
                self._refuse_evacuations, lambda: 6 * period())},
            # placement, the conductor, and nova's lock of claims; Ironic for
            # a node that the mirror has no fields of.
            'background_audit': {'background_audit': (
                self.background_audit.once, period)},
            # placement, the conductor, and the queue of this host.
            'placement': {
                'provider_changes': (self.provider_changes.once, period),
                'in_flight': (self.in_flight.once, lambda: 3 * period()),
            },
            # RabbitMQ and the conductor.
            'rabbitmq': {
                'backups': (self.backups.once, period),
                'queue_forwarder': (self._forward, period),
            },
        }

    def _forward(self):
        # RabbitMQ closes a connection without heartbeats.
        with self.backups.attended():
            self.forwarder.once()

    def _refuse_evacuations(self):
        with self.ironic_retry.none():
            self.evacuation_refusals.sweep(self.peer_poller.view)

    # Start and stop

    def prepare(self, host):
        """Refuse settings that cannot work, then replace parts of nova.

        :raises ConfigurationContradiction: says what to change; nothing is
            replaced.
        """
        _refuse(conf.contradictions(CONF, host, self.lease_renewer.dead_after))
        unwatched = (CONF.ironic_multihost.instance_takeover == takeover.DOWN
                     and self.watchdog is None)
        _refuse(self.status_server.open(unwatched))
        if unwatched:
            LOG.warning(
                'With [ironic_multihost]instance_takeover = down others take '
                'over what this compute service has when they do not hear of '
                'it, and no watchdog of systemd ends it before: one that is '
                'cut off may still act on machines. Have systemd or a '
                'liveness probe do that (documentation, page "A watchdog '
                'instead of fencing"), or set it to forced_down and fence.')
        manager = names.manager_of(self._virtapi)
        if manager is not None:
            _refuse(table.mismatches())
            apply.apply(
                table.rows(), table.targets(manager, self._driver), self)
        if self.watchdog or self.status_server.server:
            self.lease_renewer.start()
        guru_meditation_report.TextGuruMeditation.register_section(
            'Ironic multi-host', self.status_server.report)

    def begin(self):
        """Begin the periodic tasks: nova-compute takes builds now."""
        # While it started the others took it for dead.
        self.auditor.doubt()
        for one in self.threads.values():
            one.start()
        self.health_probe.note_start()
        if self.shutdown.begun():
            self._stop_threads()

    def end(self):
        """Begin nothing new; nova may go on for minutes."""
        self.shutdown.begin()
        self._stop_threads()
        self.forwarder.end()
        self.guard.end()

    def _stop_threads(self):
        for one in self.threads.values():
            one.stop()

    def close(self):
        """Stop the last threads, after nova's."""
        self.lease_renewer.end()
        self.status_server.close()

    def note_switch(self):
        """Note that this service was disabled or enabled."""
        # The others may have seen it disabled.
        self.auditor.doubt()
        self.due_nodes.switches += 1
        self.threads['peer_poll'].wake('peer_poll')

    def connection(self, stock):
        """Return nova's connection, made to wait and to ask the guard."""
        return self.ironic_retry.connection(
            lambda: operations.GuardedConnection(
                stock(), self.guard, self.recorder.asking))


def _refuse(sentences):
    """Log the reasons not to start, and raise ConfigurationContradiction."""
    for sentence in sentences:
        LOG.error(sentence)
    if sentences:
        raise exception.ConfigurationContradiction(sentences)
