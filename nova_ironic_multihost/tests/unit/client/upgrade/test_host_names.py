# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import hosts
from nova_ironic_multihost.tests.unit.client.upgrade import base
from nova_ironic_multihost.tests import views


class JudgeTestCase(base.JudgeTestCase):

    def renamed(self, **more):
        return views.with_more(
            views.consistent(), 'services',
            cloud_state.Service('Compute-1', **more))

    def test_one_spelling_for_each(self):
        self.assert_silent(hosts.judge_names(views.consistent()))

    def test_two_that_are_up(self):
        self.assert_complains(
            hosts.judge_names(self.renamed()),
            'Compute-1 and compute-1 are up', fatal=True)

    def test_one_that_was_left_behind(self):
        self.assert_complains(
            hosts.judge_names(self.renamed(up=False)),
            'Compute-1 and compute-1 are one host', 'service delete',
            'discover_hosts --by-service')

    def test_records(self):
        seen = views.consistent()
        for index in 1, 4:
            seen = views.changed(seen, 'records', index, host='COMPUTE-2')
        self.assert_complains(
            hosts.judge_names(seen),
            '2 records of compute-2 spelled COMPUTE-2')

    def test_servers(self):
        seen = views.changed(views.consistent(), 'instances', 0,
                             host='COMPUTE-1')
        self.assert_complains(
            hosts.judge_names(seen), '1 server of compute-1 spelled COMPUTE-1')
        self.assert_silent(hosts.judge_names(
            views.changed(seen, 'instances', 0, deleted=True)))

    def test_servers_without_a_compute_service(self):
        seen = views.changed(views.consistent(), 'instances', 0, host='gone')
        self.assert_silent(hosts.judge_names(seen))
        self.assert_silent(hosts.judge_names(
            views.changed(seen, 'instances', 0, host=None)))


class JudgeSettingTestCase(base.JudgeTestCase):

    def judge(self, host):
        return hosts.judge_own_name(views.consistent(), host)

    def test_as_nova_has_it(self):
        self.assert_silent(self.judge('compute-1'))

    def test_a_new_one(self):
        self.assert_silent(self.judge('Compute-4'))

    def test_another_spelling(self):
        self.assert_complains(
            self.judge('Compute-1'), 'set [DEFAULT]host = compute-1')
