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

"""A night of an operator: one dies, is fenced, comes back, is drained.

By the commands of the package, as somebody calls them who has credentials and
no database; and what Prometheus says meanwhile.
"""

import json
import os
import subprocess
import time
import urllib.request

from lab import settings
from lab.tests.stack import command

#: Seconds for each thing that is waited for.
PATIENCE = 180

#: What compute services and exporter have in common.
PREFIX = 'nova_ironic_multihost'


class OperatorTestCase(command.LabTestCase):

    def test_a_night(self):
        self.come_up()
        server = self.lab('boot', '--json').answer[0]
        dead, node = server['host'], server['node']
        self.assertEqual({'up'}, self.each('State'))
        self.assertEqual({'enabled'}, self.each('Status'))
        self.assertEqual(9, sum(row['Nodes'] for row in self.rows()))
        self.assertEqual(0, self.ask('check')[0])
        self.assertEqual([], self.listed('leaks'))
        shown = self.shown('node', 'show', node)
        self.assertEqual((dead, server['id']),
                         (shown['owner'], shown['server']))
        self.scrape()

        # It dies: its free nodes go, its server waits for a word.
        moving = self.listed('plan', '--remove', dead)
        self.lab('compute', 'kill', dead)
        self.until(lambda: self.row(dead)['State'] == 'down'
                   and self.row(dead)['Free'] == 0)
        self.assertTrue(moving)
        self.assertEqual(1, self.row(dead)['Used'])
        status, said, _ = self.ask('check', '-f', 'json')
        self.assertEqual(1, status)
        self.assertIn('instance-on-dead-host',
                      {found['Kind'] for found in json.loads(said)})
        self.until(lambda: 'IronicMultihostComputeDown' in self.alerts())

        # It is fenced: others have its server.
        self.assertEqual(0, self.ask('fence', dead, '--dry-run')[0])
        self.assertEqual('down', self.row(dead)['State'])
        status, said, errors = self.ask(
            'fence', dead, '--wait', str(PATIENCE))
        self.assertEqual(0, status, said + errors)
        self.assertEqual(('fenced', 'disabled', 0), tuple(
            self.row(dead)[name] for name in ('State', 'Status', 'Nodes')))
        heir = self.shown('node', 'show', node)['owner']
        self.assertNotEqual(dead, heir)

        # It comes back, and another one is emptied.
        self.lab('compute', 'start', dead)
        status, said, errors = self.ask(
            'unfence', dead, '--wait', str(PATIENCE))
        self.assertEqual(0, status, said + errors)
        self.until(lambda: self.row(dead)['Free'] > 0)
        self.assertEqual('enabled', self.row(dead)['Status'])
        status, said, errors = self.ask('drain', heir, '--wait',
                                        str(PATIENCE))
        self.assertEqual(0, status, said + errors)
        self.assertEqual(('disabled', 0, 1), tuple(
            self.row(heir)[name] for name in ('Status', 'Free', 'Used')))
        self.assertEqual(0, self.ask('undrain', heir)[0])
        self.until(lambda: self.ask('check')[0] == 0)

    def come_up(self):
        """Have a lab whose first compute service shows itself."""
        self.port = (int(command.place()['LAB_BASE_PORT'])
                     + len(settings.PORT_NAMES))
        self.lab('down')
        self.lab('up', *command.SMALL, '--set',
                 f'ironic_multihost.metrics_port={self.port}')
        self.lab('check', '--wait', str(PATIENCE))
        self.assertNotIn('IronicMultihostComputeDown', self.alerts())

    def ask(self, *arguments):
        """Call the command; returns its status and what it printed."""
        lab = settings.load(command.place()['LAB_DIR'])
        done = subprocess.run(
            [lab.program('nova-ironic-multihost'), '--os-cloud', 'lab-admin',
             '--os-baremetal-cloud', 'lab-system-admin', *arguments],
            env={**os.environ, 'OS_CLIENT_CONFIG_FILE': str(lab.clouds),
                 'no_proxy': settings.HOST}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=command.DEADLINE)
        self.assertNotIn('Traceback', done.stderr)
        return done.returncode, done.stdout, done.stderr

    def listed(self, *arguments):
        """What a command that lists prints as JSON."""
        status, said, errors = self.ask(*arguments, '-f', 'json')
        self.assertEqual(0, status, errors)
        return json.loads(said)

    shown = listed

    def rows(self):
        """The compute services."""
        return self.listed('list')

    def row(self, host):
        """One of them."""
        [found] = [row for row in self.rows() if row['Host'] == host]
        return found

    def each(self, column):
        """The values in a column."""
        return {row[column] for row in self.rows()}

    def until(self, so):
        """Look until something is so."""
        end = time.monotonic() + PATIENCE
        while not so():
            self.assertLess(time.monotonic(), end, self.rows())
            time.sleep(1)

    def alerts(self):
        """Names of the alerts that Prometheus has."""
        return {alert['labels']['alertname'] for alert
                in self.lab('monitor', '--json').answer['alerts']}

    def scrape(self):
        """See that a compute service says how it is, and that it is well."""
        self.until(lambda: f'\n{PREFIX}_members 3.0\n'
                   in self.get('/metrics'))
        self.assertIn(f'\n{PREFIX}_brake_engaged 0.0\n',
                      self.get('/metrics'))
        self.assertIn('well', self.get('/healthz'))

    def get(self, path):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f'http://{settings.HOST}:{self.port}{path}',
                         timeout=30) as answer:
            return answer.read().decode()
