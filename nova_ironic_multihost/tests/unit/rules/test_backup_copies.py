# SPDX-License-Identifier: Apache-2.0

"""What becomes of copies of builds, and of builds that were begun."""

import hypothesis
from oslotest import base

from nova_ironic_multihost.rules import backup_copies
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import Disposition
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestFacts
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.takeover import Step
from nova_ironic_multihost.tests.unit.rules import test_forwarding

COPY = QueuedRequest(RequestKind.BUILD, 'i1', 'n1')
WAITING = test_forwarding.WAITING


def on(host, node='n1', vm_state='building'):
    return InstanceState(host, node=node, vm_state=vm_state)


class JudgeTestCase(base.BaseTestCase):

    def judge(self, state, owner='home', live=True, copy=COPY):
        return backup_copies.judge(copy, 'home', RequestFacts(
            state, owner, live, choice='third'))

    def assertFate(self, action, state, **more):
        self.assertEqual(Disposition(action), self.judge(state, **more))

    def test_build_that_had_not_begun_is_asked_for_again(self):
        self.assertEqual(
            Disposition(Action.HAND_ON, 'home'), self.judge(WAITING))

    def test_it_goes_to_who_has_its_node_by_now(self):
        self.assertEqual(Disposition(Action.HAND_ON, 'other'),
                         self.judge(WAITING, owner='other'))

    def test_what_was_refused_is_not_asked_for_there_again(self):
        def judge(owner, state=WAITING):
            return backup_copies.judge(COPY, 'home', RequestFacts(
                state, owner, live=True), refused=True)

        self.assertEqual(Disposition(Action.DROP), judge('home'))
        self.assertEqual(Disposition(Action.HAND_ON, 'other'), judge('other'))
        self.assertEqual(Disposition(Action.KEEP), judge('home', on('home')))

    def test_what_has_ended_here_is_dropped_unless_it_came_back(self):
        def judge(state):
            return backup_copies.judge(
                COPY, 'home', RequestFacts(state, 'home', live=True),
                ended=True)

        self.assertEqual(Disposition(Action.KEEP), judge(on('Home')))
        for state in (WAITING, on('other'), on('home', vm_state='active'),
                      None):
            self.assertEqual(Disposition(Action.DROP), judge(state))

    def test_what_ends_each_process_is_not_asked_for_for_ever(self):
        self.assertEqual(Disposition(Action.DROP), backup_copies.judge(
            COPY, 'home', RequestFacts(
                WAITING, 'home', live=True, attempts=backup_copies.ATTEMPTS)))

    def test_it_waits_for_who_may_come_back(self):
        self.assertFate(Action.KEEP, WAITING, owner='other', live=False)

    def test_build_that_has_claimed_its_node_is_brought_to_rest_first(self):
        self.assertFate(Action.KEEP, on('HOME'))

    def test_that_of_one_that_was_taken_over_goes_there(self):
        self.assertEqual(Disposition(Action.HAND_ON, 'other', copy=True),
                         self.judge(on('Other')))

    def test_what_is_over_is_dropped(self):
        for host in 'home', 'other':
            for vm_state in 'active', 'error', 'stopped':
                self.assertFate(Action.DROP, on(host, vm_state=vm_state))
            self.assertFate(Action.DROP, on(host, node='n2'))
        self.assertFate(Action.DROP, None)
        self.assertFate(Action.DROP, InstanceState(None, deleted=True))

    def test_what_is_none_is_left_alone(self):
        self.assertFate(
            Action.KEEP, WAITING, copy=QueuedRequest(RequestKind.OTHER))
        self.assertFate(
            Action.KEEP, WAITING, copy=QueuedRequest(RequestKind.BUILD, 'i1'))

    @hypothesis.given(test_forwarding.situations)
    def test_no_build_is_lost(self, situation):
        """What nova has to be built is asked for, or its copy stays."""
        state = situation.state
        verdict = backup_copies.judge(COPY, 'dead', situation)
        if (state is not None and not state.deleted
                and state.vm_state == 'building'
                and (state.host_key is None or state.node == 'n1')):
            self.assertIsNot(Action.DROP, verdict.action)
        if verdict.action is Action.HAND_ON:
            # As a build while nobody has it, as a copy if somebody has.
            self.assertEqual(state.host_key is not None, verdict.copy)
            self.assertNotEqual('dead', verdict.copy and verdict.host)


class StepTestCase(base.BaseTestCase):

    def step(self, provision_state='available', waited=10, has_copy=True,
             all_seen=True, attempts=1):
        return backup_copies.step(
            provision_state, waited, has_copy, all_seen, attempts)

    def test_with_a_copy_it_is_begun_again(self):
        self.assertIs(Step.REPEAT, self.step())
        self.assertIs(Step.REPEAT, self.step(None))

    def test_what_was_asked_of_ironic_at_last_may_be_on_its_way(self):
        self.assertIs(Step.AWAIT, self.step(waited=0))

    def test_without_a_copy_it_fails_in_the_end(self):
        self.assertIs(Step.AWAIT, self.step(has_copy=False))
        self.assertIs(Step.FAIL, self.step(
            has_copy=False, waited=backup_copies.PATIENCE))

    def test_it_waits_longer_for_who_does_not_answer(self):
        self.assertIs(Step.AWAIT, self.step(
            has_copy=False, waited=backup_copies.PATIENCE, all_seen=False))
        self.assertIs(Step.FAIL, self.step(
            has_copy=False, waited=backup_copies.LONGEST, all_seen=False))

    def test_what_ironic_was_told_of_is_no_longer_undone(self):
        for state in 'deploy failed', 'deploying', 'active', 'cleaning':
            self.assertIs(Step.FAIL, self.step(state))

    def test_what_ends_each_process_is_begun_only_so_often(self):
        self.assertIs(Step.REPEAT, self.step(attempts=4))
        self.assertIs(Step.FAIL, self.step(attempts=5))
