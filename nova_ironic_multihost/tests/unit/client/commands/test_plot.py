# SPDX-License-Identifier: Apache-2.0

import sys
import types
from unittest import mock

from nova_ironic_multihost.tests.unit.client.commands import base


class PlotTestCase(base.ShellTestCase):
    """With a stand-in for matplotlib, as it need not be installed."""

    def plot(self, **modules):
        with mock.patch.dict(sys.modules, modules):
            return self.shell('plan', '--add', 'New', '--nodes', '90',
                              '--plot', 'plan.png')

    def test_without_matplotlib(self):
        status, out, err = self.plot(matplotlib=None)
        self.assertEqual((2, ''), (status, out))
        self.assertIn('pip install matplotlib', err)
        self.assertEqual({}, dict(self.cloud.asked))

    def test_file_that_cannot_be_written(self):
        figure = mock.MagicMock()
        figure.Figure.return_value.savefig.side_effect = OSError('read-only')
        status, out, err = self.plot(
            matplotlib=types.SimpleNamespace(figure=figure))
        self.assertEqual((2, ''), (status, out))
        self.assertIn('plan.png cannot be drawn: read-only. Name', err)

    def test_picture(self):
        figure = mock.Mock()
        axes = figure.Figure.return_value.subplots.return_value
        status, out, _ = self.plot(
            matplotlib=types.SimpleNamespace(figure=figure))
        self.assertEqual(0, status)
        self.assertIn(' new ', out)
        axes.set_yticks.assert_called_once_with(
            [0, 1, 2], ['east', 'new', 'west'])
        before, after = (call.args[1] for call in axes.barh.mock_calls)
        self.assertEqual((90, 0, 90), (sum(before), before[1], sum(after)))
        self.assertTrue(after[1])
        figure.Figure.return_value.savefig.assert_called_once_with(
            'plan.png')
