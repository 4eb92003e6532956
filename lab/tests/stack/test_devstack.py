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

"""The plugin of devstack at work: real nova-computes on the lab's cloud.

With devstack's own functions where DEVSTACK_DIR names a checkout, and says so;
elsewhere with functions that do what devstack documents.
"""

import datetime
import json
import os
import platform
import shutil
import sys
import time

from lab import settings
from lab.tests.stack import command
from nova_ironic_multihost.tests.devstack import sandbox

NODES = command.FEW_NODES

#: Those that the plugin enrols.
FAKE_NODES = 3

COMPUTES = command.ROOT / 'devstack' / 'tools' / 'computes'
FAILOVER = command.ROOT / 'tools' / 'failover'
HOST = platform.node()

ONLY_IRONIC = 'enable_plugin ironic https://opendev.org/openstack/ironic'

#: Seconds that everything has to come to rest; far above what it needs.
REST = 240


class DevstackTestCase(command.LabTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ.update(command.place())
        checkout = sandbox.checkout()
        print('the plugin runs with', f'devstack in {checkout}' if checkout
              else 'what devstack documents: DEVSTACK_DIR names no checkout',
              file=sys.stderr)
        up = command.Command(
            'up', '--cold', '--reset', '--nodes', str(NODES))
        if up.status:
            raise RuntimeError(up.errors)
        lab = settings.load()
        # In there, for paths that stay the same.
        top = lab.directory / 'devstack'
        shutil.rmtree(top, ignore_errors=True)
        cls.machine = sandbox.Stackable(
            top, lab, checkout or sandbox.CONTRACT)
        cls.addClassCleanup(cls.machine.devstack, 'clean')

    def setUp(self):
        super().setUp()
        # It starts in its turn, after nova-compute.
        self.lab('service', 'stop', 'ironic')

    def stack(self, *lines, **plugins):
        self.machine.configure(f'SANDBOX_NODES={NODES}', *lines, **plugins)
        return self.done(self.machine.devstack('stack'))

    def done(self, process):
        """Fail unless a program of the machine has ended well."""
        self.assertEqual(0, process.returncode, process.stdout[-10000:])
        return process.stdout

    def computes(self, *arguments):
        """Restart nova-compute, other than by stacking."""
        self.done(self.machine.run(
            COMPUTES, *arguments,
            DEVSTACK_DIR=str(self.machine.top / 'devstack')))

    def check(self, *hosts):
        """Return {host: number of nodes}, each node owned by one."""
        arguments = [word for host in hosts for word in ('--host', host)]
        done = self.machine.run(
            'nova-ironic-multihost-check', '--os-cloud', 'devstack-admin',
            '--os-baremetal-cloud', 'devstack-system-admin',
            '--allocations', '--wait', REST, '--json', *arguments)
        return json.loads(self.done(done).splitlines()[-1])['owners']

    def processes(self, *names):
        self.assertEqual(sorted(names), self.machine.units())

    def driver_of(self, file):
        return self.machine.option(file, 'DEFAULT', 'compute_driver')

    def nothing_is_left(self):
        self.assertEqual([], self.machine.units())
        self.assertEqual(
            [], list(self.machine.etc.glob('nova-cpu-[0-9]*')))
        units = self.machine.top.glob('home/.local/share/systemd/user/*')
        self.assertEqual([], [unit.name for unit in units
                              if 'n-cpu-' in unit.name])
        self.assertFalse((self.machine.top / 'data' / 'nova').exists())

    def test_stack_fail_over_unstack_and_clean(self):
        said = self.stack('IRONIC_MULTIHOST_OPTIONS="pulls_per_audit=50"',
                          f'IRONIC_MULTIHOST_FAKE_NODES={FAKE_NODES}')
        self.assertIn('Waiting until each node has exactly one owner', said)
        self.processes('n-cpu', 'n-cpu-2', 'n-cpu-3')
        hosts = [HOST, f'{HOST}-n-cpu-2', f'{HOST}-n-cpu-3']
        self.assertEqual(
            NODES + FAKE_NODES, sum(self.check(*hosts).values()))
        places = set()
        for number in ('2', '3'):
            file = f'nova-cpu-{number}.conf'
            self.assertEqual(
                f'{HOST}-n-cpu-{number}',
                self.machine.option(file, 'DEFAULT', 'host'))
            places.add(self.machine.option(file, 'DEFAULT', 'state_path'))
            places.add(self.machine.option(
                file, 'oslo_concurrency', 'lock_path'))
        self.assertEqual(2, len(places))
        self.assertEqual('50', self.machine.option(
            'nova-cpu.conf', 'ironic_multihost', 'pulls_per_audit'))

        done = self.done(self.machine.run(
            FAILOVER, '--host', hosts[1], '--within', '60', '--still', '25',
            '--os-cloud', 'devstack-admin',
            '--os-baremetal-cloud', 'devstack-system-admin', '--json',
            '--stop', 'systemctl --user stop devstack@n-cpu-2.service',
            '--start', 'systemctl --user start devstack@n-cpu-2.service'))
        self.assertTrue(json.loads(done.splitlines()[-1])['passed'])

        # Also when local.conf names fewer of them by then.
        self.machine.configure('IRONIC_MULTIHOST_COMPUTES=1')
        self.done(self.machine.devstack('unstack'))
        self.nothing_is_left()
        self.done(self.machine.devstack('clean'))
        self.nothing_is_left()
        self.assertFalse(self.machine.etc.exists())

    def test_upgrade_and_back(self):
        # One compute of nova's own, in which nothing of ours is installed.
        self.stack(plugins=ONLY_IRONIC)
        self.processes('n-cpu')
        self.assertEqual(
            'ironic.IronicDriver', self.driver_of('nova-cpu.conf'))
        self.wait_for_heartbeat()
        # From the computes of another test, if there were any.
        self.wait_for_all_on_one()
        [server] = self.lab('boot', '--json').answer
        self.assertEqual('ACTIVE', server['status'])

        self.computes('1')
        self.assertEqual('ironic_multihost.IronicMultiHostDriver',
                         self.driver_of('nova-cpu.conf'))
        self.assertEqual([HOST], list(self.check(HOST)))
        self.computes('3')
        self.processes('n-cpu', 'n-cpu-2', 'n-cpu-3')
        self.check(HOST, f'{HOST}-n-cpu-2', f'{HOST}-n-cpu-3')
        self.lab('boot', '--count', '3')
        self.lab('delete', '--all')

        self.computes('1')
        self.processes('n-cpu')
        self.wait_for_all_on_one()
        self.computes('--stock', '1')
        self.assertEqual([HOST], list(self.check(HOST)))
        [server] = self.lab('boot', '--json').answer
        self.assertEqual('ACTIVE', server['status'])
        self.lab('delete', '--all')
        self.done(self.machine.devstack('unstack'))
        self.nothing_is_left()

    def wait_for_heartbeat(self):
        """Return when the nova-compute of the last start is up.

        Until then nova's own driver sets builds to ERROR, and nodes that
        were its own before do not tell.
        """
        now = f'{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%S}'
        deadline = time.monotonic() + REST
        while True:
            seen = self.done(self.machine.run(
                'openstack', '--os-cloud', 'devstack-admin', 'compute',
                'service', 'list', '--service', 'nova-compute', '--host',
                HOST, '-f', 'value', '-c', 'Updated At')).split()[-1]
            if seen[0] == '2' and seen > now:
                return
            self.assertLess(time.monotonic(), deadline, seen)
            time.sleep(1)

    def wait_for_all_on_one(self):
        deadline = time.monotonic() + REST
        while True:
            rows = self.lab('status', '--json').answer['computes']
            owners = {row['host'] for row in rows if row['free']}
            if owners == {HOST}:
                return
            self.assertLess(time.monotonic(), deadline, owners)
            time.sleep(1)

    def test_computes_explains_itself(self):
        for arguments, status, words in (
                (('--help',), 0, 'Usage: computes'),
                ((), 2, 'Usage: computes'),
                (('--stock', '2'), 2, '--stock 1'),
                (('0',), 2, 'Usage: computes')):
            done = self.machine.run(COMPUTES, *arguments)
            self.assertEqual(status, done.returncode, arguments)
            self.assertIn(words, done.stdout)
        done = self.machine.run(COMPUTES, '2', DEVSTACK_DIR='/nowhere')
        self.assertEqual(1, done.returncode)
        self.assertIn('DEVSTACK_DIR', done.stdout)
