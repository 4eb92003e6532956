# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from lab.experiments import scheduler
from lab.experiments.scheduler import trial

RIGHT = 'node-1'


class WishTestCase(base.BaseTestCase):

    @staticmethod
    def problem(nodes, status='ACTIVE', node=RIGHT, fault=''):
        wish = trial.Wish('one in lab-left', ('x',), frozenset(nodes))
        return wish.problem({'x': {
            'status': status, 'OS-EXT-SRV-ATTR:hypervisor_hostname': node,
            'OS-EXT-SRV-ATTR:host': 'compute-2',
            'fault': {'message': fault}}})

    def test_lands_where_it_must(self):
        self.assertEqual('', self.problem([RIGHT, 'node-2']))

    def test_lands_elsewhere(self):
        self.assertEqual(
            'one in lab-left: landed on a wrong node of compute-2',
            self.problem(['node-2']))

    def test_lands_nowhere(self):
        self.assertEqual(
            'one in lab-left: No valid host was found. ',
            self.problem([RIGHT], 'ERROR', fault='No valid host was found. '))

    def test_must_land_nowhere(self):
        self.assertEqual('', self.problem(
            [], 'ERROR', fault='No valid host was found. '))
        self.assertIn('where there is none', self.problem([]))

    def test_fails_for_another_reason_than_it_must(self):
        self.assertEqual('one in lab-left: Boom',
                         self.problem([], 'ERROR', fault='Boom'))

    def test_never_comes_to_an_end(self):
        for nodes in ([RIGHT], []):
            self.assertEqual('one in lab-left: still BUILD',
                             self.problem(nodes, 'BUILD'))


class FailuresTestCase(base.BaseTestCase):

    def test_tells_each_mechanism_that_does_not_hold(self):
        self.assertEqual(
            ['zones: one in a: Boom'],
            scheduler.failures({'mechanisms': {
                'zones': 'one in a: Boom', 'traits': 'pass'}}))
