# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client.upgrade import hosts
from nova_ironic_multihost.tests.unit.client.upgrade import base


class JudgeTestCase(base.JudgeTestCase):

    def test_nothing_to_compare(self):
        self.assert_silent(hosts.judge_options([]))
        self.assert_silent(hosts.judge_options([base.of_host('a')]))

    def test_the_same_on_all(self):
        self.assert_silent(hosts.judge_options(
            [base.of_host('a'), base.of_host('b')]))

    def test_something_else_on_one(self):
        self.assert_complains(
            hosts.judge_options([
                base.of_host('a'), base.of_host('c'), base.of_host(
                    'b', shared={'[DEFAULT]service_down_time': '120'})]),
            '[DEFAULT]service_down_time is 60 on a, c; 120 on b', fatal=True)

    def test_what_is_invalid_is_told_by_others(self):
        self.assert_silent(hosts.judge_options([
            base.of_host('a'), base.of_host(
                'b', shared={'[DEFAULT]service_down_time': None})]))

    def test_other_settings_for_other_nodes(self):
        self.assert_silent(hosts.judge_options([
            base.of_host('a', group='g'), base.of_host(
                'b', group='h',
                shared={'[DEFAULT]service_down_time': '120'})]))

    def test_nodes_of_two_partitions(self):
        self.assert_complains(
            hosts.judge_options(
                [base.of_host('a'), base.of_host('b', 'g', 's')]),
            'a serves all nodes',
            'b conductor group "g" and shard "s"',
        )

    def test_same_nodes_and_no_peers(self):
        self.assert_complains(
            hosts.judge_options([base.of_host('a', shard='s'),
                                   base.of_host('b', shard='s')]),
            'a, b serve the same nodes and [ironic]peer_list is empty',
            fatal=True)
        self.assert_silent(hosts.judge_options([
            base.of_host('a', shard='s', peers=('a', 'b')),
            base.of_host('b', shard='s', peers=('a', 'b'))]))

    def test_two_of_one_name(self):
        self.assert_complains(
            hosts.judge_options(
                [base.of_host(name) for name in ('a', 'B', 'A')]),
            'A.conf, a.conf are of one host, a',
            fatal=True,
        )


class MissingTestCase(base.JudgeTestCase):

    def test_all_are_there(self):
        self.assert_silent(hosts.missing(
            [base.of_host('a'), base.of_host('b')], ['A', 'b']))

    def test_some_are_not(self):
        self.assert_complains(
            hosts.missing([base.of_host('a')], ['a', 'c', 'b']),
            'The settings of b, c are not', '--collected',
            'a has [ironic_multihost]ring_partitions = 1024, '
            '[DEFAULT]service_down_time = 60.')
        self.assert_complains(
            hosts.missing([], ['a']), 'of a are not')

    def test_what_is_compared_already_is_not_repeated(self):
        [complaint] = hosts.missing(
            [base.of_host('a'), base.of_host('b')], ['a', 'b', 'c'])
        self.assertNotIn('ring_partitions', complaint.sentence)
