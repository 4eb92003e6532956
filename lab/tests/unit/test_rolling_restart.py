# SPDX-License-Identifier: Apache-2.0

"""What rolling-restart must come to."""

from oslotest import base

from lab.experiments import rolling_restart


class FailuresTestCase(base.BaseTestCase):

    GOOD = {'error': 0, 'stuck': 0, 'not_deleted': 0, 'moves': 0,
            'leaked': 0, 'quiet': True}

    def test_good(self):
        self.assertEqual([], rolling_restart.failures(self.GOOD))

    def test_each_bad_figure_has_its_sentence(self):
        for figure in self.GOOD:
            bad = False if figure == 'quiet' else 2
            self.assertEqual(1, len(rolling_restart.failures(
                {**self.GOOD, figure: bad})))
