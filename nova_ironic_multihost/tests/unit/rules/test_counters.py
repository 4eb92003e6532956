# SPDX-License-Identifier: Apache-2.0

"""What a compute service has counted and timed of its own work."""

from oslotest import base

from nova_ironic_multihost.rules import counters


class TalliesTestCase(base.BaseTestCase):

    def test_work_that_is_done(self):
        done = counters.RunStats().over(10, 12, True)
        self.assertEqual(counters.RunStats(12, 12, 12, 2), done)
        # One that fails comes to its end, and that is all.
        failed = done.seen(20).over(20, 25, False)
        self.assertEqual(counters.RunStats(25, 25, 12, 2), failed)
        self.assertEqual(30, failed.seen(30).sign)
        self.assertEqual(25, failed.seen(30).ended)
