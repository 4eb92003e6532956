# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from lab import reasons
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.tests import views

PARTITIONS = 32


class ExplainTestCase(base.BaseTestCase):
    """Nodes of two computes, recorded where the ring wants them."""

    def setUp(self):
        super().setUp()
        self.hosts = ('compute-1', 'compute-2')
        preferences = ring.Ring(self.hosts, PARTITIONS)
        self.nodes = [f'1be26c0b-03f2-4d2e-ae87-c02d7f33c1{i:02}'
                      for i in range(10)]
        self.owner = {node: preferences.host_for(node)
                      for node in self.nodes}
        self.seen = cloud_state.CloudState(
            services=tuple(cloud_state.Service(host) for host in self.hosts),
            nodes=tuple(cloud_state.Node(node) for node in self.nodes),
            records=tuple(model.Record(node, owner)
                          for node, owner in self.owner.items()))
        self.node = self.nodes[0]
        self.other, = set(self.hosts) - {self.owner[self.node]}

    def explain(self, **changes):
        found = reasons.explain(
            dataclasses.replace(self.seen, **changes), PARTITIONS)
        return {one.node: one.sentence for one in found}

    def elsewhere(self):
        """The records with the first node on the other compute."""
        return tuple(
            model.Record(record.node, self.other)
            if record.node == self.node else record
            for record in self.seen.records)

    def test_what_is_kept_needs_no_explanation(self):
        self.assertEqual({}, self.explain())

    def test_node_that_is_about_to_move(self):
        found = self.explain(records=self.elsewhere())
        self.assertEqual([self.node], list(found))
        self.assertEqual(
            f'on {self.other}, preferred by {self.owner[self.node]}: free, '
            'about to be pulled', found[self.node])

    def test_node_that_is_about_to_get_its_first_record(self):
        found = self.explain(records=tuple(
            record for record in self.seen.records
            if record.node != self.node))
        self.assertEqual(
            f'on no compute, preferred by {self.owner[self.node]}: free, '
            'about to be recorded for the first time', found[self.node])

    def test_node_that_waits_for_a_build(self):
        found = self.explain(
            records=self.elsewhere(),
            allocations=(cloud_state.Allocation('server', self.node),))
        self.assertIn('build is on its way', found[self.node])

    def test_node_that_waits_for_the_mapping(self):
        found = self.explain(
            records=self.elsewhere(), services=tuple(
                cloud_state.Service(host, mapped=False)
                for host in self.hosts))
        self.assertIn('mapped to a cell', found[self.node])

    def test_nodes_of_a_dead_compute(self):
        found = self.explain(services=(
            cloud_state.Service('compute-1'),
            cloud_state.Service('compute-2', up=False)))
        self.assertEqual(
            {node: 'on compute-2, preferred by compute-1: free, about to be '
             'adopted from a compute service that is down'
             for node, host in self.owner.items()
             if host == 'compute-2'}, found)

    def with_server(self, policy, **service):
        """What is said of a node of compute-2 that has a server."""
        node = next(node for node, host in self.owner.items()
                    if host == 'compute-2')
        found = reasons.explain(dataclasses.replace(
            self.seen,
            services=(cloud_state.Service('compute-1'),
                      cloud_state.Service('compute-2', up=False, **service)),
            nodes=tuple(dataclasses.replace(
                n, instance_uuid='server') if n.uuid == node else n
                for n in self.seen.nodes),
            instances=(cloud_state.CloudServer(
                uuid='server', host='compute-2', node=node),)), PARTITIONS,
            policy=policy)
        [sentence] = [one.sentence for one in found if one.node == node]
        return sentence

    def test_server_of_a_dead_compute(self):
        about = 'about to be taken over'
        self.assertIn(about, self.with_server('forced_down',
                                              forced_down=True))
        self.assertNotIn(about, self.with_server('forced_down'))
        self.assertNotIn(about, self.with_server('never', forced_down=True))

    def test_node_of_a_dead_compute_to_which_a_build_was_sent(self):
        node = next(node for node, host in self.owner.items()
                    if host == 'compute-2')
        found = self.explain(
            services=(cloud_state.Service('compute-1'),
                      cloud_state.Service('compute-2', up=False)),
            allocations=(cloud_state.Allocation('server', node),))
        self.assertIn('its build was sent to', found[node])

    def test_leaked_machine(self):
        nodes = (cloud_state.Node(self.node, instance_uuid='gone'),
                 *self.seen.nodes[1:])
        found = self.explain(nodes=nodes, instances=(
            cloud_state.CloudServer(uuid='gone', deleted=True),))
        self.assertIn('nova has deleted', found[self.node])

    def test_node_that_ironic_has_no_more(self):
        found = self.explain(nodes=self.seen.nodes[1:])
        self.assertIn('not listed by Ironic', found[self.node])

    def test_nobody_may_take_it(self):
        found = self.explain(services=(), records=())
        self.assertEqual(set(self.nodes), set(found))
        self.assertIn('no compute may take it', found[self.node])

    def test_lab_that_is_consistent(self):
        self.assertIsInstance(
            reasons.explain(views.consistent(), PARTITIONS), list)


class SummaryTestCase(base.BaseTestCase):

    def test_what_is_said_of_several_is_said_once(self):
        lines = reasons.summary([
            reasons.Explained('n1', 'a', 'b', 'why'),
            reasons.Explained('n2', 'a', 'b', 'why'),
            reasons.Explained('n3', '', 'b', 'why not')])
        self.assertEqual(
            ['2 nodes on a, preferred by b: why',
             '1 node on no compute, preferred by b: why not'], lines)

    def test_few_lines(self):
        lines = reasons.summary([
            reasons.Explained(f'n{i}', f'host-{i}', 'b', 'why')
            for i in range(20)])
        self.assertEqual(reasons.SHOWN + 1, len(lines))
        self.assertIn('--nodes', lines[-1])
