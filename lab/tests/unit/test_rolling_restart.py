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
