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

"""Builds in the queue of a dead host, with the lab's RabbitMQ.

See lab/mailbox.py, whose queues are its own.
"""

import json
import os
import subprocess

from lab import configuration
from lab import settings as places
from lab.tests.stack import command

#: In each run; the first is the same each time.
BUILDS = 200
SEED = '1'


class MailboxTestCase(command.LabTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.settings = places.load(*command.place().values())
        up = command.Command('up', '--reset', *command.SMALL)
        assert up.status == 0, up.output + up.errors

    def trial(self, *arguments):
        done = subprocess.run(
            [self.settings.venv / 'bin' / 'python', '-W', 'ignore', '-m',
             'lab.mailbox', '--url', configuration.transport(self.settings),
             '--builds', str(BUILDS), *arguments],
            cwd=command.ROOT, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=command.DEADLINE, env={
                **os.environ, 'PYTHONPATH': str(command.ROOT),
                'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'})
        self.assertEqual(0, done.returncode,
                         done.stdout + done.stderr[-10000:])
        figures = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((BUILDS, 0, 0), (
            figures['builds'], figures['lost'], figures['unknown']))
        self.assertGreater(figures['handed_on'], BUILDS // 3)

    def test_classic_queues(self):
        self.trial('--seed', SEED)

    def test_quorum_queues(self):
        self.trial('--quorum', '--seed', SEED)

    def test_moments_that_are_others_each_time(self):
        self.trial()
