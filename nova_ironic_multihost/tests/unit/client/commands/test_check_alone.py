# SPDX-License-Identifier: Apache-2.0

import contextlib
import datetime
import functools
import io
import json

import fixtures
from oslotest import base

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import check_alone
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.rules import stop_marker
from nova_ironic_multihost.tests import views


class CheckTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.good = views.consistent()
        self.broken = views.without(self.good, 'records', 1)
        self.now = views.NOW
        self.connect = self.useFixture(fixtures.MockPatchObject(
            cloud_client, 'connect')).mock
        self.read = self.connect.return_value.read
        self.useFixture(fixtures.MockPatchObject(
            findings, 'wait', functools.partial(
                findings.wait, clock=lambda: self.now, sleep=self.sleep)))

    def sleep(self, seconds):
        self.now += seconds

    def check(self, *argv):
        """Run the command: (status, standard output, standard error)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = check_alone.main(argv)
        return status, out.getvalue(), err.getvalue()

    def test_consistent(self):
        self.read.return_value = self.good
        self.assertEqual(
            (0, '6 nodes, 3 compute services up: each node has exactly one '
             'owner\n', ''), self.check())

    def test_one_node_and_one_compute(self):
        self.read.return_value = cloud_state.CloudState(
            services=(cloud_state.Service('one'),),
            records=(cloud_state.CloudRecord('n', 'one'),),
            nodes=(cloud_state.Node('n'),),
            providers=(cloud_state.Provider('n'),))
        self.assertIn('1 node, 1 compute service up: ', self.check()[1])

    def test_a_line_for_each_finding_and_a_summary(self):
        self.read.return_value = views.changed(
            self.broken, 'providers', 2, uuid='other')
        status, out, err = self.check()
        self.assertEqual((1, ''), (status, err))
        *told, summary = out.splitlines()
        self.assertEqual(
            ['node-without-record', 'node-without-provider',
             'provider-without-node'],
            [line.partition(':')[0] for line in told])
        self.assertEqual('6 nodes, 3 compute services up: 3 findings',
                         summary)

    def test_json(self):
        self.read.return_value = self.broken
        status, out, _ = self.check('--json')
        self.assertEqual(1, status)
        told = json.loads(out)
        self.assertEqual(
            (False, 6, {'compute-1': 2, 'compute-2': 1, 'compute-3': 2}),
            (told['consistent'], told['nodes'], told['owners']))
        [finding] = told['findings']
        self.assertEqual(('node-without-record', 'node-1'),
                         (finding['kind'], finding['subject']))
        self.assertIn('node-1', finding['sentence'])

    def test_json_of_a_cloud_in_order(self):
        self.read.return_value = self.good
        status, out, _ = self.check('--json')
        self.assertEqual((0, True, []), (
            status, json.loads(out)['consistent'],
            json.loads(out)['findings']))

    def test_what_is_no_inconsistency_is_noted(self):
        words = stop_marker.text(datetime.datetime.fromtimestamp(
            views.NOW - 3600, datetime.UTC))
        self.read.return_value = views.changed(
            self.good, 'services', 1, stop_marker=words, disabled=True)
        status, out, _ = self.check()
        self.assertEqual(0, status)
        self.assertIn('note: still-stopping: compute-2 is up', out)
        told = json.loads(self.check('--json')[1])
        self.assertEqual((True, ['compute-2']), (
            told['consistent'], [note['subject'] for note in told['notes']]))

    def test_looks_once(self):
        self.read.side_effect = [self.broken, self.good]
        self.assertEqual(1, self.check()[0])

    def test_looks_until_consistent(self):
        self.read.side_effect = [self.broken, self.broken, self.good]
        self.assertEqual(0, self.check('--wait', '60')[0])

    def test_waits_for_a_cloud_that_does_not_answer(self):
        away = cloud_client.Unanswered('Look into its log.')
        self.read.side_effect = [away, self.broken, away, self.good]
        self.assertEqual(0, self.check('--wait', '60')[0])
        self.read.side_effect = away
        status, _, err = self.check('--wait', '60')
        self.assertEqual(2, status)
        self.assertIn('Look into its log.', err)
        # Wrong credentials do not pass.
        self.read.side_effect = [
            cloud_client.SurveyError('Do this.'),
            self.good,
        ]
        self.assertEqual(2, self.check('--wait', '60')[0])

    def test_gives_up_waiting(self):
        self.read.return_value = self.broken
        self.assertEqual(1, self.check('--wait', '60')[0])
        self.assertEqual(views.NOW + 60, self.now)

    def test_computes_that_must_be_up(self):
        self.read.return_value = self.good
        self.assertEqual(0, self.check('--host', 'compute-1',
                                       '--host', 'compute-2')[0])
        status, out, _ = self.check('--host', 'compute-1', '--host', 'nix')
        self.assertEqual(1, status)
        self.assertIn('compute-missing: ', out)

    def test_allocations_on_demand(self):
        self.read.return_value = self.good
        self.check()
        self.read.assert_called_once_with(False)
        self.check('--allocations')
        self.read.assert_called_with(True)

    def test_whose_credentials(self):
        self.read.return_value = self.good
        self.check()
        self.connect.assert_called_with(None, None)
        self.check('--os-cloud', 'one', '--os-baremetal-cloud', 'two')
        self.connect.assert_called_with('one', 'two')

    def test_cloud_that_cannot_be_asked(self):
        for broken in self.connect, self.read:
            broken.side_effect = cloud_client.SurveyError('Do this.')
            for argv in ((), ('--json',)):
                self.assertEqual(
                    (2, '', 'nova-ironic-multihost-check: Do this.\n'),
                    self.check(*argv))
            broken.side_effect = None

    def test_interrupted(self):
        self.read.side_effect = KeyboardInterrupt
        status, out, err = self.check('--wait', '60')
        self.assertEqual((2, ''), (status, out))
        self.assertIn('interrupted', err)

    def test_help_teaches(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertRaises(SystemExit, check_alone.main, ['--help'])
        for words in ('exactly one record', '--os-baremetal-cloud',
                      'exit status: 0 consistent', 'examples:'):
            self.assertIn(words, out.getvalue())
