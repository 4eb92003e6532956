# SPDX-License-Identifier: Apache-2.0

"""The nova-computes of one test, each a host of its own in one process."""

import contextlib
import dataclasses
import datetime
from unittest import mock

import fixtures
import nova.conf
from nova import context
from nova.db.main import api as db
from nova import exception
from nova import objects
from oslo_utils import timeutils

from nova_ironic_multihost.tests.functional import hold

CONF = nova.conf.CONF


@contextlib.contextmanager
def as_host(host, **ironic):
    """Let ``CONF`` be that of this host.

    There is one CONF in a process and code inherited from the stock driver
    asks it who it is.

    :param ironic: what this host has in the section ``[ironic]`` of its
        nova.conf and others do not.
    """
    options = [('host', None, host)]
    options += [(name, 'ironic', value) for name, value in ironic.items()]
    before = [(name, group, CONF[group][name] if group else CONF[name])
              for name, group, _ in options]
    for name, group, value in options:
        CONF.set_override(name, value, group)
    try:
        yield
    finally:
        for name, group, value in before:
            CONF.set_override(name, value, group)


class Computes:
    """Starts, audits and stops computes; time passes only when it is told.

    Audits run when the test asks for one, in the order that it asks for;
    heartbeats are sent when it says so.
    """

    def __init__(self, test, cell):
        """Have no computes yet.

        :param test: the nova.test.TestCase that runs them.
        :param cell: CellMapping of the cell that they live in.
        """
        self._test = test
        self._cell = cell
        self._running = {}
        #: Host -> its last heartbeat, of those that were lost.
        self._lost = {}
        self._ironic = {}
        self._drivers = []
        test.addCleanup(self._hang_up)

    @property
    def hosts(self):
        """The hosts that run, in the order in which they were started."""
        return list(self._running)

    def configure(self, host, **ironic):
        """Say what a host has in ``[ironic]`` and others do not.

        Holds while it starts and while it audits.
        """
        self._ironic[host] = ironic

    def start(self, *hosts, mapped=True, heartbeat=True):
        """Start a nova-compute on each host, for the first time or again.

        :param mapped: whether somebody has run ``nova-manage cell_v2
            discover_hosts --by-service`` for them; see :meth:`discover`.
        :param heartbeat: whether it has sent its first heartbeat, as nova
            does five seconds after the start; see :meth:`beat`.
        """
        for host in hosts:
            if mapped:
                self.discover(host)
            else:
                # start_service maps each host that is not in here.
                self._test.host_mappings.setdefault(host, None)
            with self._as(host):
                self._running[host] = self._test.start_service(
                    'compute', host=host, report_interval=0)
            self._drivers.append(self.manager(host).driver)
            if heartbeat:
                self.beat(host)
            self._miss_lost(host)

    def discover(self, host):
        """Map a host to its cell, if it is not.

        What ``nova-manage cell_v2 discover_hosts --by-service`` does, and
        nova's start_service does only for a host that has a node.
        """
        if self._test.host_mappings.get(host):
            return
        mapping = objects.HostMapping(
            context.get_context(), host=host, cell_mapping=self._cell)
        mapping.create()
        self._test.host_mappings[host] = mapping

    def beat(self, host):
        """Send a heartbeat: nova believes that the compute is up."""
        service = self._running[host].service_ref
        service.report_count += 1
        service.save()

    def lose(self, host):
        """Let nova believe that a compute is down, running or not.

        The others have looked for as long as it takes.
        """
        seen = timeutils.utcnow() - datetime.timedelta(
            seconds=2 * CONF.service_down_time)
        with self._in_cell() as ctxt:
            service = objects.Service.get_by_compute_host(ctxt, host)
            db.service_update(ctxt, service.id, {'last_seen_up': seen})
            service = objects.Service.get_by_compute_host(ctxt, host)
        self._lost[service.host] = service.last_seen_up
        for other in self._running:
            self._miss_lost(other)

    def _miss_lost(self, host):
        """Let a compute have missed the heartbeats of those that are lost."""
        service = getattr(self.manager(host).driver, 'service', None)
        if service:
            auditor = service.auditor
            known = auditor.heartbeats.outages
            auditor.heartbeats.outages = dataclasses.replace(
                known, beats={**known.beats, **self._lost},
                dead=known.dead.union(self._lost))

    def audit(self, *hosts):
        """Run one audit on each of these hosts, or on all that run."""
        for host in hosts or self.hosts:
            with self._as(host), self._in_cell() as ctxt:
                self.manager(host).update_available_resource(ctxt)

    def look(self, *hosts):
        """Let each of these hosts, or all that run, look who is there."""
        for host in hosts or self.hosts:
            with self._as(host):
                self.manager(host).driver.service.nodes.poll_peers()

    def keep_up(self, *hosts):
        """Let each audit in the background what is due."""
        for host in hosts:
            with self._as(host), self._in_cell():
                self.manager(host).driver.service.background_audit.once()

    def sweep(self, *hosts):
        """Let each of these hosts look for takeovers to be finished."""
        for host in hosts:
            with self._as(host):
                self.manager(host).driver.service.recovery.sweep()

    def miss(self, host, turns):
        """Let a host look so often which builds have not come to it."""
        with self._as(host):
            for _ in range(turns):
                self.manager(host).driver.service.in_flight.once()

    def keep(self, *hosts):
        """Let each of these hosts see to its copies of builds."""
        for host in hosts:
            with self._as(host):
                self.manager(host).driver.service.backups.once()

    def refuse(self, *hosts):
        """Let these hosts, or all that run, refuse evacuations that are left.

        Those with nova's own driver do nothing.
        """
        for host in hosts or self.hosts:
            driver = self.manager(host).driver
            if mine := getattr(
                    getattr(driver, 'service', None),
                    'evacuation_refusals', None):
                with self._as(host):
                    for _ in range(2):
                        mine.sweep(driver.service.auditor.last.view)

    def hold_claims(self, host):
        """Let builds that come to a host wait before they claim their node.

        :returns: the :class:`.hold.Hold` where they wait.
        """
        held = hold.Hold()
        tracker = self.manager(host).rt
        claim = tracker.instance_claim

        def wait_and_claim(*args, **kwargs):
            held.wait_here()
            try:
                return claim(*args, **kwargs)
            finally:
                held.leave()

        self._test.useFixture(fixtures.MockPatchObject(
            tracker, 'instance_claim', wait_and_claim))
        self._test.addCleanup(held.release)
        return held

    def audit_interrupted(self, host, act, early=False):
        """Run an audit, and do something when it has just begun.

        That is after it has read its records and before it comes to its
        first node. In an audit of many nodes much happens there.

        :param early: when it has decided, and before it compares its records
            with what it has at hand.
        """
        tracker = self.manager(host).rt
        inherited = tracker.clean_compute_node_cache

        def clean_and_act(records):
            if early:
                act()
            inherited(records)
            if not early:
                act()

        with mock.patch.object(
                tracker, 'clean_compute_node_cache', clean_and_act):
            self.audit(host)

    def freeze_replica(self):
        """Let what nova reads from a database replica stay as it is now."""
        with self._in_cell() as ctxt:
            frozen = db.compute_node_get_all(ctxt)
        current = db.compute_node_get_all_by_host

        def read(context, host, use_slave=False):
            if not use_slave:
                return current(context, host)
            records = [record for record in frozen if record['host'] == host]
            if not records:
                raise exception.ComputeHostNotFound(host=host)
            return records

        self._test.useFixture(fixtures.MonkeyPatch(
            'nova.objects.ComputeNodeList._db_compute_node_get_all_by_host',
            staticmethod(read)))

    def reap(self, *hosts):
        """Run nova's reaper of deleted servers on these hosts, or on all.

        :raises RuntimeError: and others, as nova's periodic task does.
        """
        for host in hosts or self.hosts:
            with self._as(host), self._in_cell() as ctxt:
                self.manager(host)._cleanup_running_deleted_instances(ctxt)

    def stop(self, host, meanwhile=lambda: None):
        """Stop a compute; for ``service_down_time`` nova believes it is up.

        :param meanwhile: what is done when it has been told to end, has said
            so, and has not ended anything yet.
        """
        service = self._running[host]
        end = service.rpcserver.stop
        ours = getattr(service.manager.driver, 'service', None)

        def act_and_end():
            if ours is not None:
                ours.shutdown.wait()
            meanwhile()
            with self._as(host):
                end()

        with self._as(host), mock.patch.object(
                service.rpcserver, 'stop', act_and_end):
            service.stop()
        del self._running[host]

    def crash(self, host):
        """Stop a compute that says nothing, as one that is killed.

        For ``service_down_time`` nova believes that it is up.
        """
        driver = self.manager(host).driver
        if service := getattr(driver, 'service', None):
            service.shutdown._registration.say = lambda words: False
        self.stop(host)

    def kill(self, host):
        """The same, and let nova know that it is down."""
        self.crash(host)
        self.lose(host)

    def pass_time(self, host, seconds):
        """Let time go by for a compute that looks around."""
        auditor = self.manager(host).driver.service.auditor
        clock = auditor._clock
        for one in (auditor, auditor.heartbeats):
            one._clock = lambda: clock() + seconds

    def disable(self, host):
        """Disable the compute service, as an operator does."""
        self._update_service(host, {'status': 'disabled'})

    def enable(self, host):
        """Enable the compute service again."""
        self._update_service(host, {'status': 'enabled'})

    def force_down(self, host):
        """Declare a host fenced, as an operator does; it runs on."""
        self._update_service(host, {'forced_down': True})

    def unforce(self, host):
        """Take back what :meth:`force_down` declared."""
        self._update_service(host, {'forced_down': False})

    def _update_service(self, host, change):
        service, = self._test.admin_api.get_services(
            binary='nova-compute', host=host)
        self._test.admin_api.put_service(service['id'], change)

    def manager(self, host):
        """Return the ComputeManager of a host that runs."""
        return self._running[host].manager

    def records(self):
        """Return {node: host} as nova's compute_nodes have it.

        Unlike the hypervisor list it has those of unmapped hosts, too.
        """
        with self._in_cell() as ctxt:
            return {
                record.hypervisor_hostname: record.host
                for record in objects.ComputeNodeList.get_all(ctxt)}

    def _hang_up(self):
        """Close the connections to Ironic, as the end of a process does.

        openstacksdk keeps the last 256 addresses that were asked for and with
        them the connections of computes that are long gone
        (openstack.proxy:Proxy._extract_name). An Ironic that runs on eventlet
        (until 2025.1) serves 100, and lets whoever comes next wait until one
        of them has been idle for 15 minutes.
        """
        for driver in self._drivers:
            if connection := driver._ironic_connection:
                connection.session.session.close()

    @contextlib.contextmanager
    def _as(self, host):
        with as_host(host, **self._ironic.get(host, {})):
            yield

    @contextlib.contextmanager
    def _in_cell(self):
        with context.target_cell(
                context.get_admin_context(), self._cell) as ctxt:
            yield ctxt
