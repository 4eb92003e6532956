# SPDX-License-Identifier: Apache-2.0

"""nova-ironic-multihost check and tools/failover, on a real cloud."""

import json
import os
import subprocess
import sys
import time

from lab import settings as places
from lab.tests.stack import command

#: Seconds that the lab has to settle; far above what it needs.
REST = '180'

NODES = command.FEW_NODES

#: Seconds that nodes have to stay where they are: longer than an audit.
STILL = '8'

CLOUDS = ('--os-cloud', 'lab-admin',
          '--os-baremetal-cloud', 'lab-system-admin')


class ApiTestCase(command.LabTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.settings = places.load(*command.place().values())
        up = command.Command('up', '--reset', *command.SMALL)
        assert up.status == 0, up.output + up.errors

    def setUp(self):
        super().setUp()
        self.lab('check', '--wait', REST)

    def call(self, *arguments):
        """Run a program of the lab's venv in the lab's cloud."""
        return subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=command.DEADLINE,
            env={**os.environ, **command.place(),
                 'OS_CLIENT_CONFIG_FILE': str(self.settings.clouds),
                 'NO_PROXY': places.HOST, 'no_proxy': places.HOST})

    def ask(self, status, *arguments, clouds=CLOUDS):
        """Call the check, which must end with a status; its process."""
        done = self.call(self.settings.program('nova-ironic-multihost'),
                         *clouds, 'check', *arguments)
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        self.assertNotIn('Traceback', done.stderr)
        return done

    def found(self, *arguments):
        """{kind of finding: number} of a check that finds something."""
        kinds = {}
        for row in json.loads(self.ask(1, '-f', 'json', *arguments).stdout):
            kinds[row['Kind']] = kinds.get(row['Kind'], 0) + 1
        return kinds

    def owners(self):
        done = self.call(self.settings.program('nova-ironic-multihost'),
                         *CLOUDS, 'list', '-f', 'json')
        return {row['Host']: row['Nodes'] for row in json.loads(done.stdout)}

    def busiest(self):
        owners = self.owners()
        return max(owners, key=owners.get)

    def kill(self, *hosts):
        """Kill computes and return once nova calls them down."""
        for host in hosts:
            self.lab('compute', 'kill', host)
        deadline = time.monotonic() + float(REST)
        while any(row['state'] != 'down' for row
                  in self.lab('status', '--json').answer['computes']
                  if row['host'] in hosts):
            self.assertLess(time.monotonic(), deadline, 'is not down')
            time.sleep(1)


class CheckTestCase(ApiTestCase):

    def test_a_compute_is_lost(self):
        self.assertIn(
            f'{NODES} nodes, 3 compute services up: each node has exactly '
            'one owner', self.ask(0).stderr)
        self.assertEqual(NODES, sum(self.owners().values()))
        [server] = self.lab('boot', '--json').answer
        self.assertEqual('ACTIVE', server['status'])
        self.addCleanup(self.lab, 'delete', '--all')
        self.assertIn('one owner', self.ask(0, '--allocations').stderr)
        free = self.busiest()
        if free == server['host']:
            free = next(host for host in self.owners()
                        if host != server['host'])

        # Its nodes have no server, and go to others.
        self.kill(free)
        self.assertIn('compute-not-up', self.found('--host', free))
        self.ask(0, '--wait', REST)
        self.assertEqual(0, self.owners()[free])
        self.assertEqual(NODES, sum(self.owners().values()))
        [another] = self.lab('boot', '--json').answer
        self.assertEqual('ACTIVE', another['status'])
        self.assertNotEqual(free, another['host'])
        self.lab('delete', another['name'])

        # A node with a server stays, and that is found.
        self.kill(server['host'])
        deadline = time.monotonic() + float(REST)
        while self.found() != {'instance-on-dead-host': 1}:
            self.assertLess(time.monotonic(), deadline,
                            'more is wrong than that')
            time.sleep(1)
        for host in free, server['host']:
            self.lab('compute', 'start', host)
        self.ask(0, '--host', free, '--host', server['host'], '--wait', REST)
        self.lab('delete', '--all')
        self.lab('check', '--wait', REST)
        rows = self.lab('status', '--json').answer['computes']
        self.assertEqual({'up'}, {row['state'] for row in rows})
        self.assertEqual((NODES, 0), (sum(row['free'] for row in rows),
                                      sum(row['used'] for row in rows)))

    def test_what_cannot_be_asked(self):
        for clouds, words in (
                (('--os-cloud', 'lab-admin'), '--os-baremetal-cloud'),
                (('--os-cloud', 'lab-system-admin'), 'admin in a project'),
                (('--os-cloud', 'nix'), 'clouds.yaml'),
                ((), 'credentials')):
            with self.subTest(clouds):
                done = self.ask(2, clouds=clouds)
                self.assertEqual('', done.stdout)
                self.assertIn(words, done.stderr)


class FailoverTestCase(ApiTestCase):

    def failover(self, host, within):
        """(exit status, what it tells) of tools/failover."""
        lab = f'{sys.executable} {command.ROOT / "tools" / "lab"} compute'
        done = self.call(
            self.settings.program('python'),
            str(command.ROOT / 'tools' / 'failover'), '--host', host,
            '--stop', f'{lab} kill {host}', '--start', f'{lab} start {host}',
            '--within', within, '--still', STILL, '--json', *CLOUDS)
        self.assertNotIn('Traceback', done.stderr)
        return done.returncode, json.loads(done.stdout)

    def come_to_rest(self):
        """Return when each node is where the ring wants it.

        The moves that a compute has caused which another test started count
        otherwise.
        """
        deadline = time.monotonic() + float(REST)
        while explained := self.lab(
                'status', '--json').answer['explained']:
            self.assertLess(time.monotonic(), deadline, explained)
            time.sleep(1)

    def test_passed(self):
        self.come_to_rest()
        [server] = self.lab('boot', '--json').answer
        self.addCleanup(self.lab, 'delete', '--all')
        status, told = self.failover(server['host'], REST)
        self.assertEqual((0, True, []),
                         (status, told['passed'], told['findings']))
        self.assertEqual(1, told['used'])
        self.assertEqual(told['free'], told['moves'])
        self.assertLess(0, told['up_again'])
        # It was killed, so nova could not know at once.
        self.assertLess(1, told['taken_over'])

    def test_too_late(self):
        host = self.busiest()
        status, told = self.failover(host, '1')
        self.assertEqual((1, 'stopped', None),
                         (status, told['failed'], told['taken_over']))
        self.assertEqual(['compute-still-up'],
                         [finding['kind'] for finding in told['findings']])
        self.ask(0, '--host', host, '--wait', REST)
