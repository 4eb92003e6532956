# SPDX-License-Identifier: Apache-2.0

import io

from oslotest import base

from lab import progress


class ProgressTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.stream = io.StringIO()
        self.now = 0.0
        self.progress = progress.Progress(self.stream, lambda: self.now)

    def test_step_prints_label_and_seconds(self):
        with self.progress.step('start MariaDB'):
            self.now += 2.5
        self.assertEqual('   2.5 s  ok      start MariaDB\n',
                         self.stream.getvalue())
        self.assertEqual([('start MariaDB', 2.5)], self.progress.steps)

    def test_failed_step_says_so(self):
        try:
            with self.progress.step('start MariaDB'):
                raise ValueError
        except ValueError:
            pass
        self.assertIn('failed  start MariaDB', self.stream.getvalue())

    def test_elapsed_covers_all_steps(self):
        for label in ('one', 'two'):
            with self.progress.step(label):
                self.now += 3
        self.assertEqual(6, self.progress.elapsed())
