# SPDX-License-Identifier: Apache-2.0

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
