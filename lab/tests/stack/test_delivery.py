# SPDX-License-Identifier: Apache-2.0

"""Builds that a host has just got when it is killed, with the lab's RabbitMQ.

See lab/delivery.py, whose queues are its own.
"""

import json

from lab.tests.stack import broker


class DeliveryTestCase(broker.BrokerTestCase):

    def trial(self, *arguments):
        done = self.run_trial('lab.delivery', *arguments)
        # A trial that breaks off returns 1, too.
        self.assertTrue(done.returncode in (0, 1) and done.stdout,
                        done.stdout + done.stderr[-10000:])
        return json.loads(done.stdout.splitlines()[-1])

    def assertNoneLost(self, figures):
        """And none is acknowledged never."""
        self.assertEqual((0, 0, 0), (
            figures['lost'], figures['unknown'], figures['waiting']), figures)

    def test_classic_queues(self):
        self.assertNoneLost(self.trial(*broker.SEED))

    def test_quorum_queues(self):
        self.assertNoneLost(self.trial('--quorum', *broker.SEED))

    def test_one_at_a_time(self):
        """What is not acknowledged yet does not stop the rest."""
        self.assertNoneLost(self.trial('--prefetch', '1', *broker.SEED))

    def test_moments_that_are_others_each_time(self):
        self.assertNoneLost(self.trial())

    def test_stock_loses_builds(self):
        """Or nothing is shown here."""
        figures = self.trial('--stock', *broker.SEED)
        self.assertGreater(figures['lost'], 0, figures)
