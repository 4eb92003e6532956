# SPDX-License-Identifier: Apache-2.0

"""Builds that only their compute service knows of when it dies."""

from unittest import mock

import fixtures
from nova.compute import claims
from nova import context
from nova import objects

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import rpc_queue
from nova_ironic_multihost.engine.builds.lost_builds import InFlightBuilds
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.tests.functional import computes
from nova_ironic_multihost.tests.functional import dead
from nova_ironic_multihost.tests.functional import hold
from nova_ironic_multihost.tests.functional import queues


class Killed(BaseException):
    """What is in the way of a thread of a process that is killed."""


class CopiesTestCase(dead.DeadComputeTestCase):
    """host1 dies over a build; it comes back, or host2 takes over."""

    def setUp(self):
        self.useFixture(fixtures.MockPatchObject(
            rpc_queue, 'RpcQueues', lambda virtapi: queues.FakeQueues()))
        self.networks = 'none'
        super().setUp()
        self.fleet.look('host1', 'host2')
        self.fleet.keep('host1', 'host2')
        # No look counts for which nobody waits for a copy.
        self.useFixture(fixtures.MockPatchObject(
            forwarding, 'LOOKS', float('inf')))

    def die_over_a_build(self, step):
        """host1 dies when it comes to a step of nova's Ironic driver.

        Or of its resource tracker.
        """
        held = hold.Hold()
        manager = self.fleet.manager('host1')
        target = manager.rt if step == 'instance_claim' else manager.driver

        def die(*args, **kwargs):
            held.wait_here()
            raise Killed()

        # nova cleans up when it can.
        self.useFixture(fixtures.MockPatchObject(
            claims.Claim, 'abort', lambda claim: None))
        patch = mock.patch.object(target, step, die)
        patch.start()
        self.server = self.request_server('host1')
        held.arrived()
        patch.stop()
        self.fleet.keep('host1')
        self.backups = manager.driver.service.backups
        self.held = held
        self.assertEqual([], queues.copies('host1'))

    def end(self):
        """End host1, over its build."""
        self.held.release()
        self.fleet.kill('host1')
        self.backups._close()
        self.assertEqual(1, len(queues.copies('host1')))

    def restart(self):
        """host1 is killed and started again."""
        self.end()
        self.fleet.start('host1')
        self.join()
        self.fleet.look('host1')

    def assertBuilt(self, host):
        """The build goes on, on a host, and nothing is left of it."""
        with computes.as_host(host):
            server = self.wait_for_status(self.server, 'ACTIVE')
        self.assertEqual(host, self.host_of(server))
        self.fleet.keep(host)
        for name in 'host1', 'host2':
            self.assertEqual([], queues.copies(name))
            self.assertEqual([], queues.queue(name))
        node = self.machine_of(server)
        self.assertEqual(server['id'], node.instance_uuid)
        self.assertEqual(
            {node.uuid}, set(self._get_allocations_by_server_uuid(
                server['id'])))
        self.assertEqual(1, sum(
            one.instance_uuid == server['id']
            for one in self.ironic.client.node.list(detail=True)))

    def machine_of(self, server):
        return self.ironic.client.node.get(self.node_of(server))

    def test_build_that_had_not_begun_goes_on_after_a_restart(self):
        self.die_over_a_build('instance_claim')
        self.restart()
        self.fleet.miss('host1', InFlightBuilds.TURNS - 1)
        self.assertEqual('BUILD', self.show(self.server)['status'])
        self.fleet.keep('host1')
        self.assertBuilt('host1')

    def test_build_that_ironic_was_not_told_of_goes_on_after_a_restart(self):
        self.die_over_a_build('spawn')
        self.restart()
        self.fleet.keep('host1')
        self.assertEqual('host1', self.host_of(self.show(self.server)))
        self.again('host1')
        self.assertBuilt('host1')

    def test_build_that_was_left_when_it_had_failed_begins_again(self):
        """Between giving its claim back and being scheduled anew."""
        self.die_over_a_build('spawn')
        with context.target_cell(context.get_admin_context(),
                                 self.cell_mappings['cell1']) as ctxt:
            instance = objects.Instance.get_by_uuid(ctxt, self.server['id'])
            instance.host = instance.node = instance.compute_id = None
            instance.save()
        self.restart()
        self.fleet.keep('host1')
        self.assertBuilt('host1')

    def test_build_that_begins_again_has_its_networks_and_ports(self):
        # nova's fake of neutron cannot bind to no host.
        self.useFixture(fixtures.MockPatchObject(
            names.IronicDriver, 'network_binding_host_id',
            lambda driver, context, instance: 'host1'))
        port = self.neutron.port_1['id']
        for network in {'port': port}, {'uuid': self.neutron.network_1['id']}:
            self.networks = [network]
            self.die_over_a_build('spawn')
            self.restart()
            self.fleet.keep('host1')
            self.again('host1')
            self.assertBuilt('host1')
            has, = (its['id'] for its in self.neutron._ports.values()
                    if its.get('device_id') == self.server['id'])
            self.assertEqual('port' in network, has == port)
            # The user's port outlives it.
            self.delete(self.server)
            self.assertIn(port, self.neutron._ports)

    def request_server(self, host=None):
        server = self._build_server(
            flavor_id=self.flavor, networks=self.networks, host=host)
        return self.api.post_server({'server': server})

    def again(self, host):
        """A host has a second look at the build."""
        recovery = self.fleet.manager(host).driver.service.recovery
        now = recovery._clock
        recovery._clock = lambda: now() + 30
        self.fleet.sweep(host)
        self.join()
        self.assertIsNone(self.host_of(self.show(self.server)))
        self.fleet.keep(host)

    def test_build_that_had_not_begun_goes_on_elsewhere(self):
        self.die_over_a_build('instance_claim')
        self.end()
        self.survive()
        self.assertBuilt('host2')

    def test_build_that_ironic_was_not_told_of_goes_on_elsewhere(self):
        self.die_over_a_build('spawn')
        self.end()
        self.survive()
        self.audit()
        self.assertEqual('host2', self.host_of(self.show(self.server)))
        self.survive()
        self.fleet.keep('host2')
        self.again('host2')
        self.assertBuilt('host2')

    def survive(self):
        """host2 sees that host1 is dead, and reads what it was asked for."""
        self.fleet.force_down('host1')
        self.fleet.look('host2')
        with computes.as_host('host2'):
            self.fleet.manager('host2').driver.service.forwarder.once()

    def test_build_that_goes_on_is_not_asked_for_again(self):
        self.die_over_a_build('instance_claim')
        for _ in range(3):
            self.fleet.keep('host1')
        self.assertEqual([], queues.queue('host1'))
        self.end()
        self.fleet.start('host1')
        self.fleet.look('host1')
        held = self.fleet.hold_claims('host1')
        self.fleet.keep('host1')
        held.arrived()
        for _ in range(3):
            self.fleet.keep('host1')
        self.assertEqual([], queues.queue('host1'))
        held.release()
        self.assertBuilt('host1')

    def test_build_that_is_deleted_is_not_asked_for_again(self):
        self.die_over_a_build('instance_claim')
        self.end()
        self.delete(self.server)
        self.fleet.start('host1')
        self.fleet.look('host1')
        self.fleet.keep('host1')
        self.assertEqual([], queues.copies('host1'))
        self.assertEqual([], queues.queue('host1'))

    def test_build_that_fails_for_good_is_over(self):
        with mock.patch.object(self.fleet.manager('host1').driver, 'spawn',
                               side_effect=names.NovaException('no')):
            self.server = self.request_server('host1')
            self.assertEqual('ERROR', self.wait_for_end(self.server))
        self.fleet.keep('host1')
        self.assertEqual([], queues.copies('host1'))
        self.assertEqual([], queues.queue('host1'))
