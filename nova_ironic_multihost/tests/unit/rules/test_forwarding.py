# SPDX-License-Identifier: Apache-2.0

"""What becomes of messages for a dead host: each row of the table."""

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import Disposition
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestFacts
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules.takeover import Step

BUILD = QueuedRequest(RequestKind.BUILD, 'i1', 'n1')
REBOOT = QueuedRequest(RequestKind.OPERATION, 'i1')
WAITING = InstanceState(None, vm_state='building', task_state='scheduling')

hosts = strategies.sampled_from([None, 'dead', 'DEAD', 'other', 'third'])
states = strategies.none() | strategies.builds(
    InstanceState, host=hosts, deleted=strategies.booleans(),
    node=strategies.sampled_from([None, 'n1', 'n2']),
    vm_state=strategies.sampled_from(['building', 'active', 'error']),
    task_state=strategies.sampled_from(
        [None, 'scheduling', 'spawning', 'taking-over:x:scheduling']))
situations = strategies.builds(
    RequestFacts, state=states,
    owner=strategies.sampled_from([None, 'dead', 'other']),
    live=strategies.booleans(), dead=strategies.booleans(),
    choice=strategies.sampled_from([None, 'other', 'third']))
requests = strategies.builds(
    QueuedRequest, kind=strategies.sampled_from(RequestKind),
    instance=strategies.sampled_from([None, 'i1']),
    node=strategies.sampled_from([None, 'n1']),
    returns=strategies.integers(0, 30))


class BuildTestCase(base.BaseTestCase):

    def judge(self, state=WAITING, owner='dead', live=False, dead=True,
              choice='third', request=BUILD):
        verdict = forwarding.judge(request, 'dead', RequestFacts(
            state, owner, live, dead, choice))
        return verdict.host or verdict.action

    def test_goes_to_the_live_owner_of_its_node(self):
        self.assertEqual('other', self.judge(owner='other', live=True))

    def test_goes_to_who_is_to_have_its_node(self):
        self.assertEqual('third', self.judge())
        # That of another dead host, too: it was rescheduled.
        self.assertEqual('third', self.judge(owner='other'))

    def test_goes_whatever_a_start_has_made_of_it(self):
        self.assertEqual('third', self.judge(
            InstanceState(None, vm_state='error')))

    def test_waits_for_an_owner_that_may_be_back(self):
        self.assertEqual(Action.KEEP, self.judge(owner='other', dead=False))

    def test_waits_if_nobody_may_have_its_node(self):
        self.assertEqual(Action.KEEP, self.judge(choice=None))

    def test_waits_while_it_is_not_known_what_it_is_about(self):
        self.assertEqual(Action.KEEP, self.judge(None))
        self.assertEqual(Action.KEEP, self.judge(
            request=QueuedRequest(RequestKind.BUILD, 'i1')))

    def test_goes_when_its_node_is_gone(self):
        """nova schedules it again there."""
        self.assertEqual('third', self.judge(owner=None, dead=False))

    def test_is_dropped_when_it_is_deleted(self):
        self.assertEqual(Action.DROP, self.judge(
            InstanceState(None, deleted=True)))

    def test_is_dropped_when_it_is_anothers(self):
        self.assertEqual(Action.DROP, self.judge(InstanceState('other')))

    def test_is_dropped_when_its_host_had_begun_it(self):
        self.assertEqual(Action.DROP, self.judge(
            InstanceState('DEAD', node='n1')))

    def test_becomes_a_copy_for_who_has_begun_it(self):
        for host in 'other', 'DEAD':
            state = InstanceState(host, node='n1', vm_state='building')
            self.assertEqual(
                forwarding.Disposition(
                    Action.HAND_ON, state.host_key, copy=True),
                forwarding.judge(BUILD, 'dead', RequestFacts(
                    state, 'dead', False, True, 'third')))
        self.assertEqual(Action.DROP, self.judge(
            InstanceState('other', node='n2', vm_state='building')))

    def test_waits_when_its_host_had_claimed_another_node(self):
        self.assertEqual(Action.KEEP, self.judge(
            InstanceState('dead', node='n2', vm_state='building')))


class OperationTestCase(base.BaseTestCase):

    def judge(self, state, request=REBOOT):
        return forwarding.judge(request, 'dead', RequestFacts(state)).action

    def test_is_dropped_when_its_instance_has_moved(self):
        self.assertIs(Action.DROP, self.judge(InstanceState('other')))

    def test_waits_for_the_host_of_its_instance(self):
        for state in (InstanceState('DEAD'), InstanceState(None), None,
                      InstanceState('other', deleted=True)):
            self.assertIs(Action.KEEP, self.judge(state))

    def test_what_is_not_understood_waits(self):
        self.assertIs(Action.KEEP, self.judge(
            InstanceState('other'), QueuedRequest(RequestKind.OTHER, 'i1')))


class AnyTestCase(base.BaseTestCase):

    @hypothesis.given(requests, situations)
    def test_only_builds_that_would_be_admitted_go_anywhere(
            self, request, situation):
        verdict = forwarding.judge(request, 'dead', situation)
        if verdict.action is not Action.HAND_ON:
            self.assertIsNone(verdict.host)
            return
        self.assertIs(RequestKind.BUILD, request.kind)
        if verdict.copy:
            self.assertEqual(
                (situation.state.host_key, request.node, 'building'),
                (verdict.host, situation.state.node,
                 situation.state.vm_state))
            return
        self.assertIsNone(situation.state.host)
        self.assertNotEqual('dead', verdict.host if not situation.live
                            else None)
        self.assertFalse(builds.outdated(
            situation.state, 'n1', verdict.host, lambda: True))

    @hypothesis.given(requests, situations)
    def test_nothing_is_dropped_that_its_host_would_do(
            self, request, situation):
        if forwarding.judge(
                request, 'dead', situation).action is not Action.DROP:
            return
        state = situation.state
        self.assertTrue(
            state.deleted or builds.elsewhere(state, 'dead')
            or request.kind is RequestKind.BUILD and builds.outdated(
                state, request.node, 'dead', lambda: True))


class ReaderTestCase(base.BaseTestCase):

    def test_one_of_the_members_reads_a_queue(self):
        members = {'a': None, 'b': 'z1', 'c': 'z2'}
        readers = {forwarding.reader(ring.Preferences(members, 32), host)
                   for host in map(str, range(50))}
        self.assertEqual({'a', 'b', 'c'}, readers)
        self.assertIsNone(
            forwarding.reader(ring.Preferences({}, 32), 'dead'))

    def test_host_that_is_back_counts_as_a_consumer(self):
        for consumers, held in ((1, 0), (4, 3), (1, 3)):
            self.assertTrue(forwarding.host_is_back(consumers, held))

    def test_messages_that_are_held_may_count_as_consumers(self):
        for consumers, held in ((0, 0), (0, 3), (3, 3)):
            self.assertFalse(forwarding.host_is_back(consumers, held))

    def test_queue_that_was_read_to_its_end_is_read_again_at_once(self):
        self.assertEqual(0, forwarding.pause([]))

    @hypothesis.given(strategies.integers(0, 40))
    def test_pauses_grow_before_anything_has_come_back_too_often(
            self, returns):
        some = [BUILD, QueuedRequest(RequestKind.OTHER, returns=returns)]
        pause = forwarding.pause(some)
        self.assertLessEqual(forwarding.PAUSE, pause)
        self.assertLessEqual(pause, forwarding.LONGEST_PAUSE)
        self.assertLessEqual(pause, forwarding.pause(
            [QueuedRequest(RequestKind.OTHER, returns=returns + 1)]))

    def test_twenty_returns_take_more_than_a_week(self):
        seconds = sum(
            forwarding.pause([QueuedRequest(RequestKind.OTHER, returns=count)])
            for count in range(20))
        self.assertLess(7 * 86400, seconds)


COPY = QueuedRequest(RequestKind.BUILD, 'i1', 'n1')


def on(host, node='n1', vm_state='building'):
    return InstanceState(host, node=node, vm_state=vm_state)


class JudgeTestCase(base.BaseTestCase):

    def judge(self, state, owner='home', live=True, copy=COPY):
        return forwarding.judge_backup(copy, 'home', RequestFacts(
            state, owner, live, choice='third'))

    def assertFate(self, action, state, **more):
        self.assertEqual(Disposition(action), self.judge(state, **more))

    def test_build_that_had_not_begun_is_asked_for_again(self):
        self.assertEqual(
            Disposition(Action.HAND_ON, 'home'), self.judge(WAITING))

    def test_it_goes_to_who_has_its_node_by_now(self):
        self.assertEqual(Disposition(Action.HAND_ON, 'other'),
                         self.judge(WAITING, owner='other'))

    def test_what_is_over_is_not_asked_for_there_again(self):
        def judge(owner, state=WAITING):
            return forwarding.judge_backup(COPY, 'home', RequestFacts(
                state, owner, live=True), over=True)

        self.assertEqual(Disposition(Action.DROP), judge('home'))
        self.assertEqual(Disposition(Action.HAND_ON, 'other'), judge('other'))
        self.assertEqual(Disposition(Action.KEEP), judge('home', on('home')))

    def test_what_ends_each_process_is_not_asked_for_for_ever(self):
        self.assertEqual(Disposition(Action.DROP), forwarding.judge_backup(
            COPY, 'home', RequestFacts(
                WAITING, 'home', live=True,
                attempts=forwarding.BUILD_ATTEMPTS)))

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

    @hypothesis.given(situations)
    def test_no_build_is_lost(self, situation):
        """What nova has to be built is asked for, or its copy stays."""
        state = situation.state
        verdict = forwarding.judge_backup(COPY, 'dead', situation)
        if (state is not None and not state.deleted
                and state.vm_state == 'building'
                and (state.host_key is None or state.node == 'n1')):
            self.assertIsNot(Action.DROP, verdict.action)
        if verdict.action is Action.HAND_ON:
            # As a build while nobody has it, as a copy if somebody has.
            self.assertEqual(state.host_key is not None, verdict.copy)
            self.assertNotEqual('dead', verdict.copy and verdict.host)


class StepTestCase(base.BaseTestCase):

    def step(self, provision_state='available', looks=2, has_copy=True,
             attempts=1):
        return forwarding.retry_step(
            provision_state, looks, has_copy, attempts)

    def test_with_a_copy_it_is_begun_again(self):
        self.assertIs(Step.REPEAT, self.step())
        self.assertIs(Step.REPEAT, self.step(None))

    def test_what_was_asked_of_ironic_at_last_may_be_on_its_way(self):
        self.assertIs(Step.AWAIT, self.step(looks=1))

    def test_without_a_copy_it_fails_in_the_end(self):
        self.assertIs(Step.AWAIT, self.step(has_copy=False))
        self.assertIs(Step.FAIL, self.step(
            has_copy=False, looks=forwarding.LOOKS + 1))

    def test_what_ironic_was_told_of_is_no_longer_undone(self):
        for state in 'deploy failed', 'deploying', 'active', 'cleaning':
            self.assertIs(Step.FAIL, self.step(state))

    def test_what_ends_each_process_is_begun_only_so_often(self):
        self.assertIs(Step.REPEAT, self.step(attempts=4))
        self.assertIs(Step.FAIL, self.step(attempts=5))
