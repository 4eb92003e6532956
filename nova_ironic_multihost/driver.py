# SPDX-License-Identifier: Apache-2.0

"""The virt driver: nova's methods that this package overrides, each short.

What they do is elsewhere: the rules in ``rules``, audits in ``engine``, all
that has to do with nova in ``adapters``.
"""

import os
import time

from oslo_log import log as logging

from nova_ironic_multihost.adapters import base_driver
from nova_ironic_multihost.adapters import build_copies
from nova_ironic_multihost.adapters import build_requests
from nova_ironic_multihost.adapters import build_undo
from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import errors
from nova_ironic_multihost.adapters import evacuation_undo
from nova_ironic_multihost.adapters import guru_report
from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import ironic_retry
from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import machines
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import node_cache
from nova_ironic_multihost.adapters import nova_facts
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches.handlers import Parts
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.adapters.patches import table
from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.adapters import rpc_queue
from nova_ironic_multihost.adapters import service_record
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost import conf
from nova_ironic_multihost.conf import validation
from nova_ironic_multihost.engine.audit import auditor
from nova_ironic_multihost.engine.audit import recheck
from nova_ironic_multihost.engine.base import metrics
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.builds import build_backups
from nova_ironic_multihost.engine.builds import build_retry
from nova_ironic_multihost.engine.builds import dead_host_builds
from nova_ironic_multihost.engine.builds import guard
from nova_ironic_multihost.engine.builds import in_flight
from nova_ironic_multihost.engine.builds import queue_forwarder
from nova_ironic_multihost.engine.builds import request_facts
from nova_ironic_multihost.engine.lifecycle import health_probe
from nova_ironic_multihost.engine.lifecycle import lease_renewer
from nova_ironic_multihost.engine.lifecycle import notifier
from nova_ironic_multihost.engine.lifecycle import shutdown
from nova_ironic_multihost.engine.lifecycle import watchdog
from nova_ironic_multihost.engine.listing import ironic_changes
from nova_ironic_multihost.engine.listing import lister
from nova_ironic_multihost.engine.moves import claim_orphan
from nova_ironic_multihost.engine.moves import peer_poll
from nova_ironic_multihost.engine.moves import rebalance
from nova_ironic_multihost.engine.servers import evacuation_refusals
from nova_ironic_multihost.engine.servers import recovery
from nova_ironic_multihost.engine.tracking import background_audit
from nova_ironic_multihost.engine.tracking import disabled_trait
from nova_ironic_multihost.engine.tracking import due_nodes
from nova_ironic_multihost.engine.tracking import provider_changes
from nova_ironic_multihost import exception
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.telemetry import status_server

LOG = logging.getLogger(__name__)
CONF = names.CONF


class IronicMultiHostDriver(names.IronicDriver):
    """IronicDriver that manages this compute service's part of the nodes.

    At each audit (nova's ``update_available_resource``) a compute service
    manages every node with an instance of its own, every node without one
    that the hash ring maps to it, as far as that is possible without harm,
    and no node with an instance of another. A single one manages every node.
    """

    def __init__(self, virtapi, read_only=False):
        conf.register_opts(CONF)
        self._recorder = metrics.Metrics()
        self._tracker = nova_tracker.NovaTracker(
            virtapi, self._moved, self._barred
        )
        self._shutdown = shutdown.Shutdown(
            service_record.ServiceRecord(CONF.host),
            lambda: self._peer_poller.may_close(settings.read()))
        ending = self._shutdown.begun
        self._reader = lister.Lister(
            ironic.NodePages(self), recorder=self._recorder
        )
        writes = nova_facts.NovaWrites(
            ending, self._recorder, lambda: self._recovery.note_silence(),
            self._tracker)
        self._auditor = auditor.Auditor(
            nova_facts.NovaSources(self, self._tracker), writes, self._reader,
            recorder=self._recorder)
        self._schedule = due_nodes.DueNodes(
            CONF.host, self._auditor, self._tracker)
        self._provider_changes = provider_changes.ProviderChanges(
            CONF.host, self._auditor, self._schedule.note_provider_changes,
            self._tracker.generations)
        self._background_audit = background_audit.BackgroundAudit(
            self._schedule, self._tracker,
            lambda: ending() or self._peer_poller.busy)
        self._recheck = recheck.Recheck(self._auditor, self._tracker, ending)
        self._rebalancer = rebalance.Rebalancer(
            self._auditor, self._tracker, self._schedule, self._recheck,
            self._free, self._recorder)
        self._peer_poller = peer_poll.PeerPoller(
            self._auditor, self._tracker, self._acquired, ending=ending,
            to_move=self._to_move, recorder=self._recorder,
            pull=lambda nodes: self._rebalancer.pull(
                nodes, settings.partition().label, Work.LOOK),
            note_pulled=self._schedule.note_pulled)
        self._status = disabled_trait.DisabledTrait(
            self._auditor,
            self._schedule,
            placement.TraitWriter(self._tracker),
            lambda: self._peer_poller.view,
            self._provider_changes.expect,
            ending,
        )
        self._changes = ironic_changes.IronicChanges(
            self._auditor, self._tracker, self._schedule.is_due, ending)
        self._orphan_claimer = claim_orphan.OrphanClaimer(
            self._auditor, self._tracker, self._acquired)
        self._guard = guard.OperationGuard(
            CONF.host, self._auditor.sources, settings.patience,
            passing=errors.passing,
            refused=lambda: self._recorder.count(Event.REFUSED))
        self._patience = ironic_retry.IronicRetry(
            settings.patience,
            lambda: self._settled and not self._guard.hurried)

        def here(instance):
            return self._in_flight.here(instance)

        queues = rpc_queue.RpcQueues(virtapi)
        self._attempts = build_undo.BuildAttempts(self)
        requests = request_facts.RequestSorter(
            CONF.host, self._auditor, self._peer_poller, self._attempts)
        self._backups = build_backups.BackupStore(
            CONF.host,
            queues,
            build_copies.BuildCopier(CONF.host),
            requests,
            here,
        )
        instances = nova_tracker.ServerCalls(virtapi)
        self._notifier = notifier.Notifier(instances)
        sent = build_requests.BuildRequests(CONF.host, self._tracker)
        self._recovery = recovery.Recovery(
            CONF.host, instances, machines.IronicMachines(self),
            self._guard, build_retry.BuildRetry(
                self._backups, self._attempts, here),
            under_way=lambda: writes.under_way, recorder=self._recorder,
            receive=sent.receive)
        self._in_flight = in_flight.InFlightBuilds(
            sent, self._auditor, self._backups.may_come)
        self._forwarder = queue_forwarder.QueueForwarder(
            CONF.host,
            queues,
            self._auditor,
            self._peer_poller,
            requests,
            dead_host_builds.LostBuilds(
                build_requests.BuildRequests(CONF.host, self._tracker),
                self._auditor.sources,
            ),
        )
        self._evacuation_refusals = evacuation_refusals.EvacuationRefusals(
            CONF.host, evacuation_undo.EvacuationUndo(self),
            lambda: self._auditor.preferences)

        def every(periods, act):
            return act, lambda: periods * settings.read().heartbeats.period

        self._timers = periodic.PeriodicTasks(
            look=(
                self._look,
                lambda: self._peer_poller.pause(settings.read()),
            ),
            heartbeats=every(
                1, lambda: self._peer_poller.listen(settings.read())
            ),
            poll=every(1, self._poll),
            sweep=every(
                1, lambda: self._recovery.sweep(self._peer_poller.view)
            ),
            arrivals=every(3, self._in_flight.once),
            copies=every(1, self._backups.once),
            queues=every(1, self._forwarder.once),
            background_audit=every(1, self._background_audit.once),
            provider_changes=every(1, self._provider_changes.once),
            status=every(1, self._status.once),
            refusal=every(
                1,
                lambda: self._evacuation_refusals.sweep(
                    self._peer_poller.view
                ),
            ),
        )
        self._attendance = listeners.Attendance()
        self._health_probe = health_probe.HealthProbe(
            CONF.host, self._auditor, self._peer_poller, self._recorder,
            settings.bounds, ending, self._attendance.goes_on)
        # oslo.service takes it out of the environment when it has started.
        self._watchdog = watchdog.find(os.environ, os.getpid())
        self._lease_renewer = lease_renewer.LeaseRenewer(
            lambda: self._auditor.sources.service(CONF.host), settings.terms,
            lambda: settings.read().heartbeats.period, self._watchdog, ending)
        self._window = status_server.StatusServer(
            CONF.host, self._health_probe.picture, self._health_probe.verdict,
            self._lease_renewer.verdict, settings.metrics())
        self._section = guru_report.ReportSection(
            status_server.TITLE, self._window.report
        )
        self._settled = self._filled = False
        # The last audit of all nodes; looks have changed the auditor's.
        self._audited = None
        mine = dict(vars(self))
        # An operator's driver may ask Ironic in it.
        super().__init__(virtapi, read_only)
        base_driver.require_kept(self, mine)
        self.node_cache = node_cache.NodeCache(
            lambda body: ironic.node(body, self.ironic_connection))

    @property
    def hash_ring(self):
        """The tooz ring, under the name that nova's driver has for it."""
        return self._auditor.preferences.ring.hashring

    @property
    def ironic_connection(self):
        """Connection to Ironic that changes no machine of another host.

        Operations wait while Ironic is away.
        """
        stock = super()
        return self._patience.connection(lambda: operations.GuardedConnection(
            stock.ironic_connection, self._guard, self._recorder.asking))

    def init_host(self, host):
        """Refuse settings that cannot work, then see who else is there.

        :raises ConfigurationContradiction: says what to change.
        """
        _refuse(validation.find(CONF, host, self._lease_renewer.dead_after))
        unwatched = (CONF.ironic_multihost.instance_takeover == takeover.DOWN
                     and self._watchdog is None)
        _refuse(self._window.open(unwatched))
        if unwatched:
            LOG.warning(
                'With [ironic_multihost]instance_takeover = down others take '
                'over what this compute service has when they do not hear of '
                'it, and no watchdog of systemd ends it before: one that is '
                'cut off may still act on machines. Have systemd or a '
                'liveness probe do that (documentation, page "A watchdog '
                'instead of fencing"), or set it to forced_down and fence.')
        self._replace()
        if self._watchdog or self._window.server:
            self._lease_renewer.start()
        self._section.begin()
        super().init_host(host)

    def _replace(self):
        """Replace in nova what the table lists.

        :raises MismatchError: nova is another; nothing is replaced.
        """
        manager = names.manager_of(self.virtapi)
        if manager is None:
            return
        parts = Parts(
            self._guard,
            self._schedule,
            self._in_flight,
            audited=lambda: self._audited.records,
            current=lambda: (
                *self._auditor.last.records,
                *self._rebalancer.records,
            ),
            may_take=lambda record: self._recheck.still_valid(
                record.node, record
            ),
            may_create=lambda node: self._recheck.may_create(
                node, settings.read()
            ),
            moved=self._moved,
            barred=self._barred,
            sign=lambda: self._recorder.sign(Work.AUDIT),
            init=self._recovery.start,
            adopt=self._adopt,
            evacuate=self._evacuation_refusals.refuse,
            renew=self._attempts.renew,
            failed=self._attempts.note_failure,
            copy=self._backups.keep,
            over=self._backups.end,
            begin=self._begin,
            switched=self._switched,
            stop=self._end,
            ending=self._shutdown.begun,
            keeps_trait=self._is_about_to_end,
            heard=self._attendance.note,
        )
        try:
            apply.apply(table.rows(), table.targets(manager, self), parts)
        except apply.MismatchError as exc:
            LOG.error('nova-compute cannot start: %s', exc)
            raise

    def cleanup_host(self, host):
        """End what goes on besides nova's own tasks."""
        self._end()
        self._shutdown.wait()
        super().cleanup_host(host)
        self._lease_renewer.end()
        self._section.end()
        self._window.close()

    def _begin(self):
        # While it started the others took it for dead.
        self._auditor.doubt()
        self._timers.start()
        self._health_probe.note_start()

    def _switched(self):
        """Go by it that this service was disabled or enabled."""
        # The others may have seen it disabled.
        self._auditor.doubt()
        self._status.note()
        self._timers.wake('status')

    def _end(self):
        self._shutdown.begin()
        self._timers.stop()
        self._forwarder.end()
        self._guard.end()

    def _has_stop_marker(self, view):
        """Whether this service was seen with what it says when it ends."""
        me = view.services.get(view.host) if view is not None else None
        return me is not None and bool(me.stop_marker)

    def _is_about_to_end(self):
        """Whether it is disabled for that alone, for all that is known."""
        audit = self._auditor.last
        return self._shutdown.begun() or (
            audit is not None and self._has_stop_marker(audit.view))

    def get_available_nodes(self, refresh=False):
        """Return the uuids of the nodes that this compute service manages.

        nova calls it at the start of each audit, so each call asks nova who
        is up and Ironic which nodes there are.

        :param refresh: ignored; the answer is always fresh.
        :raises VirtDriverNotReady: when Ironic gives no whole list, or the
            service is about to end.
        """
        if self._shutdown.begun():
            raise names.VirtDriverNotReady('This service is about to end.')
        if not self._settled:
            # What nova does at the start before, it does for nobody else.
            self._shutdown.undo()
        try:
            nodes = self._audit()
            if self._has_stop_marker(self._auditor.last.view):
                # The others pull what this service would pull now.
                self._shutdown.undo()
            if not self._filled:
                self._tracker.fill(self._schedule.ready())
                self._filled = True
            self._schedule.spare(nodes)
            self._notifier.follow(
                CONF.host, self._auditor.last, self._auditor.absences)
            self._rebalancer.once(settings.partition().label)
            return nodes
        finally:
            # nova audits once before it listens for builds.
            self._settled = True

    def _moved(self, node, done):
        self._recorder.note_move(self._auditor.reason(node), done)

    def _barred(self, node, exc):
        if not self._auditor.is_barred(node):
            LOG.warning(
                'The record of node %(node)s cannot be moved to this host: '
                'its database refuses that for good. The node is left alone. '
                '"nova-ironic-multihost check" says of second records; else '
                'mend what nova says: %(exc)s', {'node': node, 'exc': exc})
        self._auditor.bar(node)

    def list_instance_uuids(self):
        """Return the uuids of the instances on the nodes that are ours.

        nova's reaper looks here for instances that it has deleted; what nova
        does not know is no business of its. Empty before the first audit.
        """
        return [instance for node, instance
                in self.node_cache.instances().items()
                if self._auditor.reason(node) is not Reason.UNKNOWN]

    def get_num_instances(self):
        """Return the number of those, as nova's own driver does from 34 on.

        That of older releases reads each of them through nova's conductor,
        at the start and at each power sync.
        """
        return len(self.list_instance_uuids())

    def get_info(self, instance, use_cache=True):
        """Return whether the machine of an instance is on.

        :param use_cache: whether it may be as Ironic has said some time ago.
        """
        if use_cache:
            self._refresh_cache()
            if node := self.node_cache.of_instance(instance.uuid):
                return names.InstanceInfo(
                    state=names.map_power_state(node.power_state))
        return super().get_info(instance, use_cache=False)

    def is_node_deleted(self, nodename):
        """Whether Ironic has confirmed that it has the node no more.

        nova asks for each that it is about to delete, which may be thousands.
        """
        self._recorder.sign(Work.AUDIT)
        audit = self._auditor.last
        return audit is not None and nodename in audit.deleted

    def get_available_resource(self, nodename):
        """Return the resources of a node.

        :raises ComputeHostNotFound: when the node is not to be mine: the
            tracker would go for its record.
        """
        if not self._recheck.may_take(nodename):
            raise names.ComputeHostNotFound(host=nodename)
        if (self._recheck.is_new(nodename)
                or self._schedule.asks_anew(nodename)):
            self._tracker.refresh(nodename)
        elif self._schedule.may_spare(nodename):
            self._tracker.confirm(nodename)
        with self._patience.none():
            resources = super().get_available_resource(nodename)
        self._schedule.note_used(nodename, self.node_cache.row(nodename))
        if label := settings.partition().label:
            resources['stats'][db.PARTITION] = label
        return resources

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        """Say what placement is to know of a node.

        :raises ComputeHostNotFound: when it is not ours to speak for: it was
            pulled since the audit began, or a build was sent to its owner.
        """
        offered = self._recheck.of(nodename)
        if offered is recheck.Offer.REFUSED:
            raise names.ComputeHostNotFound(host=nodename)
        with (self._patience.none(),
              placement.renewed(provider_tree, nodename, self._tracker)):
            super().update_provider_tree(provider_tree, nodename, allocations)
            self._schedule.note_used(nodename, self.node_cache.row(nodename))
            if offered is recheck.Offer.NOTHING:
                placement.reserve(provider_tree, nodename)
        if self._auditor.last is not None:
            placement.follow_aggregates(
                provider_tree, nodename, self._auditor.last, self._tracker)

    def node_is_available(self, nodename):
        """Whether Ironic has a node; the tracker asks, under its lock."""
        with self._patience.none():
            return super().node_is_available(nodename)

    def prepare_for_spawn(self, instance):
        """Reserve the node of an instance in Ironic.

        :raises ComputeResourcesUnavailable: when another has it; the build
            goes to another node.
        """
        try:
            super().prepare_for_spawn(instance)
        except names.NodeNotFound as exc:
            raise names.ComputeResourcesUnavailable(
                reason=str(exc)) from exc
        except names.InstanceDeployFailure as exc:
            if not isinstance(exc.__context__, names.NodeConflict):
                raise
            raise names.ComputeResourcesUnavailable(
                reason=exc.format_message()) from exc
        # From now on its machine is in use, whatever becomes of the build.
        self._audit_now(instance.get('node'))

    def failed_spawn_cleanup(self, instance):
        """Free the node of a build that has failed.

        nova reports the node when it takes back the claim: as it is then.
        """
        super().failed_spawn_cleanup(instance)
        self._forget(instance.get('node'))

    def destroy(self, context, instance, network_info,
                block_device_info=None, destroy_disks=True,
                destroy_secrets=True):
        """Tear down the machine of a server.

        nova deletes the server's allocation next, and the machine that
        Ironic is cleaning would be offered.
        """
        super().destroy(
            context, instance, network_info,
            block_device_info=block_device_info, destroy_disks=destroy_disks,
            destroy_secrets=destroy_secrets)
        self._audit_now(instance.get('node'))

    def rebuild(self, context, instance, image_meta, injected_files,
                admin_password, allocations, bdms, detach_block_devices,
                attach_block_devices, network_info=None, evacuate=False,
                block_device_info=None, preserve_ephemeral=False,
                accel_uuids=None, reimage_boot_volume=False):
        """Rebuild a server.

        From API microversion 2.93 on nova asks for a new image on the boot
        volume whether or not there is one (bug 2127017).
        """
        super().rebuild(
            context, instance, image_meta, injected_files, admin_password,
            allocations, bdms, detach_block_devices, attach_block_devices,
            network_info=network_info, evacuate=evacuate,
            block_device_info=block_device_info,
            preserve_ephemeral=preserve_ephemeral, accel_uuids=accel_uuids,
            reimage_boot_volume=(
                reimage_boot_volume and db.volume_backed(bdms)))

    def _refresh_cache(self):
        # nova takes an empty cache for one that was never filled; a build
        # must not wait for an audit of all nodes.
        if self._auditor.last is None:
            self._audit()

    def spawn(self, context, instance, image_meta, injected_files,
              admin_password, allocations, network_info=None,
              block_device_info=None, power_on=True, accel_info=None):
        """Deploy an instance; one whose image is invalid is in ERROR then.

        nova before 33.0.2 tries it on one node after the other (bug 2127087).
        """
        try:
            super().spawn(
                context, instance, image_meta, injected_files,
                admin_password, allocations, network_info=network_info,
                block_device_info=block_device_info, power_on=power_on,
                accel_info=accel_info)
        except names.NovaException:
            raise
        except Exception as exc:
            if 'InvalidImage' not in str(exc):
                raise
            raise names.BuildAbortException(
                instance_uuid=instance.uuid, reason=str(exc)) from exc

    def _refresh_hash_ring(self, ctxt):
        self._auditor.refresh_ring(
            settings.read(), starting=not self._settled)

    def _node_from_cache(self, node_id):
        # nova's also keeps nodes that are not ours.
        return self.node_cache.read(
            node_id, self._get_node, self._auditor.is_mine)

    def _audit(self):
        """Audit all nodes; return the uuids of those that are mine."""
        try:
            with self.node_cache.listing() as changed, self._patience.none():
                return list(self._auditor.audit(
                    settings.read(), self._settled,
                    lambda audit: self._publish(audit, changed),
                    self._tracker.has).nodes)
        except ListingError as exc:
            LOG.error(
                'Ironic gave no list of its nodes: %s. Nothing is changed, '
                'and the next audit asks again. Check that the Ironic API '
                'runs and that the credentials in [ironic] of nova.conf may '
                'list all nodes.', exc)
            raise names.VirtDriverNotReady() from exc

    def _publish(self, audit, changed):
        """Let nova work with what an audit of all nodes has found.

        :param changed: uuids of the nodes that have changed since it began.
        """
        self._audited = audit
        self._schedule.follow(settings.read(), audit.view)
        self._schedule.begin(not self._settled)
        self._recovery.took_over(audit.taken_over, audit.at_rest)
        self.node_cache.replace(audit.nodes, changed)
        self.node_cache_time = time.time()

    def _look(self):
        try:
            with self._patience.none():
                options = settings.read()
                view = self._peer_poller.once(options)
            self._schedule.follow(options, view)
            return view
        except Exception:
            self._recovery.note_silence()
            raise
        finally:
            if self._has_stop_marker(self._peer_poller.view):
                self._shutdown.undo()

    def _poll(self):
        with self.node_cache.listing() as changed, self._patience.none():
            more = self._changes.once(
                settings.read(),
                lambda nodes: self.node_cache.add(nodes, changed))
        if more:
            self._timers.wake('poll')

    def _adopt(self, build, node_id):
        if self._shutdown.begun():
            return False
        with self._patience.none():
            return self._orphan_claimer.adopt(settings.read(), build, node_id)

    def _to_move(self, nodes):
        """Return the records of nodes that can be moved without an audit.

        What Ironic has taken out of service since its owner died has to be
        reserved in placement first, unless it has a server.
        """
        def as_it_was(node):
            return (self._auditor.reason(node) in ownership.SERVED
                    or self._free(node))

        return self._recheck.to_move(
            filter(as_it_was, nodes),
            peers.same_label(settings.partition().label))

    def _free(self, node):
        """Whether Ironic has a node free, for all that is known."""
        its = self.node_cache.get(node)
        return (its is not None and not self._node_resources_used(its)
                and not self._node_resources_unavailable(its))

    def _acquired(self, audit, mine):
        """Let nova work with nodes that a look has found to be mine."""
        self._recovery.took_over(audit.taken_over, audit.at_rest)
        self.node_cache.add({node: audit.nodes[node] for node in mine})
        for node in mine:
            # Another may have had it since it was audited here.
            self._schedule.touch(node)

    def _forget(self, node_id):
        """Have a node read anew when it is needed next."""
        self.node_cache.forget(node_id)
        self._reader.forget(node_id)
        self._schedule.touch(node_id)

    def _audit_now(self, node_id):
        """Let nova and placement know at once what became of a node.

        Whoever builds or deletes goes on in any case.
        """
        self._forget(node_id)
        if not self._tracker.has(node_id):
            return
        try:
            self._tracker.audit(node_id)
        except Exception:
            LOG.exception('Node %s could not be audited; the next audit of '
                          'all nodes does it.', node_id)
        # It goes on changing: nothing is to be told by what it was.
        self._forget(node_id)


def _refuse(sentences):
    """Refuse to start, if there is a reason.

    :param sentences: reasons, each with its remedy.

    :raises ConfigurationContradiction: says what to change.
    """
    for sentence in sentences:
        LOG.error(sentence)
    if sentences:
        raise exception.ConfigurationContradiction(sentences)
