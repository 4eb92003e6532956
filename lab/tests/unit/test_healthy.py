# SPDX-License-Identifier: Apache-2.0

import argparse

from oslotest import base

from lab.experiments import healthy

GOOD = {'error': 0, 'undeleted': 0, 'moves': 0, 'leaked': 0, 'quiet': True,
        'error_lines': {'ERROR': 0, 'Traceback': 0}, 'errors': {}}


class ChoicesTestCase(base.BaseTestCase):

    def choices(self, *argv):
        parser = argparse.ArgumentParser()
        healthy.add_options(parser)
        return healthy.choices(parser.parse_args(argv))

    def test_a_hundred(self):
        self.assertEqual({'servers': 100}, self.choices())
        self.assertEqual({'servers': 8}, self.choices('--servers', '8'))


class PortionsTestCase(base.BaseTestCase):

    def test_as_many_at_once_as_there_is_room_for(self):
        self.assertEqual([15] * 6 + [10], healthy.portions(100, 15))
        self.assertEqual([6, 6], healthy.portions(12, 6))
        self.assertEqual([3], healthy.portions(3, 6))

    def test_one_by_one_at_least(self):
        self.assertEqual([1, 1], healthy.portions(2, 0))


class FailuresTestCase(base.BaseTestCase):

    def test_no_complaint(self):
        self.assertEqual([], healthy.failures(GOOD))

    def test_each_bad_figure_has_its_sentence(self):
        for figure, value in (
                ('error', 1), ('undeleted', 1), ('moves', 2), ('leaked', 1),
                ('quiet', False),
                ('error_lines', {'ERROR': 1, 'Traceback': 0}),
                ('error_lines', {'ERROR': 0, 'Traceback': 1})):
            with self.subTest(figure):
                self.assertEqual(
                    1, len(healthy.failures(GOOD | {figure: value})))

    def test_it_says_what_was_logged(self):
        sentence, = healthy.failures(GOOD | {
            'error_lines': {'ERROR': 2, 'Traceback': 0},
            'errors': {'nova Failed': 2}})
        self.assertIn("{'nova Failed': 2}", sentence)
