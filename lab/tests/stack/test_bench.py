# SPDX-License-Identifier: Apache-2.0

"""tools/bench in short: each of its commands measures and prints its JSON."""

import json
import os
import pathlib
import subprocess
import sys

from lab.tests.stack import command


class BenchTestCase(command.LabTestCase):

    def setUp(self):
        super().setUp()
        # Its lab takes the place of that of the test before.
        self.lab('down')
        self.addCleanup(self.lab, 'down')
        self.place = command.place()

    def bench(self, *arguments, late=0):
        """Call it; returns the last line of what it printed.

        :param late: exit status if something has taken too long.
        """
        process = subprocess.run(
            [sys.executable, str(command.ROOT / 'tools' / 'bench'),
             '--dir', self.place['LAB_DIR'],
             '--base-port', self.place['LAB_BASE_PORT'], *arguments],
            env={**os.environ, **self.place}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=command.DEADLINE)
        if process.returncode:
            self.keep_logs()
        self.assertIn(process.returncode, (0, late),
                      f'{arguments}: {process.stdout}{process.stderr}')
        return process.stdout.splitlines()[-1]

    def test_changes_and_listing(self):
        found = json.loads(self.bench(
            '--keep', 'changes', '--nodes', '10', '--hosts', '2',
            '--changes', '30', '--rate', '10', '--pause', '1', late=1))
        self.assertEqual(30, found['owner']['changes'])
        self.assertEqual((0, 0, 0), (
            found['owner']['lost'], found['others']['lost'],
            found['differences']))
        listing = self.bench(
            '--keep', 'listing', '--nodes', '60', '--hosts', '2')
        for driver in ('stock', 'ours'):
            its = json.loads(listing)[driver]['first']['result']
            self.assertTrue(0 < its['nodes'] < 60, its)
        found = json.loads(self.bench(
            '--keep', 'peer-poll', '--nodes', '60', '--hosts', '2'))
        self.assertEqual(1, found['rest']['conductor'])
        self.assertGreater(found['death']['given'], 0)
        asked = json.loads(self.bench(
            'idle', '--nodes', '60', '--hosts', '1'))['asked']
        self.assertNotIn('InstanceList.get_by_host_and_node',
                         asked['conductor'])
        # All records are read by every tenth audit.
        self.assertEqual(
            1, asked['conductor']['ComputeNodeList.get_all_by_host'][0])
        self.plot(listing)

    def test_decide(self):
        found = json.loads(self.bench('decide', '--nodes', '60'))
        self.assertEqual(60, found['ours']['first']['decided'])

    def test_one_with_the_tracker(self):
        found = json.loads(self.bench('--keep', 'audit', '--nodes', '20'))
        for driver in ('stock', 'ours'):
            its = found[driver]
            # Or what was filled in is not what nova's driver leaves.
            self.assertEqual([0, 0, 0], [
                its[case]['writes'] for case in ('first', 'steady',
                                                 'refresh')], driver)
            self.assertEqual(2, its['changed 2']['recorded'])
        self.assertEqual({20}, {
            its['audited'] for its in found['stock'].values()})
        found = json.loads(self.bench(
            '--keep', 'claim', '--nodes', '10', '--claims', '5'))
        for driver in ('stock', 'ours'):
            self.assertEqual({5}, {
                its['claims'] for its in found[driver].values()})
        found = json.loads(self.bench('--keep', 'disable', '--nodes', '10'))
        for driver in ('stock', 'ours'):
            for its in found[driver].values():
                self.assertEqual(0, its['left'])
        found = json.loads(self.bench('--keep', 'tasks', '--nodes', '20'))
        for driver in ('stock', 'ours'):
            self.assertIn('_sync_power_states', found[driver])
        found = json.loads(self.bench('start', '--nodes', '20'))
        for driver in ('stock', 'ours'):
            its = found[driver]
            self.assertTrue(0 < its['accepted'] < its['active'], its)

    def test_several_with_the_tracker(self):
        found = json.loads(self.bench('--keep', 'failover', '--nodes', '10'))
        for driver in ('stock', 'ours'):
            self.assertGreater(found[driver]['free'], 0)
            self.assertEqual(0, found[driver]['left'])
        found = json.loads(self.bench('--keep', 'join', '--nodes', '20'))
        for driver in ('stock', 'ours'):
            self.assertGreater(found[driver]['moved'], 0)
        its = json.loads(self.bench('takeover', '--nodes', '10'))['ours']
        self.assertEqual((10, 0, 0), (
            its['servers'], its['left'], its['unknown']))

    def plot(self, listing):
        """Have one run drawn."""
        folder = pathlib.Path(self.place['LAB_DIR'])
        run, picture = folder / 'run.json', folder / 'bench' / 'plot.png'
        run.write_text(listing)
        self.bench('plot', str(run), '--output', str(picture))
        self.assertEqual(b'\x89PNG', picture.read_bytes()[:4])
