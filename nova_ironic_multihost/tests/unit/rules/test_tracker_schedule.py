# SPDX-License-Identifier: Apache-2.0

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import tracker_schedule
from nova_ironic_multihost.rules.tracker_schedule import NodeInputs

NODES = [f'1be26c0b-03f2-4d2e-ae87-c02d7f33c1{i:02}' for i in range(40)]
BASIS = NodeInputs(NodeRow(NODES[0], None, b'content'), Reason.KEPT, 1)
INTERVAL = 1000


class DueTestCase(base.BaseTestCase):

    def due(self, basis=BASIS, last=BASIS, passed=0):
        return tracker_schedule.due(
            basis,
            last and tracker_schedule.NodeAudit(last, 50),
            50 + passed,
            INTERVAL,
        )

    def test_node_that_was_never_audited(self):
        self.assertTrue(self.due(last=None))

    def test_node_of_which_nothing_has_changed(self):
        self.assertFalse(self.due())
        same = NodeInputs(
            NodeRow(NODES[0], None, b'cont' + b'ent'), Reason.KEPT, 1)
        self.assertFalse(self.due(same, passed=INTERVAL / 3))

    def test_whatever_an_audit_depends_on(self):
        row = BASIS.node
        for changed in (
            NodeInputs(row._replace(body=b'other'), Reason.KEPT, 1),
            NodeInputs(row._replace(instance='i1'), Reason.KEPT, 1),
            NodeInputs(row, Reason.LEAKED, 1),
            NodeInputs(row, Reason.KEPT, 2),
        ):
            self.assertTrue(self.due(changed))

    def test_node_that_came_and_is_kept_now(self):
        for reason in Reason.ADOPTED, Reason.PULLED:
            came = NodeInputs(BASIS.node, reason, 1)
            self.assertFalse(self.due(last=came))
            # It has been another's in between.
            self.assertTrue(self.due(came))
            self.assertTrue(
                self.due(NodeInputs(BASIS.node, Reason.KEPT, 2), came))
            self.assertTrue(self.due(
                NodeInputs(BASIS.node, Reason.LEAKED, 1), came))
            self.assertTrue(self.due(NodeInputs(
                BASIS.node._replace(instance='i'), Reason.KEPT, 1), came))
        self.assertTrue(self.due(
            last=NodeInputs(BASIS.node, Reason.INSTANCE_HERE, 1)))

    def test_node_of_which_it_is_not_known_what_it_is(self):
        unknown = NodeInputs(BASIS.node._replace(body=None), Reason.KEPT, 1)
        self.assertTrue(self.due(unknown, unknown))

    @hypothesis.given(strategies.uuids(version=4).map(str))
    def test_each_once_in_the_interval(self, node):
        basis = NodeInputs(NodeRow(node, None, b''), Reason.KEPT, 1)
        self.assertTrue(self.due(basis, basis, INTERVAL))
        self.assertFalse(self.due(
            basis, basis, INTERVAL * tracker_schedule.EARLIEST - 1))

    def test_not_all_at_once(self):
        moments = sorted(map(tracker_schedule.moment, NODES))
        self.assertEqual(len(NODES), len(set(moments)))
        # Each quarter of the time has its share.
        for quarter in range(4):
            begin = (
                tracker_schedule.EARLIEST
                + (1 - tracker_schedule.EARLIEST) * quarter / 4)
            end = begin + (1 - tracker_schedule.EARLIEST) / 4
            self.assertGreater(
                sum(begin <= one < end for one in moments), len(NODES) / 8)


class OrderTestCase(base.BaseTestCase):

    def test_what_nobody_can_build_on_yet_is_first(self):
        self.assertEqual(
            ['free-new', 'used-new', 'free-old', 'used-old'],
            tracker_schedule.order(
                ['used-old', 'free-old', 'used-new', 'free-new'],
                ['free-old', 'used-old', 'gone'], ['used-new', 'used-old']))


class DriftedTestCase(base.BaseTestCase):

    def test_generation_that_is_another_or_gone(self):
        self.assertEqual({'b', 'c'}, tracker_schedule.drifted(
            {'a': 1, 'b': 1, 'c': 1}, {'a': 1, 'b': 2, 'new': 7}))
