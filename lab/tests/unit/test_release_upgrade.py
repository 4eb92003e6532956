# SPDX-License-Identifier: Apache-2.0

"""What release-upgrade counts and must come to."""

import argparse
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from lab import errors
from lab.experiments import release_upgrade
from lab import runner
from lab import settings
from lab import workload
from nova_ironic_multihost.tests import views

GOOD = {'error': 0, 'no_valid_host': 0, 'stuck': 0, 'not_deleted': 0,
        'moves': 0, 'not_updated': [], 'unmarked': 0, 'leaked': 0,
        'quiet': True, 'to': '2026.2'}


class FailuresTestCase(base.BaseTestCase):

    def failures(self, **changes):
        return release_upgrade.failures({**GOOD, **changes})

    def test_good(self):
        self.assertEqual([], self.failures())

    def test_each_bad_figure_has_its_sentence(self):
        for figure in GOOD.keys() - {'to'}:
            bad = {'quiet': False, 'not_updated': ['compute-1']}.get(figure, 2)
            self.assertEqual(1, len(self.failures(**{figure: bad})), figure)

    def test_novas_before_34_do_not_want_the_trait(self):
        self.assertEqual([], self.failures(to='2026.1', unmarked=30))


class PairTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('LAB_DIR', 'LAB_VENV', 'LAB_BASE_PORT'):
            self.useFixture(fixtures.EnvironmentVariable(name))
        self.installed = self.useFixture(fixtures.MockPatch(
            'lab.install.Install')).mock

    def install(self, *options):
        """What a command line installs: the releases (lab, computes)."""
        parser = argparse.ArgumentParser()
        runner.register(parser.add_subparsers())
        args = parser.parse_args(['run', 'release-upgrade', *options])
        found = settings.load(self.directory, release=args.release)
        release_upgrade.install(args, found, mock.sentinel.progress)
        older, _ = self.installed.call_args.args
        return found.release, older.release

    def test_the_release_before_is_the_default(self):
        self.assertEqual(('2026.2', '2026.1'), self.install())
        self.assertEqual(('2025.2', '2025.1'),
                         self.install('--to', '2025.2'))

    def test_from_one_slurp_release_to_the_next(self):
        self.assertEqual(
            ('2026.1', '2025.1'),
            self.install('--from', '2025.1', '--to', '2026.1'))

    def test_computes_that_nova_refuses(self):
        for older, newer in (('2025.1', '2026.2'), ('2025.2', '2026.2'),
                             ('2026.2', '2026.1'), ('2026.1', '2026.1')):
            error = self.assertRaises(errors.LabError, self.install,
                                      '--from', older, '--to', newer)
            self.assertIn('--from', str(error))
        self.assertFalse(self.installed.called)


class OrderTestCase(base.BaseTestCase):

    def test_most_nodes_come_last(self):
        # Of six nodes two each.
        seen = views.changed(
            views.consistent(), 'records', 1, host='compute-1')
        self.assertEqual(
            ['compute-2', 'compute-3', 'compute-1'],
            release_upgrade.order(seen, ['compute-1', *views.HOSTS[1:]]))


class CountTestCase(base.BaseTestCase):

    def test_servers_that_found_no_valid_host(self):
        def life(settled, fault, outcome='ERROR'):
            return workload.Life('s', 0.0, settled, outcome, fault=fault)

        lives = [life(10.0, 'No valid host was found. '),
                 life(20.0, 'Build of instance aborted'),
                 life(20.0, '', 'ACTIVE'),
                 life(30.0, 'No valid host was found. '),
                 life(40.0, 'No valid host was found. ')]
        self.assertEqual(3, release_upgrade.no_valid_host(lives))
        self.assertEqual(2, release_upgrade.no_valid_host(lives, 10.0))

    def test_most_nodes_without_the_trait_in_any_look(self):
        none = some = views.consistent()
        for index in range(4):
            some = views.changed(
                some, 'providers', index,
                traits=frozenset({'CUSTOM_GOLD', 'OWNER_NOVA'}))
        marks = release_upgrade.Marks()
        marks.see(none)
        marks.see(some)
        self.assertEqual(6, marks.most)
        marks.begin()
        marks.see(some)
        self.assertEqual(2, marks.most)
