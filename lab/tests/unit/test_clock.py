# SPDX-License-Identifier: Apache-2.0

import argparse

from oslotest import base

from lab.experiments import clock

GOOD = {'residents_lost': [], 'undeleted': 0, 'taken_over': 0, 'needless': 0,
        'leaked': 0, 'quiet': True}


class OptionsTestCase(base.BaseTestCase):

    def choices(self, *argv):
        parser = argparse.ArgumentParser()
        clock.add_options(parser)
        return clock.choices(parser.parse_args(argv))

    def test_ahead_or_behind(self):
        self.assertEqual({'ahead': 90}, self.choices())
        self.assertEqual({'ahead': -30}, self.choices('--ahead', '-30'))


class FailuresTestCase(base.BaseTestCase):

    def test_builds_may_fail_meanwhile(self):
        self.assertEqual([], clock.failures(GOOD))

    def test_each_bad_figure_has_its_sentence(self):
        for figure, value in (
                ('residents_lost', ['a is ERROR']), ('undeleted', 1),
                ('taken_over', 1), ('needless', 2), ('leaked', 1),
                ('quiet', False)):
            with self.subTest(figure):
                self.assertEqual(
                    1, len(clock.failures(GOOD | {figure: value})))
