# SPDX-License-Identifier: Apache-2.0

"""Computes join."""

from unittest import mock

from nova_ironic_multihost.tests.functional import base


class JoinTestCase(base.MultiHostTestCase):

    def test_first_compute_owns_all_nodes(self):
        nodes = self.ironic.enroll(4)
        self.fleet.start('host1')
        self.assertEqual({node: 'host1' for node in nodes}, self.settle())
        self.assertCountEqual(nodes, self.providers())

    def test_nodes_are_shared_with_computes_that_join(self):
        nodes = self.ironic.enroll(9)
        self.fleet.start('host1')
        self.fleet.audit()
        self.mark_providers()

        for joining in ('Host2', 'host3'):
            before = self.owners()
            self.fleet.start(joining)
            after = self.settle()
            self.assertCountEqual(nodes, after)
            self.assertCountEqual(self.fleet.hosts, set(after.values()))
            # The others keep what they have or give it to the one that joins.
            moved = {node for node in nodes if before[node] != after[node]}
            self.assertEqual({joining}, {after[node] for node in moved})

        self.assertProvidersKept(nodes)

    def test_ownership_stands_still_between_changes(self):
        self.ironic.enroll(9)
        self.fleet.start('host1', 'host2', 'host3')
        owners = self.settle()
        for hosts in (('host3', 'host1', 'host2'), ('host2', 'host2'),
                      ('host1', 'host3')):
            self.fleet.audit(*hosts)
            self.assertEqual(owners, self.owners())


class PulledTestCase(base.MultiHostTestCase):
    """host1 has all nodes, and host2 has joined."""

    #: Requests to placement for a node that is pulled, from the audit that
    #: decides on it to the last one in which it is looked at for that; and
    #: for one that nova's tracker takes.
    REQUESTS, OF_TRACKER = 13, 16

    def setUp(self):
        super().setUp()
        self.ironic.enroll(9)
        self.fleet.start('host1')
        self.fleet.audit()
        self.fleet.audit()
        self.fleet.start('host2')
        manager = self.fleet.manager('host2')
        self.client, self.tracker = manager.reportclient, manager.rt

    def spy(self, target, name):
        """Have calls of a method counted."""
        return self.enterContext(mock.patch.object(
            target, name, wraps=getattr(target, name)))

    def pull(self):
        """Let host2 pull nodes; return them."""
        self.fleet.audit('host2')
        pulled = self.nodes_of('host2')
        self.assertNotEqual(set(), pulled)
        return pulled

    def cost(self):
        """Pull nodes, and go on until they are as all others.

        :returns: (audits of single nodes until all have moved, audits at
            all, requests to placement); of each node.
        """
        requests = [self.spy(self.client, verb)
                    for verb in ('get', 'put', 'post')]
        audited = self.spy(self.tracker, '_update_available_resource')
        pulled = self.pull()
        first = audited.call_count
        for _ in range(4):
            self.fleet.keep_up('host2')
            self.fleet.audit('host2')
        self.assertEqual(pulled, self.nodes_of('host2'))
        return tuple(count / len(pulled) for count in (
            first, audited.call_count,
            sum(asked.call_count for asked in requests)))

    def test_what_a_pulled_node_costs(self):
        # The audit of all nodes waits for none of those.
        self.assertEqual((0, 1, self.REQUESTS), self.cost())

    def test_what_one_costs_that_the_tracker_takes(self):
        with mock.patch.object(
                self.fleet.manager('host2').driver.service.tracker, 'pull',
                return_value=set()):
            self.assertEqual((1, 1, self.OF_TRACKER), self.cost())

    def test_pulled_node_can_be_used_at_once(self):
        pulled = self.pull()
        self.assertEqual([False] * len(pulled), [*map(self.reserved, pulled)])
        servers = [self.boot('host2') for _ in pulled]
        self.assertEqual(pulled, set(map(self.node_of, servers)))

    def test_what_its_former_owner_writes_late(self):
        pulled = self.pull()
        self.fleet.keep_up('host2')
        for _ in range(2):
            for node in pulled:
                self._set_provider_traits(node, [
                    *self._get_provider_traits(node),
                    'COMPUTE_STATUS_DISABLED'])
            self.fleet.audit('host2')
            for node in pulled:
                self.assertNotIn('COMPUTE_STATUS_DISABLED',
                                 self._get_provider_traits(node))

    def test_pull_that_is_interrupted(self):
        """The next audit finishes it, wherever it was."""
        put, ends = self.client.put, []

        def fail_at_the_end(url, data, **options):
            if url.endswith('/inventories') and not any(
                    item['reserved'] for item in data['inventories'].values()):
                ends.append(url)
                return mock.MagicMock(__bool__=lambda answer: False)
            return put(url, data, **options)

        with mock.patch.object(self.client, 'put', new=fail_at_the_end):
            pulled = self.pull()
        self.assertEqual(len(pulled), len(ends))
        self.assertEqual([True] * len(pulled), [*map(self.reserved, pulled)])
        self.fleet.audit('host2')
        self.assertEqual([False] * len(pulled), [*map(self.reserved, pulled)])
        self.assertEqual(pulled, self.nodes_of('host2'))
