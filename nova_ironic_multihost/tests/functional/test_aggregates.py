# SPDX-License-Identifier: Apache-2.0

"""Host aggregates, availability zones and the status of the owner.

The scheduler finds them at the resource providers of the nodes, in placement.
"""

from nova.scheduler.client import report
from oslo_utils.fixture import uuidsentinel

from nova_ironic_multihost import conf
from nova_ironic_multihost.tests.functional import base

DISABLED = 'COMPUTE_STATUS_DISABLED'


class SchedulerViewTestCase(base.MultiHostTestCase):
    """Two computes that share six nodes, as the scheduler sees them.

    :ivar before: which compute had which node at first.
    """

    def setUp(self):
        super().setUp()
        conf.register_opts(base.CONF)
        self.nodes = self.ironic.enroll(6)
        for host in ('host1', 'host2'):
            # Each process has a client of placement, with a cache, of its
            # own.
            report.PLACEMENTCLIENT = None
            self.fleet.start(host)
        report.PLACEMENTCLIENT = None
        self.audit_until(lambda: self.nodes_of('host2'))
        self.before = self.settle()

    def aggregate(self, *hosts, zone=None):
        """Create a host aggregate of these hosts; return (id, uuid)."""
        number = self._create_aggregate(
            '-'.join([zone or 'rack', *hosts]), zone)
        for host in hosts:
            self.admin_api.add_host_to_aggregate(number, host)
        listed = self.admin_api.api_get('/os-aggregates').body['aggregates']
        return number, {
            aggregate['id']: aggregate['uuid'] for aggregate in listed}[number]

    def carried(self):
        """Return {node: set of the aggregates of its provider}."""
        return {provider['name']: set(
                    self._get_provider_aggregates(provider['uuid']))
                for provider in self._get_all_providers()}

    def assertCarried(self, expected):
        """Assert that each node carries what its owner's nodes should.

        :param expected: {host: set of aggregates}.
        """
        self.assertEqual(
            {node: expected[host] for node, host in self.owners().items()},
            self.carried())

    def disabled_nodes(self):
        """Return the nodes that the scheduler passes over as disabled."""
        return {
            provider['name'] for provider in self._get_all_providers()
            if DISABLED in self._get_provider_traits(provider['uuid'])}

    def audit_until(self, condition):
        """Audit all computes until a condition holds; fail if it does not."""
        for _ in range(10):
            if condition():
                return
            self.fleet.audit()
        self.fail(f'Not reached in ten audits; owners: {self.owners()}')

    def put_foreign(self, node, *uuids, generation=True):
        """Put aggregates of others on a node's provider.

        :param generation: False as a client does it that speaks an old
            version of placement, which does not notice conflicts.
        """
        provider, = [provider for provider in self._get_all_providers()
                     if provider['name'] == node]
        both = self.carried()[node] | set(uuids)
        body = {'aggregates': list(both),
                'resource_provider_generation': provider['generation']}
        version = '1.19'
        if not generation:
            body, version = list(both), '1.1'
        self.placement.put(
            f'/resource_providers/{provider["uuid"]}/aggregates',
            body=body, version=version)


class AggregatesTestCase(SchedulerViewTestCase):

    def test_every_node_of_a_host_carries_its_aggregates(self):
        rack, rack_uuid = self.aggregate('host1')
        _, both_uuid = self.aggregate('host1', 'host2')
        self.fleet.audit()
        self.assertCarried({'host1': {rack_uuid, both_uuid},
                            'host2': {both_uuid}})

        self.admin_api.remove_host_from_aggregate(rack, 'host1')
        self.admin_api.add_host_to_aggregate(rack, 'host2')
        self.fleet.audit()
        self.assertCarried({'host1': {both_uuid},
                            'host2': {rack_uuid, both_uuid}})

        # Nothing more is written.
        providers = self._get_all_providers()
        self.fleet.audit()
        self.assertEqual(providers, self._get_all_providers())

    def test_deleted_aggregate_goes_from_every_node(self):
        rack, rack_uuid = self.aggregate('host1')
        # nova's API has told placement of the first node only.
        self.admin_api.remove_host_from_aggregate(rack, 'host1')
        self.fleet.audit()
        self.assertCarried({'host1': set(), 'host2': set()})
        self.admin_api.add_host_to_aggregate(rack, 'host1')
        self.fleet.audit()
        self.assertCarried({'host1': {rack_uuid}, 'host2': set()})

        self.admin_api.remove_host_from_aggregate(rack, 'host1')
        self.admin_api.delete_aggregate(rack)
        self.fleet.audit()
        self.assertCarried({'host1': set(), 'host2': set()})

    def test_node_that_moves_follows_its_new_host(self):
        self.aggregate('host1')
        _, new_uuid = self.aggregate('host2')
        self.fleet.audit()
        moving = [node for node, host in self.before.items()
                  if host == 'host1']
        for node in moving:
            self.put_foreign(node, uuidsentinel.foreign)

        self.fleet.kill('host1')
        self.audit_until(lambda: not self.nodes_of('host1'))

        self.assertEqual(
            {node: {new_uuid} | (
                {uuidsentinel.foreign} if node in moving else set())
             for node in self.nodes}, self.carried())

    def test_node_that_moves_to_another_zone_follows_it(self):
        self.flags(move_across_zones=True, group='ironic_multihost')
        self.aggregate('host1', zone='east')
        _, west = self.aggregate('host2', zone='west')
        self.fleet.audit()

        self.fleet.kill('host1')
        self.audit_until(lambda: not self.nodes_of('host1'))

        self.assertCarried({'host2': {west}})
        servers = [self.boot_in('west') for _ in self.nodes]
        self.assertEqual({'west'}, {
            server['OS-EXT-AZ:availability_zone'] for server in servers})

    def test_every_node_of_a_zone_can_be_booted_there(self):
        self.aggregate('host1', zone='east')
        self.aggregate('host2', zone='west')
        self.fleet.audit()
        for zone, host in (('east', 'host1'), ('west', 'host2')):
            expected = self.nodes_of(host)
            self.assertEqual(expected, {
                self.node_of(self.boot_in(zone)) for _ in expected})

    def test_nodes_do_not_change_their_zone_by_themselves(self):
        _, east = self.aggregate('host1', zone='east')
        _, west = self.aggregate('host2', zone='west')
        self.fleet.audit()
        self.fleet.kill('host1')
        for _ in range(3):
            self.fleet.audit()
        self.assertEqual(self.before, self.owners())
        self.assertCarried({'host1': {east}, 'host2': {west}})

    def boot_in(self, zone):
        """Boot a server in a zone, wait until it is ACTIVE and return it."""
        server = self._build_server(
            flavor_id=self.flavor, networks='none', az=zone)
        return self.wait_for_status(
            self.api.post_server({'server': server}), 'ACTIVE')

    def test_aggregates_of_others_stay(self):
        node, old_client_node = sorted(self.nodes_of('host1'))[:2]
        # The computes know the providers by heart now, without these.
        self.put_foreign(node, uuidsentinel.new_client)
        self.put_foreign(old_client_node, uuidsentinel.old_client,
                         generation=False)

        rack, rack_uuid = self.aggregate('host1')
        self.fleet.audit()
        foreign = dict.fromkeys(self.nodes, set()) | {
            node: {uuidsentinel.new_client},
            old_client_node: {uuidsentinel.old_client}}
        self.assertEqual(
            {node: others | (
                {rack_uuid} if self.before[node] == 'host1' else set())
             for node, others in foreign.items()}, self.carried())

        self.admin_api.remove_host_from_aggregate(rack, 'host1')
        self.fleet.audit()
        self.assertEqual(foreign, self.carried())

    def test_novas_aggregate_that_no_compute_is_in_can_be_set_by_hand(self):
        node, *_ = self.nodes_of('host1')
        _, by_hand = self.aggregate(zone='east')
        self.put_foreign(node, by_hand)
        _, both = self.aggregate('host1', 'host2')
        self.fleet.audit()
        self.assertEqual(
            dict.fromkeys(self.nodes, {both}) | {node: {by_hand, both}},
            self.carried())

        self.fleet.kill('host1')
        self.audit_until(lambda: not self.nodes_of('host1'))
        self.assertEqual({by_hand, both}, self.carried()[node])


class StatusTestCase(SchedulerViewTestCase):

    def disable(self):
        self.fleet.disable('host1')
        self.fleet.look('host1')
        self.fleet.keep_up('host1')

    def test_nodes_that_leave_a_disabled_compute_are_enabled_at_once(self):
        self.disable()
        self.assertEqual(self.nodes_of('host1'), self.disabled_nodes())

        def drained():
            # After each audit, also of those that move some nodes only.
            self.assertEqual(self.nodes_of('host1'), self.disabled_nodes())
            return not self.nodes_of('host1')

        self.audit_until(drained)
        self.assertEqual(set(), self.disabled_nodes())

    def test_node_with_a_server_stays_and_follows_the_status(self):
        node = self.node_of(self.boot('host1'))
        self.disable()
        self.audit_until(lambda: self.nodes_of('host1') == {node})
        self.assertEqual({node}, self.disabled_nodes())

        self.fleet.enable('host1')
        self.fleet.look('host1')
        self.fleet.keep_up('host1')
        self.assertEqual(set(), self.disabled_nodes())
        self.fleet.audit('host1')
        self.assertEqual(set(), self.disabled_nodes())

    def test_nodes_of_a_dead_disabled_compute_are_enabled_at_once(self):
        self.disable()
        self.fleet.kill('host1')
        self.audit_until(lambda: not self.nodes_of('host1'))
        self.assertEqual(set(), self.disabled_nodes())
