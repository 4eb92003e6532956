# SPDX-License-Identifier: Apache-2.0

"""What happens at once, without waiting for the next audit."""

from unittest import mock

from nova import objects
from oslo_utils.fixture import uuidsentinel

from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.tests.functional import base
from nova_ironic_multihost.tests.functional import proxy


class MembersTestCase(base.MultiHostTestCase):
    """Computes die or are disabled; the others look around, and no more."""

    def setUp(self):
        super().setUp()
        self.nodes = self.ironic.enroll(9)
        self.fleet.start('host1', 'host2', 'host3')
        self.before = self.settle()
        self.mark_providers()
        self.fleet.look()

    def assertOnlyTheirsMoved(self, host):
        """Assert that all others have what they had, and those of a host."""
        after = self.owners()
        self.assertCountEqual(self.nodes, after)
        for node, owner in self.before.items():
            if owner != host:
                self.assertEqual(owner, after[node])
        self.assertProvidersKept(self.nodes)

    def assertAllCanBeUsed(self, nodes):
        """Assert that each of these nodes gets a server."""
        # Placement's allocation candidates are what the scheduler chooses
        # from.
        servers = [self.boot() for _ in self.nodes]
        self.assertLessEqual(set(nodes), set(map(self.node_of, servers)))

    def test_free_nodes_of_a_dead_compute_are_used_by_the_others(self):
        nodes = self.nodes_of('host2')
        self.fleet.kill('host2')

        self.fleet.look()

        self.assertEqual(set(), self.nodes_of('host2'))
        self.assertOnlyTheirsMoved('host2')
        self.assertAllCanBeUsed(nodes)

    def test_first_look_of_a_compute_that_starts_finds_the_dead_too(self):
        self.fleet.kill('host2')
        self.fleet.kill('host1')
        self.fleet.kill('host3')

        self.fleet.start('host1')
        self.fleet.look()

        self.assertEqual({'host1'}, set(self.owners().values()))
        self.assertProvidersKept(self.nodes)

    def test_survivors_that_die_one_after_the_other(self):
        self.fleet.kill('host2')
        self.fleet.look('host1')
        self.fleet.kill('host3')
        self.fleet.look('host1')
        self.assertEqual({'host1'}, set(self.owners().values()))

    def test_fenced_compute_that_runs_on(self):
        self.fleet.force_down('host2')
        self.fleet.look('host1', 'host3')
        self.assertEqual(set(), self.nodes_of('host2'))
        self.fleet.look('host2')
        self.assertEqual(set(), self.nodes_of('host2'))
        self.assertOnlyTheirsMoved('host2')

    def test_disabled_compute_gives_its_idle_nodes(self):
        server = self.boot('host2')
        self.fleet.disable('host2')
        self.fleet.look()
        self.assertEqual({self.node_of(server)}, self.nodes_of('host2'))
        self.assertOnlyTheirsMoved('host2')
        # The first look after that repeats nothing.
        self.fleet.look()
        self.assertEqual({self.node_of(server)}, self.nodes_of('host2'))
        self.assertEqual(
            self.owners(), self.settle())

    def marked(self):
        """Return the nodes that placement does not offer."""
        return {node for node in self.nodes if 'COMPUTE_STATUS_DISABLED'
                in self._get_provider_traits(node)}

    def test_nodes_of_a_disabled_compute_are_marked_until_it_is_enabled(self):
        for switch, marked in ((self.fleet.disable, self.nodes_of('host2')),
                               (self.fleet.enable, set())):
            before = self.marked()
            switch('host2')
            self.assertEqual(before, self.marked())
            self.fleet.look('host2')
            self.fleet.keep_up('host2')
            self.assertEqual(marked, self.marked())
            # Whatever nova's client knows of them fits that.
            self.fleet.audit('host2')
            self.assertEqual(marked, self.marked())

    def test_nodes_that_were_pulled_are_not_marked(self):
        nodes = self.nodes_of('host2')
        self.fleet.disable('host2')
        self.fleet.look('host1', 'host3')
        self.assertEqual(set(), self.nodes_of('host2'))
        # It has not looked since, and still has them for its own.
        driver = self.fleet.manager('host2').driver
        self.assertEqual(nodes, set(driver.service.auditor.last.nodes))
        self.fleet.keep_up('host2')
        self.assertEqual(set(), self.marked())

    def test_traits_that_a_disabled_compute_sets_late(self):
        nodes = self.nodes_of('host2')
        self.fleet.disable('host2')
        self.fleet.look()
        for node in nodes:
            self._set_provider_traits(node, [
                *self._get_provider_traits(node), 'COMPUTE_STATUS_DISABLED'])
        self.fleet.look()
        self.fleet.keep_up('host1', 'host3')
        for node in nodes:
            self.assertNotIn('COMPUTE_STATUS_DISABLED',
                             self._get_provider_traits(node))

    def test_nodes_with_servers_stay_with_a_dead_compute(self):
        server = self.boot('host2')
        self.fleet.kill('host2')
        self.fleet.look()
        self.assertEqual({self.node_of(server)}, self.nodes_of('host2'))

    def test_servers_of_a_fenced_compute_are_taken_over(self):
        server = self.boot('host2')
        self.fleet.kill('host2')
        self.fleet.look()
        self.assertEqual('host2', self.host_of(self.show(server)))
        self.fleet.force_down('host2')
        self.fleet.look()
        self.assertIn(self.host_of(self.show(server)), ('host1', 'host3'))
        self.assertEqual(set(), self.nodes_of('host2'))

    def test_nothing_moves_when_a_compute_joins(self):
        self.fleet.start('host4')
        self.fleet.look()
        self.assertEqual(self.before, self.owners())

    def test_look_that_fails_is_made_up_for(self):
        between = self.useFixture(proxy.Proxy(self.ironic.endpoint))
        self.flags(endpoint_override=between.endpoint, group='ironic')
        for host in ('host1', 'host3'):
            self.fleet.manager(host).driver._ironic_connection = None
        between.answer('GET', '/v1/nodes.*', 503, {})
        self.fleet.kill('host2')
        for host in ('host1', 'host3'):
            self.assertRaises(ListingError, self.fleet.look, host)
        self.assertEqual(self.before, self.owners())

        between.open()
        self.fleet.look()

        self.assertEqual(set(), self.nodes_of('host2'))

    def test_node_that_comes_during_an_audit_can_be_used_at_once(self):
        # The audit has read its records before, and nova forgets what it
        # does not find there.
        for early in (True, False):
            died = 'host2' if early else 'host3'
            nodes = self.nodes_of(died)
            sources = self.fleet.manager(
                'host1'
            ).driver.service.auditor.cloud
            services = sources.services()
            self.fleet.kill(died)

            def look(sources=sources):
                del sources.services
                self.fleet.look('host1')

            # It died after the audit has asked who is there.
            sources.services = lambda services=services: services
            with self.assertNoLogs('nova.compute.manager', 'WARNING'):
                self.fleet.audit_interrupted('host1', look, early)
            taken = nodes & self.nodes_of('host1')
            self.assertNotEqual(set(), taken)
            tracked = self.fleet.manager('host1').rt.compute_nodes
            self.assertLessEqual(taken, set(tracked))
        self.assertEqual({'host1'}, set(self.owners().values()))
        self.assertAllCanBeUsed(self.nodes)

    def test_nodes_that_had_been_here_before(self):
        # host1 was taken for dead and does not know yet that it was.
        had = self.nodes_of('host1')
        self.fleet.lose('host1')
        self.fleet.audit('host2', 'host3')
        self.assertEqual(set(), self.nodes_of('host1'))
        self.fleet.beat('host1')
        for host in ('host2', 'host3'):
            self.fleet.kill(host)
        self.fleet.look('host1')
        self.assertEqual({'host1'}, set(self.owners().values()))
        self.assertEqual(had, had & self.nodes_of('host1'))


class ReservedTestCase(base.MultiHostTestCase):
    """What placement knows of a machine at each moment of its use.

    There is no audit in between.
    """

    def setUp(self):
        super().setUp()
        self.node, = self.ironic.enroll(1)
        self.between = self.useFixture(proxy.Proxy(self.ironic.endpoint))
        self.flags(endpoint_override=self.between.endpoint, group='ironic')
        self.fleet.start('host1')
        self.settle()

    def test_boot_and_delete(self):
        self.assertFalse(self.reserved(self.node))
        deploy = self.between.hold(
            'PUT', f'/v1/nodes/{self.node}/states/provision', '"active"')
        server = self.request_server()
        deploy.arrived()
        # Its instance_uuid is set.
        self.assertTrue(self.reserved(self.node))
        self.assertEqual({self.node}, set(
            self._get_allocations_by_server_uuid(server['id'])))
        deploy.release()
        server = self.wait_for_status(server, 'ACTIVE')
        self.assertTrue(self.reserved(self.node))
        self.assertEqual({self.node}, set(
            self._get_allocations_by_server_uuid(server['id'])))
        # What the driver knows is no older than the build.
        self.assertEqual(1, server['OS-EXT-STS:power_state'])

        self.delete(server)
        self.assertEqual(
            {}, self._get_allocations_by_provider_uuid(self.node))
        self.ironic.wait_for([self.node], provision_state='available')
        self.fleet.audit()
        self.assertFalse(self.reserved(self.node))

    def test_machine_is_not_offered_while_it_is_cleaned(self):
        manager = self.fleet.manager('host1')
        with mock.patch.object(
                manager, '_update_available_resource_for_node',
                side_effect=OSError('placement is away')):
            server = self.boot()
        self.assertFalse(self.reserved(self.node))
        # As it is after the audit of any other node.
        manager.rt.tracked_instances.clear()
        self.between.answer(
            'GET', f'/v1/nodes/{self.node}', 200, {
                'uuid': self.node, 'instance_uuid': None,
                'provision_state': 'cleaning', 'power_state': 'power on',
                'maintenance': False, 'properties': {'cpu_arch': 'x86_64'},
                'resource_class': 'baremetal', 'traits': []})
        self.delete(server)
        self.assertEqual(
            {}, self._get_allocations_by_provider_uuid(self.node))
        self.assertTrue(self.reserved(self.node))

    def test_machine_is_offered_again_when_its_build_has_failed(self):
        self.between.answer('PUT', f'/v1/nodes/{self.node}/vifs.*', 400, {})
        self.between.answer(
            'PUT', f'/v1/nodes/{self.node}/states/provision', 400,
            {'error_message': 'no'})
        self.assertEqual('ERROR', self.wait_for_end(self.request_server()))
        self.assertFalse(self.reserved(self.node))
        self.assertEqual(
            {}, self._get_allocations_by_provider_uuid(self.node))
        self.between.open()
        self.boot()

    def test_audit_that_began_before_the_build_does_not_undo_it(self):
        driver = self.fleet.manager('host1').driver
        sources = driver.service.auditor.cloud
        services = sources.services

        def reserve_and_go_on():
            # Ironic has listed the node as a free one.
            sources.services = services
            driver.prepare_for_spawn(objects.Instance(
                uuid=uuidsentinel.server, node=self.node, created_at=None))
            return services()

        sources.services = reserve_and_go_on
        self.fleet.audit()
        self.assertTrue(self.reserved(self.node))
