# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client.upgrade import hosts
from nova_ironic_multihost.tests.unit.client.upgrade import base


class JudgeTestCase(base.JudgeTestCase):

    def judge(self, **of):
        return hosts.judge_zones(
            list(of), {host: zone for host, zone in of.items() if zone})

    def test_no_zones(self):
        self.assert_silent(self.judge(a=None, b=None))

    def test_two_in_each(self):
        self.assert_silent(self.judge(a='z', b='z', c='y', d='y'))

    def test_names_are_compared_in_lower_case(self):
        self.assert_complains(
            hosts.judge_zones(['A', 'B', 'C'], {'a': 'z', 'b': 'z', 'c': 'y'}),
            'C is alone')

    def test_a_single_one(self):
        self.assert_silent(self.judge(a='z'))

    def test_one_that_is_alone_in_its_zone(self):
        self.assert_complains(
            self.judge(a='z', b='z', c='y'), 'c is alone', 'zone y')

    def test_some_without_a_zone(self):
        self.assert_complains(
            self.judge(a='z', b='z', c=None), 'c is in no availability zone')
        # Those without take the nodes.
        self.assert_complains(
            self.judge(a='z', c=None), 'c is in no availability zone')
