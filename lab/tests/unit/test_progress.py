# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
