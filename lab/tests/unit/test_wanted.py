# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from lab.bench import wanted as wanteds
from lab import errors

SHAPE = {'computes': ['compute-1', 'compute-2', 'compute-3'], 'nodes': 30,
         'driver': 'ours', 'options': []}


class WantedTestCase(base.BaseTestCase):

    def test_anything_will_do(self):
        self.assertEqual('', wanteds.Wanted().differs(SHAPE))

    def test_the_same(self):
        self.assertEqual(
            '', wanteds.Wanted(3, 30, 'ours').differs(SHAPE))

    def test_tells_each_difference(self):
        self.assertEqual(
            'computes 3 instead of 4, driver ours instead of stock',
            wanteds.Wanted(4, 30, 'stock').differs(SHAPE))

    def test_options_that_it_needs(self):
        wanted = wanteds.Wanted(options=('a.b=c',))
        self.assertEqual('not up with --set a.b=c', wanted.differs(SHAPE))
        self.assertEqual(
            '', wanted.differs(SHAPE | {'options': ['x.y=z', 'a.b=c']}))

    def test_brings_up_a_lab_of_the_usual_size(self):
        self.assertEqual((3, 30, 'ours', ()), wanteds.Wanted().complete)
        self.assertEqual((1, 30, 'stock', ('a.b=c',)), wanteds.Wanted(
            computes=1, driver='stock', options=('a.b=c',)).complete)

    def test_only_the_very_same_lab_is_what_it_would_bring_up(self):
        self.assertTrue(wanteds.Wanted().made(SHAPE))
        for differing in (
                {'computes': ['compute-1']}, {'nodes': 12},
                {'driver': 'stock'}, {'options': ['x.y=z']}):
            self.assertFalse(
                wanteds.Wanted().made(SHAPE | differing), differing)

    def test_command_line_fills_in_what_is_free(self):
        wanted = wanteds.Wanted(computes=1).asked(None, 12, 'ours')
        self.assertEqual(wanteds.Wanted(1, 12, 'ours'), wanted)

    def test_command_line_cannot_change_what_it_is_for(self):
        wanted = wanteds.Wanted(computes=1, driver='stock')
        error = self.assertRaises(
            errors.LabError, wanted.asked, None, None, 'ours')
        self.assertIn('--driver stock', str(error))
        self.assertEqual(wanted, wanted.asked(1, None, 'stock'))

    def test_options_of_the_command_line_come_on_top(self):
        wanted = wanteds.Wanted(options=('a.b=c',)).asked(
            None, None, None, ['x.y=z'])
        self.assertEqual(('a.b=c', 'x.y=z'), wanted.options)
