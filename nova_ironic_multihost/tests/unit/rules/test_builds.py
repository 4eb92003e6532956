# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.builds import BuildStage
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import takeover


class RuleTestCase(base.BaseTestCase):

    def test_instance_of_mine_or_of_nobody_is_not_elsewhere(self):
        for host in ('me', 'ME', None):
            self.assertFalse(
                builds.elsewhere(InstanceState(host), 'me'))
        self.assertFalse(builds.elsewhere(None, 'me'))

    def test_task_state_of_another_build_crosses_one_that_has_the_node(self):
        for task_state in takeover.BUILDING_TASKS:
            self.assertTrue(builds.crossed(task_state, True))
            self.assertFalse(builds.crossed(task_state, False))
        for task_state in None, 'scheduling', 'deleting':
            self.assertFalse(builds.crossed(task_state, True))

    def test_instance_of_another_is_elsewhere(self):
        for deleted in (False, True):
            self.assertTrue(builds.elsewhere(
                InstanceState('other', deleted), 'me'))

    def test_what_is_claimed_and_on_no_host_was_taken_over(self):
        state = InstanceState(None, vm_state='building')
        self.assertTrue(builds.elsewhere(state, 'me', BuildStage.HELD))
        self.assertTrue(builds.begun_elsewhere(state, 'me', BuildStage.HELD))
        self.assertFalse(
            builds.may_change_machine(state, None, 'me', BuildStage.HELD))
        for state in None, InstanceState('me'):
            self.assertFalse(builds.elsewhere(state, 'me', BuildStage.HELD))
        self.assertTrue(builds.may_change_machine(
            InstanceState(None, deleted=True), 'me', 'me', BuildStage.HELD))

    def test_what_was_given_back_and_scheduled_anew_goes_on_elsewhere(self):
        state = InstanceState(
            None, vm_state='building', task_state='scheduling')
        for claim, elsewhere in (
            (BuildStage.RETURNED, True),
            (BuildStage.BEGUN, True),
            (BuildStage.NONE, False),
            (BuildStage.SCHEDULED, False),
        ):
            self.assertEqual(elsewhere, builds.begun_elsewhere(
                state, 'me', claim))
        for other in (InstanceState('me', task_state='spawning'),
                      InstanceState(None, vm_state='building',
                                    task_state='networking'),
                      InstanceState(None)):
            self.assertFalse(builds.begun_elsewhere(
                other, 'me', BuildStage.RETURNED))

    def test_what_is_claimed_and_scheduled_anew_goes_on_elsewhere(self):
        """Another had begun it, given it back, and writes so late."""
        for claim, elsewhere in (
            (BuildStage.HELD, True),
            (BuildStage.NONE, False),
        ):
            self.assertEqual(elsewhere, builds.begun_elsewhere(
                InstanceState('me', vm_state='building',
                              task_state='scheduling'), 'me', claim))

    def test_build_that_was_left_on_no_host(self):
        for task_state, left in (
                ('networking', True), ('block_device_mapping', True),
                ('spawning', True), ('scheduling', False), (None, False),
                ('deleting', False)):
            state = InstanceState(
                None, vm_state='building', task_state=task_state)
            self.assertEqual(left, builds.left_over(state))
            # Who has not claimed it has not left it.
            self.assertEqual(left, builds.begun_elsewhere(state, 'me'))
        for state in (None,
                      InstanceState('me', vm_state='building',
                                    task_state='spawning'),
                      InstanceState(None, vm_state='error',
                                    task_state='spawning'),
                      InstanceState(None, True, vm_state='building',
                                    task_state='spawning')):
            self.assertFalse(builds.left_over(state))

    def test_build_that_has_failed_for_good(self):
        for state, over in (
                (None, True), (InstanceState(None, deleted=True), True),
                (InstanceState(None, vm_state='error'), True),
                (InstanceState(None, vm_state='building'), False),
                (InstanceState('me', vm_state='active'), False)):
            self.assertEqual(over, builds.given_up(state))

    def test_build_of_another_or_taken_over_was_begun_elsewhere(self):
        for state in (InstanceState('other'),
                      InstanceState('me', task_state=takeover.taken(
                          None, 'me')),
                      InstanceState('me', task_state=takeover.taking(
                          None, 'other'))):
            self.assertTrue(builds.begun_elsewhere(state, 'me'))

    def test_build_that_is_mine_or_gone_was_not_begun_elsewhere(self):
        for state in (None, InstanceState(None), InstanceState('me'),
                      InstanceState('me', task_state='deleting'),
                      InstanceState('other', deleted=True)):
            self.assertFalse(builds.begun_elsewhere(state, 'me'))

    def test_machine_follows_its_instance(self):
        for owner in ('me', 'other', None):
            self.assertTrue(builds.may_change_machine(
                InstanceState('me'), owner, 'me'))
            self.assertFalse(builds.may_change_machine(
                InstanceState('other'), owner, 'me'))

    def test_machine_of_a_deleted_instance_is_the_node_owners(self):
        for state in (None, InstanceState('me', deleted=True),
                      InstanceState('other', deleted=True)):
            self.assertTrue(builds.may_change_machine(state, 'me', 'me'))
            self.assertTrue(builds.may_change_machine(state, None, 'me'))
            self.assertFalse(
                builds.may_change_machine(state, 'other', 'me'))


class OutdatedTestCase(base.BaseTestCase):
    """Each row of the table in doc/source/reference/builds.rst."""

    def outdated(self, state, allocated, node='n1'):
        return builds.outdated(state, node, 'me', lambda: allocated)

    def test_build_that_is_to_be_carried_out(self):
        for vm_state in ('building', 'error'):
            self.assertFalse(self.outdated(
                InstanceState(None, vm_state=vm_state), True))

    def test_build_that_is_done_or_goes_on(self):
        for vm_state in ('active', 'building', 'error', 'stopped'):
            for host in ('me', 'ME'):
                self.assertTrue(self.outdated(InstanceState(
                    host, node='n1', vm_state=vm_state), True))

    def test_server_that_runs_and_has_lost_its_host(self):
        self.assertTrue(self.outdated(
            InstanceState(None, vm_state='active'), True))

    def test_build_that_has_failed_or_was_sent_elsewhere(self):
        self.assertTrue(self.outdated(InstanceState(None), False))
        self.assertTrue(self.outdated(
            InstanceState('me', node='n2', vm_state='building'), False))

    def test_build_that_is_anothers(self):
        self.assertTrue(self.outdated(
            InstanceState('other', node='n1'), True))

    def test_build_that_is_sent_here_again_for_another_node(self):
        """What the first attempt has claimed may not have been taken back."""
        self.assertFalse(self.outdated(
            InstanceState('me', node='n2', vm_state='building'), True))

    def test_server_that_runs_is_not_built_on_another_node(self):
        for vm_state in 'active', 'stopped', 'rescued':
            self.assertTrue(self.outdated(
                InstanceState('me', node='n2', vm_state=vm_state), True))

    def test_placement_is_asked_only_if_nothing_else_decides(self):
        for state in (None, InstanceState('other'),
                      InstanceState('me', node='n1', vm_state='active')):
            builds.outdated(state, 'n1', 'me', self.fail)

    def test_instance_that_is_gone_is_left_to_nova(self):
        for state in None, InstanceState(None, deleted=True):
            self.assertFalse(self.outdated(state, False))

    def test_without_a_node(self):
        self.assertFalse(self.outdated(InstanceState(None), False, None))
        self.assertTrue(self.outdated(
            InstanceState('me', node='n1'), False, None))
