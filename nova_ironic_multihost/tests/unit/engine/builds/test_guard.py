# SPDX-License-Identifier: Apache-2.0

import contextlib
import logging
import types

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.builds import build_guard
from nova_ironic_multihost.engine.builds import guard as guards
from nova_ironic_multihost import exception
from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import takeover

INSTANCE = types.SimpleNamespace(uuid='i1', node='n1')


class Sources:
    """Where instances and records are, or an error."""

    def __init__(self):
        self.hosts = {'i1': InstanceState('me')}
        self.owners = {}
        self.allocated = {'n1': {'i1'}}
        self.error = None

    def instance_states(self, instances):
        if self.error:
            raise self.error
        return {instance: self.hosts[instance] for instance in instances
                if instance in self.hosts}

    def consumers(self, node):
        if self.error:
            raise self.error
        return self.allocated.get(node)

    def records(self, nodes):
        return [Record(node, self.owners[node]) for node in nodes
                if node in self.owners]


class GateTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.sources = Sources()
        self.refused = []
        self.guard = build_guard.BuildGuard(
            'Me', self.sources, refused=lambda: self.refused.append(1))
        self.done = []

    def move(self):
        self.sources.hosts['i1'] = InstanceState('other')

    def act(self):
        self.done.append('act')
        return 'result'

    def operate(self, act, **kwargs):
        return self.guard.operate('stop', INSTANCE, act, **kwargs)

    def build(self, act, node='n1', **kwargs):
        if self.sources.hosts['i1'] == InstanceState('me'):
            self.sources.hosts['i1'] = InstanceState(None)
        return self.guard.build(
            'build', INSTANCE, act, node, otherwise=lambda: 'left', **kwargs)

    def change_machine(self):
        return self.guard.change_machine('power_off', INSTANCE, self.act)

    def clean_up(self):
        return self.guard.clean_up('revert', INSTANCE, self.act)

    def test_operation_here_is_carried_out(self):
        self.assertEqual('result', self.operate(self.act))
        self.assertEqual([], self.refused)

    def test_operation_elsewhere_is_dropped(self):
        self.move()
        self.assertIsNone(self.operate(self.act))
        self.assertEqual('other', self.operate(
            self.act, otherwise=lambda: 'other'))
        self.assertEqual([], self.done)
        self.assertEqual(2, len(self.refused))

    def test_operation_on_what_cannot_be_read_fails(self):
        self.sources.error = TimeoutError()
        self.assertRaises(TimeoutError, self.operate, self.act)
        self.assertEqual([], self.done)

    def sleep(self, seconds):
        """The conductor is away until self.back."""
        self.now += seconds
        if self.now >= self.back:
            self.sources.error = None

    def wait_for_conductor(self, back, patience=300):
        self.now, self.back = 0, back
        self.sources.error = TimeoutError('no conductor')
        self.guard = build_guard.BuildGuard(
            'Me', self.sources, lambda: patience, lambda: self.now,
            self.sleep, lambda exc, again: isinstance(exc, TimeoutError),
            lambda: self.refused.append(1))
        return self.useFixture(fixtures.FakeLogger(level=logging.WARNING))

    def test_operation_waits_for_a_conductor_that_is_away(self):
        log = self.wait_for_conductor(100)
        self.assertEqual('result', self.operate(self.act))
        self.assertEqual(100, self.now)
        self.assertEqual(1, log.output.count('\n'))
        self.assertIn('stop waits, for up to 300 s', log.output)
        self.assertIn('no conductor', log.output)

    def test_operation_does_not_wait_for_ever(self):
        self.wait_for_conductor(1000)
        self.assertRaises(TimeoutError, self.operate, self.act)
        self.assertEqual([], self.done)
        self.assertEqual(300, self.now)
        # Another one of the same thread has as much patience.
        self.assertRaises(TimeoutError, self.operate, self.act)
        self.assertEqual(600, self.now)

    def test_what_only_this_operation_knows_of_waits_as_long_as_it_takes(self):
        log = self.wait_for_conductor(10000)
        self.assertEqual('result', self.build(self.act))
        self.assertEqual(10000, self.now)
        self.assertIn('for up to any number of s', log.output)
        # What comes then is an operation as any other.
        self.wait_for_conductor(10000)
        self.assertRaises(TimeoutError, self.operate, self.act)
        self.assertEqual(300, self.now)

    def test_what_comes_in_such_an_operation_has_the_patience_of_any(self):
        self.wait_for_conductor(100)

        def build():
            self.sources.error = TimeoutError('no conductor')
            self.back = 10000
            self.change_machine()

        self.assertRaises(TimeoutError, self.build, build)
        self.assertEqual(400, self.now)

    def test_nobody_waits_without_end_when_the_service_ends(self):
        self.wait_for_conductor(10000)
        sleep = self.sleep

        def sleep_and_end(seconds):
            sleep(seconds)
            if self.now == 50:
                self.guard.end()

        self.guard._sleep = sleep_and_end
        self.assertEqual('left', self.build(self.act))
        self.assertEqual(50, self.now)
        self.assertEqual([], self.done)
        # What there is patience for goes on.
        self.back = 100
        self.assertEqual('result', self.operate(self.act))

    def test_what_is_an_answer_is_not_waited_for_without_end(self):
        self.wait_for_conductor(10000)
        self.sources.error = ValueError()
        # nova would free the node that it has allocated.
        self.assertEqual('left', self.build(self.act))
        self.assertEqual(300, self.now)
        self.assertEqual([], self.done)

    def test_build_of_which_placement_says_nothing_waits(self):
        self.wait_for_conductor(1000)
        self.sources.error = None
        del self.sources.allocated['n1']
        sleep = self.sleep

        def sleep_and_answer(seconds):
            sleep(seconds)
            if self.now == 1000:
                self.sources.allocated['n1'] = {INSTANCE.uuid}

        self.guard._sleep = sleep_and_answer
        self.assertEqual('result', self.build(self.act))
        self.assertEqual(1000, self.now)

    def test_build_that_placement_does_not_show_at_once(self):
        self.wait_for_conductor(0)
        self.sources.error = None
        self.sources.hosts = {'i1': InstanceState(None)}
        self.sources.allocated = {'n1': set()}
        sleep = self.sleep

        def sleep_and_show(seconds):
            sleep(seconds)
            self.sources.allocated = {'n1': {'i1'}}

        self.guard._sleep = sleep_and_show
        self.assertEqual('result', self.build(self.act))

    def test_build_of_a_server_that_runs_waits_for_nobody(self):
        self.sources.hosts = {'i1': InstanceState('me', node='n1')}
        self.sources.consumers = self.fail
        self.assertEqual('left', self.build(self.act))

    def test_build_that_is_not_to_be_carried_out(self):
        self.wait_for_conductor(0)
        self.sources.error = None
        for hosts, allocated in (
                ({'i1': InstanceState('me', node='n1')}, {'i1'}),
                ({'i1': InstanceState('other')}, {'i1'}),
                ({'i1': InstanceState(None)}, set()),
                ({'i1': InstanceState(None)}, {'i2'})):
            self.sources.hosts = hosts
            self.sources.allocated = {'n1': allocated}
            self.assertEqual('left', self.build(self.act))
        self.assertEqual([], self.done)
        self.assertEqual(4, len(self.refused))
        self.sources.allocated = {'n1': {'i1', 'i2'}}
        self.assertEqual('result', self.build(self.act))

    def test_node_is_taken_for_a_build_that_is_to_be_carried_out(self):
        taken = []

        def adopt():
            taken.append('n1')
            self.sources.owners['n1'] = 'me'
            return True

        self.assertEqual('result', self.build(self.act, adopt=adopt))
        self.sources.hosts['i1'] = InstanceState('other')
        self.assertEqual('left', self.build(self.act, adopt=self.fail))
        self.assertEqual(['n1'], taken)

    def take_over_the_build(self):
        """What another host had begun of it is here now, with a mark."""
        self.sources.hosts['i1'] = InstanceState(
            'me', node='n1', vm_state='building',
            task_state=takeover.taken(None, 'me'))

    def test_build_whose_node_was_taken_with_the_build_on_it(self):
        """A host that is fenced had begun it, from its own queue."""
        def adopt():
            self.take_over_the_build()
            return True

        self.assertEqual('left', self.build(self.act, adopt=adopt))
        self.assertEqual([], self.done)

    def fail_build(self, state, error=None):
        def act():
            self.sources.hosts['i1'] = state
            self.sources.error = error
            return 'failed'

        self.sources.hosts['i1'] = InstanceState(None)
        self.sources.error = None
        return self.build(act, failed=lambda result: result == 'failed')

    def test_build_that_was_begun_elsewhere_meanwhile_is_left(self):
        for task_state in (takeover.taken(None, 'me'),
                           takeover.taking(None, 'other')):
            self.assertEqual('left', self.fail_build(InstanceState(
                'me', node='n1', vm_state='building', task_state=task_state)))
        self.assertEqual('left', self.fail_build(InstanceState('other')))

    def test_build_that_raises_is_looked_at_as_well(self):
        def act():
            self.take_over_the_build()
            raise ValueError

        self.assertEqual('left', self.build(act))
        self.assertEqual({'i1'}, self.guard.unfinished)
        self.sources.hosts['i1'] = InstanceState(None)
        self.assertRaises(ValueError, self.build, lambda: self.fail_with(
            ValueError()))

    def test_build_that_cannot_be_written_down_is_carried_out_later(self):
        log = self.wait_for_conductor(0)
        self.sources.error = None
        for act, answer in (
                (lambda: self.fail_with(TimeoutError('read only')), 'later'),
                (lambda: (self.guard.note_scheduled(),
                          self.fail_with(ValueError('not freed'))), 'later'),
                (lambda: (self.move(), self.fail_with(TimeoutError())),
                 'left')):
            self.sources.hosts['i1'] = InstanceState(None)
            self.guard.forget({'i1'})
            self.assertEqual(answer, self.build(
                act, later=lambda: 'later'))
            self.assertEqual({'i1'}, self.guard.unfinished)
        self.sources.hosts['i1'] = InstanceState(None)
        self.assertRaises(ValueError, self.build, lambda: self.fail_with(
            ValueError()), later=self.fail)
        self.assertIn('read only', log.output)

    def test_build_that_nova_tells_nothing_of_is_carried_out_later(self):
        """Nobody knows that another host has it, so its copy stays."""
        def claim():
            self.sources.error = TimeoutError('no conductor')
            self.back = 10000
            return self.guard.attempt('build', INSTANCE, lambda: (
                self.fail_with(ValueError())))

        def give_up():
            self.sources.error = TimeoutError('no conductor')
            self.back = 10000
            return 'failed'

        for act in claim, give_up:
            self.wait_for_conductor(0)
            self.sources.error = None
            self.sources.hosts['i1'] = InstanceState(None)
            self.assertEqual('later', self.build(
                act, failed=lambda result: result == 'failed',
                later=lambda: 'later'))

    def test_build_that_goes_on_here_needs_its_copy(self):
        for host, vm_state, answer in (('me', 'building', 'later'),
                                       ('me', 'active', 'left'),
                                       ('other', 'building', 'left')):
            self.sources.hosts['i1'] = InstanceState(
                host, node='n1', vm_state=vm_state)
            self.assertEqual(
                answer, self.build(self.fail, later=lambda: 'later'))

    def test_build_that_has_failed_for_good_is_not_carried_out_later(self):
        """What could not be written is that it is over."""
        self.wait_for_conductor(0)
        self.sources.error = None
        for state in (InstanceState(None, vm_state='error'),
                      InstanceState(None, deleted=True)):
            def act(state=state):
                self.sources.hosts['i1'] = state
                raise TimeoutError

            self.sources.hosts['i1'] = InstanceState(None)
            self.assertRaises(
                TimeoutError, self.build, act, later=self.fail)

    def persist(self, failures, error=None):
        """Write in a build; return how often it was tried, and how."""
        tried = []

        def write(how):
            tried.append(how)
            if len(tried) <= failures:
                raise error or TimeoutError('read only')
            return 'written'

        self.sources.hosts['i1'] = InstanceState(None)
        self.found = self.build(lambda: self.guard.persist(
            'build', INSTANCE, lambda: write('at first'),
            lambda: write('again')))
        return tried

    def test_what_is_not_written_is_written_again(self):
        log = self.wait_for_conductor(0)
        self.sources.error = None
        self.assertEqual(['at first'], self.persist(0))
        self.assertEqual(['at first', 'again', 'again'], self.persist(2))
        self.assertEqual('written', self.found)
        self.assertEqual(1, log.output.count('read only'))
        self.assertRaises(ValueError, self.persist, 1, ValueError())

    def test_what_another_has_by_now_is_not_written_again(self):
        for state in (InstanceState('other'), InstanceState(
                'me', task_state=takeover.taking(None, 'other'))):
            self.wait_for_conductor(0)
            self.sources.error = None
            self.guard._sleep = lambda seconds, state=state: (
                self.sources.hosts.update(i1=state))
            self.assertEqual(['at first'], self.persist(1))
            self.assertEqual('left', self.found)

    def test_nothing_is_written_to_what_another_has_by_now(self):
        """nova compares nothing when it gives a build back."""
        tried = []

        def act():
            self.sources.hosts['i1'] = InstanceState('other')
            return self.guard.persist(
                'build', INSTANCE, lambda: tried.append('at first'),
                lambda: tried.append('again'), asks=True)

        self.sources.hosts['i1'] = InstanceState(None)
        self.assertEqual('left', self.build(act))
        self.assertEqual([], tried)

    def test_what_is_not_written_is_not_tried_for_ever(self):
        self.wait_for_conductor(0)
        self.sources.error = None
        self.assertRaises(TimeoutError, self.persist, 1000)
        self.assertEqual(300, self.now)
        self.guard.end()
        self.assertRaises(TimeoutError, self.persist, 1)

    def test_build_that_leaves_cleans_nothing_up(self):
        def act():
            try:
                self.guard.leave('build')
            finally:
                self.clean_up()

        self.assertEqual('left', self.build(act))
        self.assertEqual([], self.done)
        self.assertEqual({'i1'}, self.guard.unfinished)

    def test_build_cleans_nothing_up_that_was_taken_over(self):
        def act():
            self.take_over_the_build()
            self.clean_up()

        self.assertEqual('left', self.build(act))
        self.assertEqual([], self.done)
        # Who finishes it does.
        self.assertEqual('result', self.clean_up())

    def claim(self):
        def claim():
            self.done.append('claim')
            self.sources.hosts['i1'] = InstanceState(
                'me', node='n1', vm_state='building')

        self.guard.claim('claim', INSTANCE, claim)

    def begin(self):
        """nova writes that it is at the build."""
        self.sources.hosts['i1'] = InstanceState(None, vm_state='building')

    def undo(self):
        self.sources.hosts['i1'] = InstanceState(
            None, vm_state='building', task_state='networking')

    def undo_elsewhere(self):
        """Another has taken it over, and begins it again."""
        self.sources.hosts['i1'] = InstanceState(
            None, vm_state='building', task_state='scheduling')

    def test_build_that_another_begins_again_is_left(self):
        def fail():
            raise ValueError

        for go_on in (self.change_machine, self.clean_up, fail,
                      lambda: 'failed'):
            def act(go_on=go_on):
                self.begin()
                self.claim()
                self.undo_elsewhere()
                return go_on()

            self.done.clear()
            self.undo_elsewhere()
            self.assertEqual('left', self.build(
                act, failed=lambda result: result == 'failed'))
            self.assertEqual(['claim'], self.done)

    def test_build_that_gives_its_claim_back_cleans_up(self):
        def act():
            self.begin()
            self.claim()
            self.guard.give_back('unset', INSTANCE, self.undo)
            self.clean_up()
            return 'failed'

        self.undo_elsewhere()
        self.assertEqual('failed', self.build(
            act, failed=lambda result: result == 'failed'))
        self.assertEqual(['claim', 'act'], self.done)
        # What the thread does next has claimed nothing.
        self.undo_elsewhere()
        self.assertEqual('result', self.build(self.change_machine))

    def test_build_that_was_scheduled_anew_meanwhile_is_left(self):
        def act():
            self.begin()
            self.claim()
            self.guard.give_back('unset', INSTANCE, self.undo_elsewhere)
            self.clean_up()

        self.undo_elsewhere()
        self.assertEqual('left', self.build(act))
        self.assertEqual(['claim'], self.done)

    def test_nothing_is_claimed_that_was_begun_elsewhere(self):
        for state in (InstanceState('other', node='n1'),
                      InstanceState('me', node='n1', task_state=takeover.taken(
                          None, 'me'))):
            def act(state=state):
                self.sources.hosts['i1'] = state
                self.claim()

            self.undo_elsewhere()
            self.assertEqual('left', self.build(act))
        self.assertEqual([], self.done)

    def test_nothing_is_claimed_that_was_scheduled_anew(self):
        """By another host, which has begun it, too, and not got the node."""
        def act():
            self.begin()
            self.undo_elsewhere()
            self.claim()

        self.undo_elsewhere()
        self.assertEqual('left', self.build(act))
        self.assertEqual([], self.done)

    def test_nothing_is_claimed_when_nobody_answers(self):
        """Where it was frozen, and is another's by now."""
        def act():
            self.begin()
            self.sources.error = TimeoutError()
            try:
                self.claim()
            finally:
                self.sources.error = None

        self.undo_elsewhere()
        self.assertRaises(TimeoutError, self.build, act)
        self.assertEqual([], self.done)

    def test_node_of_a_build(self):
        self.undo_elsewhere()
        # It is new.
        self.assertIs(True, self.build(self.guard.has_node))
        for owner, its in (('ME', True), ('other', False)):
            self.sources.owners['n1'] = owner
            self.assertIs(its, self.build(self.guard.has_node))
        self.assertIs(True, self.build(self.guard.has_node, node=None))

    def test_claim_that_was_given_back_without_an_answer(self):
        def give_back():
            self.undo()
            raise TimeoutError

        def act():
            self.begin()
            self.claim()
            self.guard.give_back('unset', INSTANCE, give_back)

        self.undo_elsewhere()
        self.assertRaises(TimeoutError, self.build, act)

    def test_what_was_left_in_the_middle_is_undone_before_it_begins(self):
        def renew():
            self.done.append('renew')
            self.undo_elsewhere()

        self.undo()
        self.assertEqual('result', self.build(self.act, renew=renew))
        self.assertEqual(['renew', 'act'], self.done)
        self.assertEqual('result', self.build(self.act, renew=self.fail))

    def test_what_cannot_be_undone_waits(self):
        self.wait_for_conductor(200)
        self.sources.error = None
        tries = []

        def renew():
            tries.append(self.now)
            if self.now < 100:
                raise TimeoutError

        self.undo()
        self.assertEqual('result', self.build(self.act, renew=renew))
        self.assertEqual(list(range(0, 101, guards.PAUSE)), tries)

    def test_build_that_was_left_by_another_just_now_is_left(self):
        self.assertEqual('left', self.fail_build(InstanceState(
            None, vm_state='building', task_state='spawning')))
        self.assertEqual('failed', self.fail_build(InstanceState(
            None, vm_state='error', task_state='spawning')))

    def test_claim_of_no_build_is_novas(self):
        self.move()
        self.claim()
        self.assertEqual(['claim'], self.done)

    @staticmethod
    def fail_with(error):
        raise error

    def test_build_that_fails_here_has_failed(self):
        for state in (InstanceState(None, vm_state='error'),
                      InstanceState('me', node='n1', task_state='deleting'),
                      InstanceState('other', deleted=True)):
            self.assertEqual('failed', self.fail_build(state))

    def test_build_that_fails_when_nothing_is_known_is_left(self):
        self.wait_for_conductor(1000)
        self.assertEqual(
            'left', self.fail_build(InstanceState(None), TimeoutError()))
        self.assertEqual(300, self.now)

    def test_operation_that_is_waited_for_does_not_wait(self):
        self.wait_for_conductor(100)
        self.assertRaises(TimeoutError, self.operate, self.act,
                          patient=False)
        self.assertEqual(0, self.now)

    def test_what_moved_while_an_operation_waited_is_left_alone(self):
        self.wait_for_conductor(100)
        self.move()
        self.assertEqual('other', self.operate(
            self.act, otherwise=lambda: 'other'))
        self.assertEqual([], self.done)

    def test_operation_waits_before_it_touches_the_machine(self):
        """All its waiting together is bounded."""
        self.wait_for_conductor(0)

        def stop():
            for self.back in (100, 200, 1000):
                self.sources.error = TimeoutError()
                self.change_machine()

        self.assertRaises(TimeoutError, self.operate, stop)
        self.assertEqual(['act', 'act'], self.done)
        self.assertEqual(300, self.now)

    def clean_up_without_conductor(self, **how):
        self.wait_for_conductor(0)
        self.back = 100
        self.sources.error = None

        def stop():
            self.sources.error = TimeoutError()
            return self.guard.clean_up('revert', INSTANCE, self.act, **how)

        return self.operate(stop)

    def test_clean_up_waits_for_a_conductor_that_is_away(self):
        """nova also cleans up at the end of each delete."""
        self.assertEqual('result', self.clean_up_without_conductor())
        self.assertEqual(100, self.now)

    def test_clean_up_under_a_lock_does_not_wait(self):
        self.assertIsNone(self.clean_up_without_conductor(patient=False))
        self.assertEqual(0, self.now)
        self.assertEqual([], self.done)

    def test_time_in_which_an_operation_works_does_not_count(self):
        self.wait_for_conductor(0)

        def stop():
            for _ in range(3):
                self.now += 600
                self.sources.error = TimeoutError()
                self.back = self.now + 50
                self.change_machine()
            return 'done'

        self.assertEqual('done', self.operate(stop))

    def contest(self, back):
        """Another is about to take it until self.back."""
        self.wait_for_conductor(back)
        self.sources.error = None
        self.sources.hosts['i1'] = InstanceState(
            'me', task_state=takeover.taking('stopping', 'other'))

    def test_operation_waits_until_it_is_decided_whose_an_instance_is(self):
        for host in 'me', 'other':
            self.contest(100)
            sleep = self.guard._sleep

            def sleep_and_decide(seconds):
                sleep(seconds)
                if self.now >= self.back:
                    self.sources.hosts['i1'] = InstanceState(host)

            self.guard._sleep = sleep_and_decide
            self.done.clear()
            self.operate(self.act)
            self.assertEqual(['act'] * (host == 'me'), self.done)
            self.assertEqual(100, self.now)

    def test_what_stays_undecided_is_left_alone(self):
        """What fails may fail because of the mark."""
        self.contest(1000)
        self.assertEqual('other', self.operate(
            self.act, otherwise=lambda: 'other', patient=False))
        mark = self.sources.hosts['i1']

        def be_contested(act):
            def later():
                self.sources.hosts['i1'] = mark
                return act()

            self.sources.hosts['i1'] = InstanceState('me')
            return self.operate(later)

        def stop():
            raise KeyError('UnexpectedTaskStateError')

        for act in (lambda: self.guard.attempt('stop', INSTANCE, stop),
                    self.change_machine, self.clean_up):
            self.assertIsNone(be_contested(act))
        self.assertEqual([], self.done)
        for own in (takeover.taking(None, 'me'), takeover.taken(None, 'me')):
            self.sources.hosts['i1'] = InstanceState('me', task_state=own)
            self.assertEqual('result', self.operate(self.act))

    def test_what_failed_because_of_a_mark_is_not_cleaned_up(self):
        """Also if the mark is off again by then."""
        def build():
            raise KeyError("Actual: {'task_state': '"
                           f"{takeover.taking('spawning', 'other')}'}}")

        def attempt():
            self.guard.attempt('build', INSTANCE, build)

        self.assertEqual('other', self.operate(
            attempt, otherwise=lambda: 'other'))

    def test_nobody_waits_to_clean_up_what_is_contested(self):
        self.contest(1000)
        mark = self.sources.hosts['i1']

        def fail():
            self.sources.hosts['i1'] = mark
            self.clean_up()

        self.sources.hosts['i1'] = InstanceState('me')
        self.operate(fail)
        self.assertEqual(0, self.now)
        self.assertEqual([], self.done)

    def test_instances_that_operations_are_at(self):
        seen = []

        def act():
            seen.append(self.guard.at_work)
            self.operate(lambda: seen.append(self.guard.at_work))
            seen.append(self.guard.at_work)

        self.operate(act)
        self.assertEqual([{'i1'}] * 3, seen)
        self.assertEqual(frozenset(), self.guard.at_work)
        self.operate(act, patient=False)
        self.assertEqual([frozenset()] * 3, seen[3:])

    def test_instances_whose_operation_is_unfinished(self):
        """Given up, failed or ended in the middle; not what was done."""
        def fail():
            raise KeyError

        def end():
            self.move()
            self.change_machine()

        self.operate(self.act)
        self.assertEqual(frozenset(), self.guard.unfinished)
        last_note = self.guard.last_note
        self.assertRaises(KeyError, self.operate, fail)
        self.assertEqual({'i1'}, self.guard.unfinished)
        self.assertIsNot(last_note, self.guard.last_note)
        # Ironic's power_update comes in any task state, and says nothing of
        # the operation that has failed.
        self.operate(self.act)
        self.assertEqual({'i1'}, self.guard.unfinished)
        self.guard.forget({'i1', 'i2'})
        self.assertEqual(frozenset(), self.guard.unfinished)
        self.operate(end)
        self.assertEqual({'i1'}, self.guard.unfinished)
        self.guard.forget({'i1'})
        self.contest(1000)
        self.operate(self.act)
        self.assertEqual({'i1'}, self.guard.unfinished)
        self.guard.forget({'i1'})
        self.sources.error = TimeoutError()
        self.assertRaises(TimeoutError, self.operate, self.act)
        self.assertEqual({'i1'}, self.guard.unfinished)

    def test_operation_that_waits_is_at_its_instance(self):
        self.wait_for_conductor(100)
        sleep, seen = self.guard._sleep, []

        def sleep_and_look(seconds):
            seen.append(self.guard.at_work)
            sleep(seconds)

        self.guard._sleep = sleep_and_look
        self.operate(self.act)
        self.assertEqual({frozenset({'i1'})}, set(seen))

    def test_event_waits_for_a_conductor_that_is_away(self):
        self.wait_for_conductor(100)
        self.assertEqual({'i1'}, self.guard.present('event', ['i1']))
        self.assertEqual(100, self.now)

    def test_operation_within_an_operation_is_a_part_of_it(self):
        def outer():
            self.move()
            self.operate(self.act)
            return 'outer'
        self.assertEqual('outer', self.operate(outer))
        self.assertEqual(['act'], self.done)

    def test_operation_ends_before_it_touches_the_machine(self):
        def stop():
            self.move()
            try:
                self.change_machine()
            except Exception:  # noqa: BLE001
                self.done.append('cleaned up')
            self.done.append('written')
        self.assertEqual('other', self.operate(
            stop, otherwise=lambda: 'other'))
        self.assertEqual([], self.done)

    def test_gate_is_closed_again_after_an_operation_that_ended(self):
        self.operate(lambda: self.move() or self.change_machine())
        self.assertRaises(exception.InstanceElsewhere, self.change_machine)

    def test_machine_that_is_changing_beside_an_operation(self):
        self.assertEqual('result', self.change_machine())
        self.move()
        error = self.assertRaises(
            exception.InstanceElsewhere, self.change_machine)
        self.assertIn('i1', str(error))
        self.assertEqual(['act'], self.done)

    def test_machine_of_what_cannot_be_read_is_left_alone(self):
        def stop():
            self.sources.error = TimeoutError()
            self.change_machine()
        self.assertRaises(TimeoutError, self.operate, stop)
        self.assertEqual([], self.done)

    def test_machine_is_left_alone_from_the_moment_it_moves(self):
        def power_off():
            self.guard.ask_again()
            self.done.append('soft')
            self.move()
            self.guard.ask_again()
            self.done.append('hard')
        self.operate(
            lambda: self.guard.change_machine('off', INSTANCE, power_off))
        self.assertEqual(['soft'], self.done)

    def test_what_is_done_to_no_machine_is_not_asked_for(self):
        self.change_machine()
        self.sources.error = TimeoutError()
        self.guard.ask_again()

    def test_machine_of_a_deleted_instance(self):
        self.sources.hosts['i1'] = InstanceState('me', deleted=True)
        self.sources.owners['n1'] = 'ME'
        self.assertEqual('result', self.change_machine())
        self.sources.owners['n1'] = 'other'
        self.assertRaises(exception.InstanceElsewhere, self.change_machine)

    def test_build_of_a_deleted_instance_deploys_nothing(self):
        """It stood still; what it had begun is undone, and it is deleted."""
        def build():
            self.begin()
            self.claim()
            self.sources.hosts['i1'] = InstanceState(None, deleted=True)
            for name in sorted(builds.DEPLOY_METHODS):
                self.assertRaises(
                    exception.InstanceGone, self.guard.change_machine, name,
                    INSTANCE, self.fail)
            # nova frees its machine.
            return self.guard.change_machine('destroy', INSTANCE, self.act)

        self.undo_elsewhere()
        self.sources.owners['n1'] = 'me'
        self.assertEqual('result', self.build(build))

    def test_failure_elsewhere_is_not_cleaned_up(self):
        def stop():
            self.move()
            self.clean_up()
            self.done.append('failed')
        self.assertIsNone(self.operate(stop))
        self.assertEqual([], self.done)

    def test_failure_of_what_cannot_be_read_is_not_cleaned_up(self):
        def stop():
            self.sources.error = TimeoutError()
            self.clean_up()
        self.assertIsNone(self.operate(stop))
        self.assertEqual([], self.done)

    def test_cleaning_up_beside_an_operation(self):
        self.assertEqual('result', self.clean_up())
        self.move()
        self.assertIsNone(self.clean_up())
        self.assertEqual(['act'], self.done)

    def test_attempt_that_fails_elsewhere(self):
        def fail():
            self.move()
            raise KeyError
        self.assertEqual('other', self.operate(
            lambda: self.guard.attempt('build', INSTANCE, fail),
            otherwise=lambda: 'other'))

    def fail_to_delete(self, error, task_state, write):
        self.sources.hosts['i1'] = InstanceState('me', task_state=task_state)

        def fail():
            # As nova does before it is over.
            self.sources.hosts['i1'] = InstanceState('me', vm_state='deleted')
            raise error

        def delete():
            try:
                self.guard.attempt('delete', INSTANCE, fail)
            except Exception:
                self.guard.clean_up('set to ERROR', INSTANCE, self.act)
                raise

        def clean_up():
            try:
                fail()
            except Exception:
                self.guard.clean_up('revert', INSTANCE, self.act)
                raise

        return self.operate(clean_up if write else delete)

    def test_a_delete_that_nobody_answered_is_left_to_be_repeated(self):
        self.guard = build_guard.BuildGuard(
            'me', self.sources,
            passing=lambda exc, again: (
                isinstance(exc, TimeoutError) and not again))
        for write in False, True:
            self.assertIsNone(
                self.fail_to_delete(TimeoutError(), 'deleting', write))
            self.assertEqual({'i1'}, self.guard.unfinished)
            self.assertEqual([], self.done)
            # What fails for good, and what must not be done twice.
            for error, task_state in (
                    (KeyError(), 'deleting'), (TimeoutError(), 'rebuilding'),
                    (TimeoutError(), None)):
                self.assertRaises(type(error), self.fail_to_delete, error,
                                  task_state, write)
                self.assertEqual(['act'], self.done)
                self.done.clear()

    def test_a_delete_that_is_repeated_fails_in_the_end(self):
        self.guard = build_guard.BuildGuard(
            'me', self.sources, passing=lambda exc, again: not again)
        with self.guard.repeating():
            self.assertRaises(TimeoutError, self.fail_to_delete,
                              TimeoutError(), 'deleting', False)
        self.assertEqual(['act'], self.done)
        self.assertIsNone(
            self.fail_to_delete(TimeoutError(), 'deleting', False))

    def test_who_repeats_hears_that_nobody_answers(self):
        self.guard = build_guard.BuildGuard(
            'me', self.sources,
            passing=lambda exc, again: isinstance(exc, TimeoutError))

        def repeat(error):
            with self.guard.repeating():
                self.fail_to_delete(error, 'deleting', False)

        self.assertTrue(self.guard.silent(self.assertRaises(
            guards.NoAnswer, repeat, TimeoutError('503'))))
        self.assertFalse(self.guard.silent(self.assertRaises(
            KeyError, repeat, KeyError())))
        # The next one in this thread is another.
        with self.guard.repeating():
            self.operate(self.act)

    def test_what_is_half_deleted_is_left_to_be_repeated(self):
        """nova would set it to ERROR."""
        self.guard = build_guard.BuildGuard(
            'me', self.sources, passing=lambda exc, again: True)

        def fail():
            raise TimeoutError

        self.sources.hosts['i1'] = InstanceState('me', vm_state='deleted')
        self.assertIsNone(self.operate(
            lambda: self.guard.attempt('delete', INSTANCE, fail)))
        self.assertEqual({'i1'}, self.guard.unfinished)

    def test_whatever_comes_after_an_operation_was_ended(self):
        """nova notes that it has ended, and cannot."""
        def fail():
            raise KeyError(takeover.taking(None, 'other'))

        def act():
            try:
                try:
                    self.guard.attempt('build', INSTANCE, fail)
                except guards.Cancelled:
                    raise ValueError('cannot be sent')
            except Exception:
                self.guard.clean_up('revert', INSTANCE, self.act)
                raise

        self.assertIsNone(self.operate(act))
        self.assertEqual([], self.done)
        self.assertEqual({'i1'}, self.guard.unfinished)

        def act_and_raise():
            with contextlib.suppress(guards.Cancelled):
                self.guard.attempt('build', INSTANCE, fail)
            raise ValueError('cannot be sent')

        self.assertIsNone(self.operate(act_and_raise))
        # The next one is another one.
        self.assertRaises(KeyError, self.operate, lambda: {}['key'])

    def test_who_is_in_a_hurry(self):
        seen = []
        for patient in False, True:
            self.operate(lambda: seen.append(self.guard.hurried),
                         patient=patient)
        self.assertEqual([True, False], seen)
        self.assertIs(False, self.guard.hurried)

    def test_a_delete_that_is_part_of_nothing_fails(self):
        """Whoever repeats it is told: nova's reaper, its start."""
        self.guard = build_guard.BuildGuard(
            'me', self.sources, passing=lambda exc, again: True)

        def fail():
            raise KeyError

        self.assertRaises(KeyError, self.guard.attempt, 'delete', INSTANCE,
                          fail)

    def test_events_are_for_those_that_are_here(self):
        self.sources.hosts['i2'] = InstanceState('other')
        self.sources.hosts['i3'] = InstanceState(None)
        self.assertEqual({'i1', 'i3'},
                         self.guard.present('event', ['i1', 'i2', 'i3']))
