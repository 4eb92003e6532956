# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import hosts
from nova_ironic_multihost.tests.unit.client.upgrade import base
from nova_ironic_multihost.tests import views

COMMAND = 'nova-manage cell_v2 discover_hosts --by-service'


class JudgeTestCase(base.JudgeTestCase):

    def new(self, **more):
        return views.with_more(
            views.consistent(), 'services',
            cloud_state.Service('compute-4', **{'mapped': None, **more}))

    def test_all_have_nodes_that_are_shown(self):
        self.assert_silent(hosts.judge_cells(views.consistent()))

    def test_one_that_is_not_mapped(self):
        self.assert_complains(
            hosts.judge_cells(self.new(mapped=False)), 'compute-4', COMMAND,
            fatal=True)

    def test_nodes_without_a_record_that_is_shown(self):
        # nova's API leaves out what a host owns that is not mapped.
        seen = views.without(self.new(up=False), 'records', 1)
        self.assert_complains(
            hosts.judge_cells(seen), 'no record of 1 node,', 'Of compute-4',
            COMMAND)

    def test_nodes_without_a_record_and_nobody_to_have_it(self):
        # nova-ironic-multihost check tells.
        self.assert_silent(
            hosts.judge_cells(views.without(views.consistent(), 'records', 1)))

    def test_one_that_has_no_node_yet(self):
        self.assert_complains(
            hosts.judge_cells(self.new()), 'compute-4 has no node', COMMAND)

    def test_one_that_takes_no_nodes_anyway(self):
        self.assert_silent(hosts.judge_cells(self.new(up=False)))
        self.assert_silent(hosts.judge_cells(self.new(disabled=True)))
