# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost.client.upgrade import problem


class WordsTestCase(base.BaseTestCase):

    def test_a_few_names_of_many(self):
        self.assertEqual('a, b', problem.some(['a', 'b']))
        self.assertEqual('a, b and 1 more', problem.some(list('abc'), 2))

    def test_numbers(self):
        self.assertEqual('1 node', problem.counted(1, 'node'))
        self.assertEqual('2 nodes', problem.counted(2, 'node'))

    def test_what_is_not_said_to_stop_an_upgrade_does_not(self):
        self.assertFalse(problem.Problem('Do it.').fatal)
