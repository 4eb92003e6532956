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

from oslotest import base

from nova_ironic_multihost.core import pauses


class LongerTestCase(base.BaseTestCase):

    def test_each_is_twice_as_long_up_to_the_longest(self):
        last, seconds = None, []
        for _ in range(7):
            last = pauses.Pause(0, pauses.longer(last))
            seconds.append(last.seconds)
        self.assertEqual([10, 20, 40, 80, 160, 300, 300], seconds)


class KeptTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.first, self.second = pauses.Pause(10, 10), pauses.Pause(20, 10)

    def test_what_is_done_has_none(self):
        paused = {'i1': self.first, 'i2': self.second}
        self.assertEqual({'i2': self.second},
                         pauses.kept(paused, paused, {'i2'}))

    def test_what_began_since_the_look_lasts(self):
        for seen in {}, {'i1': self.first}:
            self.assertEqual({'i1': self.second}, pauses.kept(
                {'i1': self.second}, seen, set()))
