# SPDX-License-Identifier: Apache-2.0

"""Builds in the queue of a dead host, with the lab's RabbitMQ.

See lab/forwarding.py, whose queues are its own.
"""

import json

from lab.tests.stack import broker

#: In each run.
BUILDS = 200


class ForwardingTestCase(broker.BrokerTestCase):

    def trial(self, *arguments):
        done = self.run_trial(
            'lab.forwarding', '--builds', str(BUILDS), *arguments)
        self.assertEqual(0, done.returncode,
                         done.stdout + done.stderr[-10000:])
        figures = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((BUILDS, 0, 0), (
            figures['builds'], figures['lost'], figures['unknown']))
        self.assertGreater(figures['handed_on'], BUILDS // 2)

    def test_classic_queues(self):
        self.trial(*broker.SEED)

    def test_quorum_queues(self):
        self.trial('--quorum', *broker.SEED)

    def test_moments_that_are_others_each_time(self):
        self.trial()
