# SPDX-License-Identifier: Apache-2.0

"""What is read, and when, of nodes of which Ironic has said something."""

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.listing import ironic_events
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.tests.unit.engine import cloud

NEW = '1be26c0b-03f2-4d2e-ae87-c02d7f33c999'


class HintsTestCase(cloud.AuditTestCase):
    """Host a is told of nodes; b shares them."""

    def setUp(self):
        super().setUp()
        self.settle('a', 'b')
        self.auditor = self.auditors['a']
        self.reader = self.auditor._reader
        self.mine = sorted(self.auditor.last.nodes)
        self.theirs = sorted(set(cloud.NODES) - set(self.mine))
        self.woken = 0
        self.hints = ironic_events.IronicEvents(
            self.auditor, self.reader, self.wake
        )

    def wake(self):
        self.woken += 1

    def read(self):
        """Follow the hints; return the nodes that are read for themselves."""
        pages, read = self.reader._pages, []
        node = pages.node
        pages.node = lambda uuid: read.append(uuid) or node(uuid)
        self.hints.follow()
        self.auditor.read(audit_state.Settings('a', points=32))
        pages.node = node
        return read

    def test_node_of_mine_is_read_anew_once(self):
        for _ in range(1000):
            self.hints.take(self.mine[0])
        self.assertEqual(1000, self.woken)
        self.assertEqual([self.mine[0]], self.read())
        self.assertEqual([], self.read())

    def test_what_the_clocks_of_ironic_hide_is_seen(self):
        """A conductor whose clock is hours behind has changed it."""
        node = self.mine[0]
        before = self.reader.mirror.bodies[node]
        self.cloud.contents[node] = 1
        self.hints.take(node)
        self.hints.follow()
        self.auditor.read(audit_state.Settings('a', points=32))
        self.assertNotEqual(before, self.reader.mirror.bodies[node])

    def test_node_of_another_is_left_to_him(self):
        for came in False, True:
            self.hints.take(self.theirs[0], came)
        self.assertEqual((0, []), (self.woken, self.read()))

    def test_node_that_is_not_known(self):
        self.hints.take(NEW)
        self.assertEqual(0, self.woken)
        self.hints.take(NEW, came=True)
        # Whether there is one is not believed: Ironic is asked for all news.
        self.assertEqual((1, []), (self.woken, self.read()))
        self.cloud.ironic[NEW] = None
        self.read()
        # Nobody has decided yet whose it is.
        self.hints.take(NEW)
        self.assertEqual((2, [NEW]), (self.woken, self.read()))

    def test_node_with_an_instance_that_nova_does_not_know(self):
        node = self.mine[0]
        self.cloud.ironic[node] = 'stranger'
        self.audit('a')
        self.assertIs(Reason.UNKNOWN, self.auditor.reason(node))
        self.hints.take(node)
        self.assertEqual(1, self.woken)

    def test_nothing_is_known_before_the_first_audit(self):
        self.auditor.last = None
        self.hints.take(NEW)
        self.assertEqual(0, self.woken)

    def test_of_many_none_is_read_for_itself(self):
        some = [f'1be26c0b-03f2-4d2e-ae87-c02d7f33c2{number:02}'
                for number in range(ironic_events.FEW + 30)]
        for node in some[:ironic_events.FEW]:
            self.hints.take(node, came=True)
        self.assertEqual(set(some[:ironic_events.FEW]), self.forgotten())
        for node in some:
            self.hints.take(node, came=True)
        self.assertLessEqual(len(self.hints._nodes), ironic_events.FEW + 1)
        self.assertEqual(set(), self.forgotten())
        self.hints.take(some[-1], came=True)
        self.assertEqual({some[-1]}, self.forgotten())

    def forgotten(self):
        """Follow the hints; return what the reader is to read anew."""
        self.reader._changed.clear()
        self.hints.follow()
        return {*self.reader._changed}
