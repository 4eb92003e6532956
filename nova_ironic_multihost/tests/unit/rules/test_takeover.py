# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools

import hypothesis
from hypothesis import strategies as st
from nova.compute import task_states
from nova.compute import vm_states
from nova.virt.ironic import ironic_states
from oslotest import base

from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.rules.takeover import Step
from nova_ironic_multihost.tests.unit.rules.views import view

HOST, OTHER = HostKey('host'), HostKey('other')


class BegunTestCase(base.BaseTestCase):

    def test_build_that_carries_no_mark(self):
        mark = takeover.taken('spawning', HOST)
        for vm_state, task_state, begun in (
                ('building', 'spawning', True), ('building', None, True),
                ('building', mark, False), ('active', None, False)):
            self.assertEqual(
                begun, takeover.has_begun(vm_state, task_state))


class TwiceTestCase(base.BaseTestCase):

    def test_deletes_may_be_done_twice(self):
        for vm_state, task_state, twice in (
                ('active', 'deleting', True), ('deleted', None, True),
                ('active', 'rebooting', False)):
            self.assertEqual(
                twice, takeover.may_be_done_twice(vm_state, task_state))


class EligibleTestCase(base.BaseTestCase):

    def eligible(self, when, seen, dead_for=(), after=300):
        return set(takeover.eligible(
            takeover.Policy(when, after), seen, dict(dead_for)))

    def test_never(self):
        self.assertEqual(set(), self.eligible(
            'never', view(['me', 'a'], dead=['b'], fenced=['c']),
            {'b': 1e6, 'c': 1e6}))

    def test_forced_down_is_what_an_operator_said(self):
        seen = view(['me', 'a'], dead=['b'], fenced=['c'])
        self.assertEqual({'c'}, self.eligible(
            'forced_down', seen, {'b': 1e6, 'c': 0}))

    def test_down_waits(self):
        seen = view(['me', 'a'], dead=['b'])
        for seconds, expected in ((299, set()), (300, {'b'})):
            self.assertEqual(
                expected, self.eligible('down', seen, {'b': seconds}))
        self.assertEqual(set(), self.eligible('down', seen))

    def test_who_sees_most_others_down_is_the_sick_one(self):
        both = {'a': 1e6, 'b': 1e6}
        self.assertEqual(
            set(), self.eligible('down', view(['me'], dead=['a', 'b']), both))
        self.assertEqual(
            set(), self.eligible('down', view(['me'], dead=['a']), both))
        self.assertEqual({'a', 'b'}, self.eligible(
            'down', view(['me', 'c', 'd'], dead=['a', 'b']), both))

    def test_fenced_ones_are_not_counted(self):
        seen = view(['me', 'c'], dead=['a'], fenced=['f', 'g', 'h'])
        self.assertEqual({'a', 'f', 'g', 'h'},
                         self.eligible('down', seen, {'a': 1e6}))

    def test_those_of_other_partitions_are_not_counted(self):
        shard = peers.Partition(shard='s', peer_list=('me', 'a', 'b'))
        seen = view(['me', 'x', 'y', 'z'], dead=['a', 'b'],
                    partition=shard)
        self.assertEqual(set(), self.eligible(
            'down', seen, {'a': 1e6, 'b': 1e6}))

    def test_those_of_other_partitions(self):
        shard = peers.Partition(shard='s', peer_list=('me', 'a'))
        seen = view(['me', 'a'], dead=['x'], fenced=['w'], partition=shard)
        for when, expected in (('never', set()), ('forced_down', {'w'}),
                               ('down', {'w', 'x'})):
            self.assertEqual(
                expected, self.eligible(when, seen, {'x': 1e6}))
        self.assertEqual({'w'}, self.eligible('down', seen, {'x': 299}))

    def test_who_has_no_peer_believes_its_eyes_if_most_of_all_are_up(self):
        shard = peers.Partition(shard='s', peer_list=('me',))
        for up, expected in ((['me'], set()), (['me', 'y'], {'x'})):
            seen = view(up, dead=['x'], partition=shard)
            self.assertEqual(
                expected, self.eligible('down', seen, {'x': 1e6}))
        # It goes by most of its peers for these alone.
        shard = peers.Partition(shard='s', peer_list=('me', 'a', 'b'))
        seen = view(['me', 'a'], dead=['b', 'x', 'y'], partition=shard)
        self.assertEqual({'b'}, self.eligible(
            'down', seen, dict.fromkeys('bxy', 1e6)))

    def test_who_is_no_member_takes_nothing(self):
        for seen in (view([], fenced=['a', 'me']),
                     view([], fenced=['a'], disabled=['me']),
                     view([], fenced=['a'], dead=['me'])):
            for when in takeover.POLICIES:
                self.assertEqual(set(), self.eligible(when, seen))

    @hypothesis.given(
        st.sets(st.sampled_from('abcdefg')),
        st.sets(st.sampled_from('abcdefg')),
        st.sampled_from(takeover.POLICIES))
    def test_nobody_who_is_up_is_ever_eligible(self, up, fenced, when):
        seen = view(['me', *up - fenced], fenced=fenced,
                    dead=set('abcdefg') - up - fenced)
        found = self.eligible(when, seen, dict.fromkeys('abcdefg', 1e6))
        self.assertEqual(set(), found & (up - fenced | {'me'}))

    def test_a_host_without_a_service_is_as_good_as_fenced(self):
        """Somebody has deleted the service and left the instances."""
        seen = view(['me', 'a'])
        for when, expected in ((takeover.NEVER, set()),
                               (takeover.FORCED_DOWN, {'gone'}),
                               (takeover.DOWN, {'gone'})):
            self.assertEqual(expected, set(takeover.eligible(
                takeover.Policy(when, 300), seen, {}, ['a', 'gone'])))
        other = dataclasses.replace(seen, peers=frozenset('a'))
        self.assertEqual({'gone'}, set(takeover.eligible(
            takeover.Policy(takeover.FORCED_DOWN), other, {}, ['gone'])))


class MarkTestCase(base.BaseTestCase):

    def test_it_tells_what_was_before(self):
        for before in (None, 'deleting', 'powering-off'):
            for mark in (takeover.taking(before, HOST),
                         takeover.taken(before, HOST)):
                self.assertTrue(takeover.is_mark(mark))
                self.assertFalse(takeover.is_anothers(mark, HOST))
                self.assertTrue(takeover.is_anothers(mark, OTHER))
                self.assertEqual(before, takeover.before_mark(mark))

    def test_a_mark_of_a_mark_is_another_mark(self):
        first = takeover.taking('deleting', HOST)
        for second in (takeover.taken(first, HOST),
                       takeover.taking(first, OTHER)):
            self.assertNotEqual(first, second)
            self.assertEqual('deleting', takeover.before_mark(second))

    def test_those_of_the_previous_release(self):
        mark = 'taking-over:0a1b2c3d:deleting'
        self.assertTrue(takeover.is_anothers(mark, HOST))
        self.assertEqual('deleting', takeover.before_mark(mark))

    def test_one_at_rest_needs_none(self):
        for state in None, takeover.taken(None, OTHER):
            self.assertIsNone(
                takeover.resting_or_taken('active', state, HOST))
        for vm_state, before in (
                ('error', None), ('building', None), ('deleted', None),
                ('soft-delete', None), ('active', 'deleting')):
            for state in before, takeover.taking(before, OTHER):
                self.assertEqual(
                    takeover.taken(before, HOST),
                    takeover.resting_or_taken(vm_state, state, HOST))

    def test_no_state_of_nova_is_one(self):
        states = [value for name, value in vars(task_states).items()
                  if name.isupper() and isinstance(value, str)]
        self.assertGreater(len(states), 20)
        for state in [*states, None]:
            self.assertFalse(takeover.is_mark(state))
            self.assertFalse(takeover.is_anothers(state, HOST))
            self.assertEqual(state, takeover.before_mark(state))

    def test_it_fits_into_the_column(self):
        longest = max((value for name, value in vars(task_states).items()
                       if name.isupper() and isinstance(value, str)), key=len)
        self.assertLess(len(takeover.taking(longest, HostKey('h' * 255))), 255)


class SortMarkedTestCase(base.BaseTestCase):

    def sort(self, host, task_state):
        return takeover.sort_marked(
            HOST, {'i1': InstanceState(host, task_state=task_state)})

    def assertSorted(self, host, task_state, rest=(), foreign=()):
        self.assertEqual(
            takeover.Marked(frozenset(rest), frozenset(foreign)),
            self.sort(host, task_state))

    def test_what_is_to_be_brought_to_rest(self):
        for before in None, 'deleting':
            self.assertSorted('Host', takeover.taken(before, HOST),
                              rest=['i1'])

    def test_what_another_was_about_to_take(self):
        mark = takeover.taking('rebooting', OTHER)
        self.assertSorted('host', mark, foreign=[('i1', mark)])

    def test_what_is_none_of_its_business(self):
        for host, task_state in (
                ('other', takeover.taken(None, OTHER)), (None, 'spawning'),
                ('other', takeover.taking('rebooting', HOST)),
                (None, takeover.taking('rebooting', HOST)),
                ('third', takeover.taking(None, OTHER)),
                ('host', None), ('host', 'deleting')):
            self.assertSorted(host, task_state)

    @hypothesis.given(st.sampled_from([None, 'deleting', 'spawning']),
                      st.text(min_size=1), st.text(min_size=1),
                      st.integers(0, 100))
    def test_marks_can_be_listed_and_tell_hosts_apart(
            self, state, one, two, attempt):
        states = ['deleting', 'spawning']
        for mark in (takeover.taking(state, one, attempt),
                     takeover.taken(state, one)):
            self.assertIn(mark, takeover.marks(one, states))
            self.assertEqual(one == two, mark in takeover.marks(two, states))

    def test_first_marks_tell_attempts_apart(self):
        marks = {takeover.taking('deleting', HOST, attempt)
                 for attempt in range(takeover.ATTEMPTS)}
        self.assertEqual(takeover.ATTEMPTS, len(marks))
        for mark in marks:
            self.assertFalse(takeover.is_anothers(mark, HOST))
            self.assertTrue(takeover.is_anothers(mark, OTHER))
            self.assertEqual('deleting', takeover.before_mark(mark))

    def test_errors_that_speak_of_marks(self):
        for mark in takeover.taking(None, HOST), takeover.taken('x', HOST):
            self.assertTrue(takeover.mentions_mark(
                "Expected: {'task_state': ['spawning']}. "
                f"Actual: {{'task_state': '{mark}'}}"))
        self.assertFalse(takeover.mentions_mark(
            "Actual: {'task_state': 'deleting'}"))


class StartOfNovaTestCase(base.BaseTestCase):

    def test_what_it_ends(self):
        for vm_state in 'active', 'stopped', 'rescued':
            for task_state in 'powering-off', 'rebooting', 'deleting':
                self.assertTrue(
                    takeover.ended_by_nova(vm_state, task_state))

    def test_what_it_leaves_alone(self):
        for vm_state, task_state in (
                ('active', 'rescuing'), ('active', None),
                # ComputeManager._init_instance returns at once.
                ('error', 'powering-off'), ('error', 'rebooting_hard'),
                ('soft-delete', 'powering-on'),
                # ComputeManager._retry_reboot
                ('stopped', 'reboot_pending')):
            self.assertFalse(takeover.ended_by_nova(vm_state, task_state))

    def test_what_it_gives_up(self):
        for vm_state, task_state in (
                ('building', None), ('building', 'scheduling'),
                ('building', 'networking'), ('building', 'spawning'),
                ('building', 'deleting'), ('active', 'rebuild_spawning'),
                ('stopped', 'rebuild_block_device_mapping'),
                ('error', 'rebuild_spawning')):
            self.assertTrue(takeover.lost_at_start(vm_state, task_state))
            self.assertFalse(takeover.may_wait(vm_state, task_state))

    def test_what_it_gives_up_and_may_be_asked_for_once_more(self):
        for vm_state in 'active', 'stopped', 'error':
            self.assertTrue(takeover.may_wait(vm_state, 'rebuilding'))
            self.assertFalse(takeover.lost_at_start(vm_state, 'rebuilding'))

    def test_what_it_does_not_give_up(self):
        for vm_state, task_state in (
                ('active', 'deleting'), ('active', None),
                ('stopped', 'powering-on'), ('deleted', 'rebuilding'),
                ('soft-delete', 'spawning'), ('active', 'rebooting'),
                ('shelved_offloaded', 'spawning')):
            self.assertFalse(takeover.lost_at_start(vm_state, task_state))


class AtRestTestCase(base.BaseTestCase):

    def test_what_does_nothing_any_more(self):
        for before in None, 'rebooting', 'spawning', 'rebuilding':
            for vm_state in 'active', 'stopped', 'error':
                self.assertTrue(takeover.at_rest(before, vm_state, None))

    def test_what_is_still_at_it(self):
        for before, task_state in (
                ('spawning', 'spawning'), ('networking', 'spawning'),
                ('rebooting_hard', 'reboot_pending_hard'),
                ('deleting', 'deleting'),
                (None, takeover.taken(None, HOST)),
                ('deleting', takeover.taking('deleting', OTHER))):
            self.assertFalse(
                takeover.at_rest(before, 'active', task_state))

    def test_what_somebody_has_begun_since(self):
        for before, task_state in (
                (None, 'rebooting'), ('powering-off', 'deleting'),
                ('rebooting', 'rebuilding')):
            self.assertTrue(takeover.at_rest(before, 'active', task_state))

    def test_a_delete_ends_when_it_is_gone(self):
        for before, vm_state in (
                ('deleting', 'error'), ('deleting', 'active'),
                ('soft-deleting', 'active'), (None, 'deleted')):
            self.assertFalse(takeover.at_rest(before, vm_state, None))
        self.assertTrue(
            takeover.at_rest('soft-deleting', 'soft-delete', None))

    def test_a_build_ends_as_something(self):
        for before in None, 'spawning':
            self.assertFalse(takeover.at_rest(before, 'building', None))


class StepTestCase(base.BaseTestCase):

    def step(self, *states, redeployed=False):
        return takeover.step(*states, lambda: redeployed)

    def test_nova_does_what_is_no_build(self):
        for vm_state, task_state in itertools.product(
                (vm_states.ACTIVE, vm_states.STOPPED, vm_states.RESCUED,
                 vm_states.ERROR),
                (None, task_states.POWERING_OFF,
                 task_states.REBOOTING_HARD, task_states.RESCUING)):
            self.assertIs(Step.INIT, self.step(
                vm_state, task_state, ironic_states.ACTIVE))

    def test_a_build_that_ironic_goes_on_with_is_awaited(self):
        for machine in (ironic_states.DEPLOYING, ironic_states.DEPLOYWAIT,
                        ironic_states.DEPLOYHOLD, ironic_states.DEPLOYDONE):
            for task_state in (task_states.SPAWNING,
                               task_states.BLOCK_DEVICE_MAPPING, None):
                self.assertIs(Step.AWAIT, self.step(
                    vm_states.BUILDING, task_state, machine))

    def test_a_build_that_ironic_is_done_with(self):
        self.assertIs(Step.DEPLOYED, self.step(
            vm_states.BUILDING, task_states.SPAWNING, ironic_states.ACTIVE))

    def test_a_build_that_ironic_has_not_begun_or_lost_fails(self):
        for machine in (None, ironic_states.AVAILABLE,
                        ironic_states.DEPLOYFAIL, ironic_states.ERROR,
                        ironic_states.CLEANING):
            self.assertIs(Step.FAIL, self.step(
                vm_states.BUILDING, task_states.SPAWNING, machine))

    def test_what_is_to_be_deleted_is(self):
        for vm_state in (vm_states.ACTIVE, vm_states.BUILDING,
                         vm_states.ERROR, vm_states.SOFT_DELETED):
            for task_state in (task_states.DELETING,
                               task_states.SOFT_DELETING):
                self.assertIs(Step.DELETE, self.step(
                    vm_state, task_state, ironic_states.DEPLOYING))

    def test_what_is_to_be_restored_is(self):
        self.assertIs(Step.RESTORE, self.step(
            vm_states.SOFT_DELETED, task_states.RESTORING,
            ironic_states.ACTIVE))

    def test_a_rebuild_that_ironic_goes_on_with_is_awaited(self):
        self.assertIs(Step.AWAIT, self.step(
            vm_states.ACTIVE, task_states.REBUILD_SPAWNING,
            ironic_states.DEPLOYING))

    def test_a_rebuild_of_which_ironic_was_not_told_fails(self):
        for task_state in (task_states.REBUILDING,
                           task_states.REBUILD_BLOCK_DEVICE_MAPPING):
            self.assertIs(Step.FAIL, self.step(
                vm_states.ACTIVE, task_state, ironic_states.ACTIVE))

    def test_a_rebuild_of_which_ironic_was_perhaps_told(self):
        for redeployed, expected in ((False, Step.FAIL),
                                     (True, Step.DEPLOYED)):
            self.assertIs(expected, self.step(
                vm_states.ACTIVE, task_states.REBUILD_SPAWNING,
                ironic_states.ACTIVE, redeployed=redeployed))

    def test_a_rebuild_of_a_server_in_error(self):
        for machine, redeployed, expected in (
                (ironic_states.DEPLOYING, False, Step.AWAIT),
                (ironic_states.ACTIVE, True, Step.DEPLOYED),
                (ironic_states.ACTIVE, False, Step.FAIL),
                (ironic_states.DEPLOYFAIL, False, Step.FAIL)):
            self.assertIs(expected, self.step(
                vm_states.ERROR, task_states.REBUILD_SPAWNING, machine,
                redeployed=redeployed))

    def test_what_is_over_stays_so(self):
        for vm_state, task_state in (
                (vm_states.SOFT_DELETED, task_states.REBUILD_SPAWNING),
                (vm_states.ERROR, task_states.SPAWNING)):
            self.assertIs(Step.INIT, self.step(
                vm_state, task_state, ironic_states.DEPLOYFAIL))

    def test_what_is_half_deleted_is_deleted(self):
        for task_state in (task_states.REBUILD_SPAWNING, None,
                           task_states.DELETING):
            self.assertIs(Step.DELETE, self.step(
                vm_states.DELETED, task_state, ironic_states.ACTIVE))


class RestingTestCase(base.BaseTestCase):

    def test_rescue_as_the_machine_has_it(self):
        for vm_state, machine, expected in (
                (vm_states.ACTIVE, ironic_states.RESCUE, vm_states.RESCUED),
                (vm_states.RESCUED, ironic_states.ACTIVE, vm_states.ACTIVE),
                (vm_states.RESCUED, ironic_states.UNRESCUEFAIL,
                 vm_states.RESCUED),
                (vm_states.STOPPED, ironic_states.ACTIVE, vm_states.STOPPED)):
            self.assertEqual(
                expected, takeover.resting(vm_state, machine))
