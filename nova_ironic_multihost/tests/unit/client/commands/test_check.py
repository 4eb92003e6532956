# SPDX-License-Identifier: Apache-2.0

"""The check, again and again if it is to wait."""

import datetime
import functools
from unittest import mock

import fixtures

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base as commands
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.tests.unit.client.commands import base
from nova_ironic_multihost.tests import views


class CheckTestCase(base.ShellTestCase):

    def setUp(self):
        super().setUp()
        self.good = views.consistent()
        self.broken = views.without(self.good, 'records', 1)
        self.now = views.NOW
        self.read = mock.Mock(return_value=self.good)
        self.useFixture(fixtures.MockPatchObject(
            commands.CloudCommand, 'cloud', mock.Mock(read=self.read)))
        self.useFixture(fixtures.MockPatchObject(
            findings, 'wait', functools.partial(
                findings.wait, clock=lambda: self.now, sleep=self.sleep)))

    def sleep(self, seconds):
        self.now += seconds

    def check(self, *argv):
        """Run the command: (status, standard output, standard error)."""
        return self.shell('check', '-f', 'value', *argv)

    def test_consistent(self):
        self.assertEqual(
            (0, '', 'nova-ironic-multihost: 6 nodes, 3 compute services up: '
             'each node has exactly one owner\n'), self.check())

    def test_one_node_and_one_compute(self):
        self.read.return_value = cloud_state.CloudState(
            services=(cloud_state.Service('one'),),
            records=(model.Record('n', 'one'),),
            nodes=(cloud_state.Node('n'),),
            providers=(cloud_state.Provider('n'),))
        self.assertIn('1 node, 1 compute service up: ', self.check()[2])

    def test_a_line_for_each_finding_and_a_summary(self):
        self.read.return_value = views.changed(
            self.broken, 'providers', 2, uuid='other')
        status, out, err = self.check('-c', 'Kind')
        self.assertEqual(1, status)
        self.assertEqual(
            ['node-without-record', 'node-without-provider',
             'provider-without-node'], out.split())
        self.assertIn('6 nodes, 3 compute services up: 3 findings', err)

    def test_compute_that_does_not_end(self):
        words = liveness.stop_marker_text(datetime.datetime.fromtimestamp(
            views.NOW - 3600, datetime.UTC))
        self.read.return_value = views.changed(
            self.good, 'services', 1, stop_marker=words, disabled=True)
        status, out, _ = self.check()
        self.assertEqual(1, status)
        self.assertIn('still-stopping compute-2', out)

    def test_looks_once(self):
        self.read.side_effect = [self.broken, self.good]
        self.assertEqual(1, self.check()[0])

    def test_looks_until_consistent(self):
        self.read.side_effect = [self.broken, self.broken, self.good]
        self.assertEqual(0, self.check('--wait', '60')[0])

    def test_waits_for_a_cloud_that_does_not_answer(self):
        away = cloud_state.Unanswered('Look into its log.')
        self.read.side_effect = [away, self.broken, away, self.good]
        self.assertEqual(0, self.check('--wait', '60')[0])
        self.read.side_effect = away
        status, _, err = self.check('--wait', '60')
        self.assertEqual(2, status)
        self.assertIn('Look into its log.', err)
        # Wrong credentials do not pass.
        self.read.side_effect = [cloud_state.CloudError('Do this.'),
                                 self.good]
        self.assertEqual((2, '', 'nova-ironic-multihost: Do this.\n'),
                         self.check('--wait', '60'))

    def test_gives_up_waiting(self):
        self.read.return_value = self.broken
        self.assertEqual(1, self.check('--wait', '60')[0])
        self.assertEqual(views.NOW + 60, self.now)

    def test_computes_that_must_be_up(self):
        self.assertEqual(0, self.check('--host', 'compute-1',
                                       '--host', 'compute-2')[0])
        status, out, _ = self.check('--host', 'compute-1', '--host', 'nix')
        self.assertEqual(1, status)
        self.assertIn('compute-missing', out)

    def test_allocations_on_demand(self):
        self.check()
        self.read.assert_called_once_with(False)
        self.check('--allocations')
        self.read.assert_called_with(True)

    def test_interrupted(self):
        self.read.side_effect = KeyboardInterrupt
        status, out, _ = self.check('--wait', '60')
        self.assertNotIn(status, (0, 1))
        self.assertEqual('', out)

    def test_help_teaches(self):
        status, out, _ = self.shell('check', '--help')
        self.assertEqual(0, status)
        for words in ('exactly one record', '--os-baremetal-cloud',
                      'exit status: 0 consistent', 'examples:'):
            self.assertIn(words, out)
