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
