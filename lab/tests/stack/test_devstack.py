# SPDX-License-Identifier: Apache-2.0

"""The plugin of devstack at work: real nova-computes on the lab's cloud."""

import json

from lab.tests.stack import command
from lab.tests.stack import stacked

#: Those that the plugin enrols.
FAKE_NODES = 3

FAILOVER = command.ROOT / 'tools' / 'failover'
HOST = stacked.HOST


class DevstackTestCase(stacked.StackedTestCase):

    def test_stack_fail_over_unstack_and_clean(self):
        said = self.stack('IRONIC_MULTIHOST_OPTIONS="pulls_per_audit=50"',
                          f'IRONIC_MULTIHOST_FAKE_NODES={FAKE_NODES}')
        self.assertIn('Waiting until each node has exactly one owner', said)
        self.processes('n-cpu', 'n-cpu-2', 'n-cpu-3')
        hosts = [HOST, f'{HOST}-n-cpu-2', f'{HOST}-n-cpu-3']
        self.assertEqual(
            stacked.NODES + FAKE_NODES, sum(self.check(*hosts).values()))
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
            FAILOVER, '--host', hosts[1], '--within', '60', '--still', '8',
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

    def test_computes_explains_itself(self):
        for arguments, status, words in (
                (('--help',), 0, 'Usage: computes'),
                ((), 2, 'Usage: computes'),
                (('--stock', '2'), 2, '--stock 1'),
                (('0',), 2, 'Usage: computes')):
            done = self.machine.run(stacked.COMPUTES, *arguments)
            self.assertEqual(status, done.returncode, arguments)
            self.assertIn(words, done.stdout)
        done = self.machine.run(stacked.COMPUTES, '2', DEVSTACK_DIR='/nowhere')
        self.assertEqual(1, done.returncode)
        self.assertIn('DEVSTACK_DIR', done.stdout)
