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

"""Three computes share one Ironic, lose one of them and get it back."""

import time

from lab.tests.stack import command

#: Seconds that the lab has to come to rest; far above what it needs.
REST = '180'

NODES = 9


class LifeTestCase(command.LabTestCase):

    def setUp(self):
        super().setUp()
        # What an interrupted run may have left.
        self.lab('down')
        self.addCleanup(self.lab, 'down')

    def computes(self):
        """Return {host: its row of the status}."""
        rows = self.lab('status', '--json').answer['computes']
        return {row['host']: row for row in rows}

    def owned(self):
        """Return {host: number of nodes that it owns}."""
        return {host: row['free'] + row['used']
                for host, row in self.computes().items()}

    def wait_for_state(self, host, state):
        deadline = time.monotonic() + float(REST)
        while self.computes()[host]['state'] != state:
            self.assertLess(time.monotonic(), deadline,
                            f'{host} did not become {state}')
            time.sleep(1)

    def test_lose_a_compute_and_get_it_back(self):
        self.lab('up', '--computes', '3', '--nodes', str(NODES))
        self.lab('check', '--wait', REST)
        owned = self.owned()
        self.assertEqual(3, len(owned))
        self.assertEqual(NODES, sum(owned.values()))

        [server] = self.lab('boot', '--json').answer
        self.assertEqual('ACTIVE', server['status'])
        # The one that loses most, out of those that keep no server from us.
        victim = max((host for host in owned if host != server['host']),
                     key=owned.get)
        self.assertGreater(owned[victim], 0)

        self.lab('compute', 'kill', victim)
        # Until nova notices, all looks well.
        self.wait_for_state(victim, 'down')
        self.lab('check', '--wait', REST)
        owned = self.owned()
        self.assertEqual(0, owned[victim])
        self.assertEqual(NODES, sum(owned.values()))
        [server] = self.lab('boot', '--json').answer
        self.assertEqual('ACTIVE', server['status'])
        self.assertNotEqual(victim, server['host'])

        self.lab('compute', 'start', victim)
        self.lab('check', '--wait', REST)
        self.assertEqual('up', self.computes()[victim]['state'])
        self.assertEqual(NODES, sum(self.owned().values()))
        self.lab('delete', '--all')
        self.lab('check', '--wait', REST)
        self.assertEqual(
            0, sum(row['used'] for row in self.computes().values()))

    def test_commands_that_need_a_lab_say_so(self):
        for arguments in (['boot'], ['delete', '--all'], ['check'],
                          ['status']):
            with self.subTest(arguments):
                self.assertIn('tools/lab up', self.refused(*arguments))

    def test_the_demonstration_of_the_readme(self):
        said = self.lab('demo').output
        self.assertIn('found everything in its place', said)
