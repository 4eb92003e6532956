# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Builds that a host has just got when it is killed, with the lab's RabbitMQ.

See lab/delivery.py, whose queues are its own.
"""

import json
import os
import subprocess

from lab import configuration
from lab import settings as places
from lab.tests.stack import command

#: The first run is the same each time.
SEED = '1'


class DeliveryTestCase(command.LabTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.settings = places.load(*command.place().values())
        up = command.Command('up', '--reset', *command.SMALL)
        assert up.status == 0, up.output + up.errors

    def trial(self, *arguments):
        done = subprocess.run(
            [self.settings.venv / 'bin' / 'python', '-W', 'ignore', '-m',
             'lab.delivery', '--url', configuration.transport(self.settings),
             *arguments],
            cwd=command.ROOT, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=command.DEADLINE, env={
                **os.environ, 'PYTHONPATH': str(command.ROOT),
                'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'})
        self.assertIn(done.returncode, (0, 1),
                      done.stdout + done.stderr[-10000:])
        return json.loads(done.stdout.splitlines()[-1])

    def assertNoneLost(self, figures):
        """And none is acknowledged never."""
        self.assertEqual((0, 0, 0), (
            figures['lost'], figures['unknown'], figures['waiting']), figures)

    def test_classic_queues(self):
        self.assertNoneLost(self.trial('--seed', SEED))

    def test_quorum_queues(self):
        self.assertNoneLost(self.trial('--quorum', '--seed', SEED))

    def test_one_at_a_time(self):
        """What is not acknowledged yet does not stop the rest."""
        self.assertNoneLost(self.trial('--prefetch', '1', '--seed', SEED))

    def test_moments_that_are_others_each_time(self):
        self.assertNoneLost(self.trial())

    def test_stock_loses_builds(self):
        """Or nothing is shown here."""
        figures = self.trial('--stock', '--seed', SEED)
        self.assertGreater(figures['lost'], 0, figures)
