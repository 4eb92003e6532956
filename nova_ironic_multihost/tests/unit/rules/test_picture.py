# SPDX-License-Identifier: Apache-2.0

"""The picture of a compute service: all that is seen of it from outside."""

from oslotest import base

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import health as picture
from nova_ironic_multihost.rules.ownership import Reason

WELL = health.HealthState(True, 'This compute service is well.')


class PictureTestCase(base.BaseTestCase):

    def of(self, some=counters.Counters(), **fields):
        return picture.StatusSnapshot('me', 100, some, WELL, **fields)

    def test_how_long_take_overs_have_been_pending(self):
        self.assertEqual(0, self.of().pending_seconds)
        some = counters.Counters().with_pending(Pending.TURN, {'n1'}, 90)
        self.assertEqual(10, self.of(some).pending_seconds)
        # Noted after the moment was taken.
        some = counters.Counters().with_pending(Pending.TURN, {'n1'}, 101)
        self.assertEqual(0, self.of(some).pending_seconds)

    def test_what_is_pending_oldest_first(self):
        some = counters.Counters().with_pending(Pending.REST, {'i2'}, 80)
        some = some.with_pending(Pending.REST, {'i1', 'i2', 'i3'}, 90)
        self.assertEqual([('i2', 20), ('i1', 10), ('i3', 10)],
                         self.of(some).waiting(Pending.REST))
        self.assertEqual([], self.of(some).waiting(Pending.TURN))

    def test_one_node_of_each_reason_for_which_nodes_move(self):
        self.assertEqual({}, self.of().moving())
        self.assertEqual(
            [(Reason.PULLED, 'n2'), (Reason.QUEUED, 'n3')],
            list(self.of(reasons={
                'n1': Reason.KEPT, 'n3': Reason.QUEUED, 'n2': Reason.PULLED,
                'n4': Reason.QUEUED}).moving().items()))

    def test_age(self):
        self.assertEqual(95, self.of(counters.Counters(begun=5)).age(
            Work.AUDIT))
