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

"""tools/lab where no lab is up."""

from lab.tests.stack import command


class DownTestCase(command.LabTestCase):

    def setUp(self):
        super().setUp()
        self.lab('down')

    def test_commands_that_need_a_lab_say_so(self):
        for arguments in (['boot'], ['delete', '--all'], ['check'],
                          ['status']):
            with self.subTest(arguments):
                self.assertIn('tools/lab up', self.refused(*arguments))

    def test_the_demonstration_of_the_readme(self):
        said = self.lab('demo').output
        self.assertIn('found everything in its place', said)
