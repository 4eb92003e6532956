# SPDX-License-Identifier: Apache-2.0

"""From nova's own driver to ours and back, by the plugin of devstack."""

import datetime
import time

from lab.tests.stack import stacked

HOST = stacked.HOST
REST = stacked.REST

ONLY_IRONIC = 'enable_plugin ironic https://opendev.org/openstack/ironic'


class UpgradeTestCase(stacked.StackedTestCase):

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
