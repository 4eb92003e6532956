# SPDX-License-Identifier: Apache-2.0

import contextlib
import copy
import datetime
import logging
import threading
import types
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.engine.audit import operator_news
from nova_ironic_multihost.engine.base import metrics
from nova_ironic_multihost.engine.servers import recovery
from nova_ironic_multihost.engine.servers import stuck_instances
from nova_ironic_multihost.rules import backoff
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover


NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


def end(row):
    """Do what nova's start of a service does."""
    if takeover.ended_by_nova(row.vm_state, row.task_state):
        row.task_state = None


class Instances:
    """Instances in a dict; what nova does for them is noted."""

    def __init__(self):
        self.rows = {}
        self.done = []
        self.asked = 'rebuild'
        self.init_does = end

    def have(self, vm_state, task_state, uuid='i1', host='mine'):
        self.rows[uuid] = types.SimpleNamespace(
            uuid=uuid, vm_state=vm_state, task_state=task_state, host=host)

    def busy(self, host):
        marks = takeover.marks(host_key(host), nova_servers.TASK_STATES)
        return {uuid: InstanceState(row.host, vm_state=row.vm_state,
                                    task_state=row.task_state)
                for uuid, row in self.rows.items()
                if (row.task_state in takeover.TASKS
                    or row.task_state in marks
                    or row.vm_state in ('building', 'deleted'))
                and row.host.lower() == host.lower()}

    def spell_host(self, uuid):
        self.rows[uuid].host = 'Mine'

    def of_host(self, host, after):
        """Return one at a time."""
        its = sorted(uuid for uuid, row in self.rows.items()
                     if row.host.lower() == host.lower()
                     and (after is None or uuid > after))
        return {uuid: InstanceState(
            self.rows[uuid].host, task_state=self.rows[uuid].task_state)
            for uuid in its[:1]}

    def read(self, uuid):
        return copy.copy(self.rows.get(uuid))

    def set_states(self, instance, vm_state, task_state):
        row = self.rows.get(instance.uuid)
        if row is None or row.task_state != instance.task_state:
            return False
        row.vm_state = instance.vm_state = vm_state
        row.task_state = instance.task_state = task_state
        return True

    def began(self, uuid, action):
        return NOON if action == 'rebuild' else None

    def asked_last(self, uuid):
        return self.asked

    def init(self, instance):
        self.done.append(('init', instance.task_state))
        self.init_does(self.rows[instance.uuid])

    def delete(self, instance):
        self.done.append(('delete', instance.task_state))
        del self.rows[instance.uuid]

    def restore(self, instance):
        self.done.append(('restore', instance.task_state))
        row = self.rows[instance.uuid]
        row.vm_state, row.task_state = 'active', None

    def notify(self, event, payload):
        raise OSError('no bus')

    def fail(self, instance, reason):
        self.done.append(('fail', reason))
        self.rows[instance.uuid].vm_state = 'error'
        self.rows[instance.uuid].task_state = None

    def deployed(self, instance):
        self.done.append(('deployed', instance.task_state))
        self.rows[instance.uuid].vm_state = 'active'
        self.rows[instance.uuid].task_state = None


class InstancesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self):
        """Begin with nothing."""
        self.instances = Instances()
        self.machine = 'active'
        self.redeployed = False
        self.now = 0
        # What nova is at.
        self.at_work, self.unfinished, self.repeats = set(), set(), False
        self.last_note = object()
        # Messages that wait in the queue, and how often one was sent there.
        self.waiting, self.received = False, 0
        # Builds that are here, if only to wait for their turn.
        self.arrived = set()
        # Instances whose builds wait anew.
        self.came = set()
        # What becomes of a build that Ironic was not told of.
        self.attempt = takeover.Step.FAIL
        self.recorder = metrics.Metrics(lambda: self.now)
        self.recovery = recovery.Recovery(
            'Mine', self.instances, self, self, self, lambda: self.now,
            recorder=self.recorder, receive=self.receive)

    def here(self, uuid):
        return uuid in self.arrived

    def step(self, instance, provision_state):
        self.assertEqual(('i1', self.machine), (
            instance.uuid, provision_state))
        return self.attempt

    def wait_anew(self, instances):
        self.came = {*self.came, *instances}

    def undo(self, instance):
        self.instances.done.append(('undo', instance.task_state))
        self.instances.rows[instance.uuid].host = None

    def receive(self):
        self.received += 1
        if self.waiting:
            raise TimeoutError

    def silent(self, exc):
        return isinstance(exc, ConnectionError)

    def note_unfinished(self, uuid):
        self.last_note = object()
        self.unfinished.add(uuid)

    def forget(self, uuids):
        self.unfinished -= uuids

    @contextlib.contextmanager
    def repeating(self):
        self.repeats = True
        yield
        self.repeats = False

    def join(self):
        """Wait for all that goes on."""
        while threads := [thread for thread in threading.enumerate()
                          if thread.name == 'ironic-multihost-takeover']:
            for thread in threads:
                thread.join(60)

    def bring_to_rest(self):
        self.assertTrue(self.recovery.bring_to_rest('i1'))

    # The machines.

    def provision_state(self, instance):
        return self.machine

    def deployed_since(self, instance, moment):
        self.assertEqual(NOON, moment)
        return self.redeployed

    def taken(self, vm_state, task_state, uuid='i1'):
        self.instances.have(
            vm_state, takeover.taken(task_state, 'mine'), uuid)

    def taking(self, task_state, by, host):
        self.instances.have(
            'active', takeover.taking(task_state, by), host=host)

    def states(self, uuid='i1'):
        row = self.instances.rows[uuid]
        return row.vm_state, row.task_state

    def sweep_often(self, times, **services):
        for _ in range(times):
            with contextlib.suppress(TimeoutError):
                self.recovery.sweep(self.view(**services))
        self.join()

    def view(self, **services):
        """Return what is seen of hosts that are up, down (None: fenced)."""
        return peers.view(
            [peers.ComputeService(
                host, up=bool(up), forced_down=up is None)
             for host, up in ({'mine': True} | services).items()],
            peers.Partition(), 'mine')


class RecoveryTestCase(InstancesTestCase):

    def test_one_that_did_nothing(self):
        self.taken('active', None)
        self.bring_to_rest()
        self.assertEqual([('init', None)], self.instances.done)
        self.assertEqual(('active', None), self.states())

    def test_nova_sees_what_it_was_doing(self):
        self.taken('active', 'powering-off')
        self.bring_to_rest()
        self.assertEqual([('init', 'powering-off')], self.instances.done)

    def test_what_is_to_be_deleted_is(self):
        for vm_state in ('active', 'building', 'error', 'soft-delete'):
            self.taken(vm_state, 'deleting')
            self.bring_to_rest()
            self.assertEqual({}, self.instances.rows)
        self.assertEqual([('delete', 'deleting')] * 4, self.instances.done)

    def test_who_deletes_knows_that_it_is_not_the_first_time(self):
        seen = []
        delete = self.instances.delete

        def note(instance):
            seen.append(self.repeats)
            delete(instance)

        self.instances.delete = note
        self.taken('active', 'deleting')
        self.bring_to_rest()
        self.assertEqual([True], seen)
        self.assertFalse(self.repeats)

    def test_what_is_to_be_restored_is(self):
        self.taken('soft-delete', 'restoring')
        self.bring_to_rest()
        self.assertEqual([('restore', 'restoring')], self.instances.done)
        self.assertEqual(('active', None), self.states())

    def test_what_nova_does_not_end_is_ended(self):
        self.taken('active', 'rescuing')
        self.machine = 'rescue wait'
        self.assertFalse(self.recovery.bring_to_rest('i1'))
        self.machine = 'rescue'
        self.bring_to_rest()
        self.assertEqual(('rescued', None), self.states())

    def test_server_in_error_that_was_to_be_stopped(self):
        """nova's start leaves it alone."""
        for task_state in 'powering-off', 'rebooting_hard', 'rebooting':
            self.taken('error', task_state)
            self.bring_to_rest()
            self.assertEqual(('error', None), self.states())

    def test_one_that_another_took_meanwhile_is_anothers(self):
        self.taken('active', 'rescuing')

        def rob(row):
            row.host = 'other'

        self.instances.init_does = rob
        self.bring_to_rest()
        self.assertEqual(('active', 'rescuing'), self.states())

    def test_what_somebody_else_began_meanwhile_goes_on(self):
        self.taken('active', 'rescuing')

        def begin(row):
            row.task_state = 'rebooting'

        self.instances.init_does = begin
        self.bring_to_rest()
        self.assertEqual(('active', 'rebooting'), self.states())

    def test_a_build_that_goes_on(self):
        self.taken('building', 'spawning')
        self.machine = 'deploying'
        self.assertFalse(self.recovery.bring_to_rest('i1'))
        self.assertEqual([], self.instances.done)
        self.machine = 'active'
        self.bring_to_rest()
        self.assertEqual([('deployed', 'spawning')], self.instances.done)
        self.assertEqual(('active', None), self.states())

    def test_a_build_that_is_over_and_has_to_be_stopped(self):
        """A full sweep sees that nobody is at work on that."""
        def deployed(instance):
            self.instances.have('active', 'powering-off')

        self.taken('building', 'spawning')
        with mock.patch.object(self.instances, 'deployed', deployed):
            self.bring_to_rest()
        self.sweep_often(stuck_instances.ON_ITS_WAY + 1)
        self.assertEqual([('init', 'powering-off')], self.instances.done)
        self.assertEqual(('active', None), self.states())

    def test_late_write_takes_the_mark_off(self):
        """Of any task, as no sweep would find all of them without a mark."""
        def lose(instance, vm_state, task_state):
            late.append((copy.copy(instance), vm_state, task_state))
            raise TimeoutError

        for task_state in 'shelving', 'rebooting':
            late = []
            self.begin()
            self.taken('active', task_state)
            with mock.patch.object(self.instances, 'set_states', lose):
                self.sweep_often(1)
            for one in late:
                self.assertTrue(self.instances.set_states(*one))
            self.assertEqual(('active', task_state), self.states())
            for _ in range(5):
                self.now += 60
                self.sweep_often(1)
            self.assertEqual([('init', task_state)], self.instances.done)
            self.assertEqual(('active', None), self.states())
            self.assertEqual(frozenset(), self.recovery._in_progress())

    def test_marks_that_cannot_be_taken_off_are_read_by_no_sweep(self):
        """There may be thousands, and each answer may take a minute."""
        uuids = [f'i{number}' for number in range(20)]
        for uuid in uuids:
            self.instances.have(
                'active', takeover.taken('rebooting', 'mine'), uuid)
        with mock.patch.object(self.instances, 'set_states',
                               side_effect=TimeoutError):
            self.sweep_often(1)
            with mock.patch.object(self.instances, 'read',
                                   wraps=self.instances.read) as read:
                self.recovery.sweep()
            self.assertEqual(0, read.call_count)
        for _ in range(30):
            self.now += 60
            self.sweep_often(1)
        self.assertEqual({None}, {
            row.task_state for row in self.instances.rows.values()})
        self.assertEqual(frozenset(), self.recovery._in_progress())

    def test_mark_that_a_worker_cannot_put_back(self):
        """A sweep does, although nova lists no instances."""
        def set_states(instance, vm_state, task_state):
            if task_state == mark and failures:
                raise failures.pop()
            return was(instance, vm_state, task_state)

        failures, was = [TimeoutError()], self.instances.set_states
        mark = takeover.taken('rebooting', 'mine')
        self.instances.have('active', mark)
        with mock.patch.multiple(
                self.instances, set_states=set_states,
                init=mock.Mock(side_effect=TimeoutError)):
            self.sweep_often(1)
            self.assertEqual(('active', 'rebooting'), self.states())
            with mock.patch.object(self.instances, 'busy',
                                   side_effect=TimeoutError):
                self.assertRaises(TimeoutError, self.recovery.sweep)
        self.assertEqual(('active', mark), self.states())

    def test_mark_that_is_taken_off_while_nova_lists_the_instances(self):
        """With an answer, and without one."""
        def set_states(instance, vm_state, task_state):
            fails = answers.pop(0)
            done = not fails or task_state != mark
            found = was(instance, vm_state, task_state) if done else None
            if fails:
                raise TimeoutError
            return found

        def busy(host):
            found = listed(host)
            self.recovery._work_on('i1')
            return found

        mark, answers = takeover.taken('rebooting', 'mine'), []
        for first in False, True:
            self.begin()
            answers[:] = first, True, False
            was, listed = self.instances.set_states, self.instances.busy
            self.instances.have('active', mark)
            self.recovery._start = lambda *args: False
            with mock.patch.multiple(
                    self.instances, set_states=set_states, busy=busy,
                    init=mock.Mock(side_effect=TimeoutError)):
                self.recovery.sweep()
                self.assertEqual(('active', 'rebooting'), self.states())
                self.instances.busy = mock.Mock(side_effect=TimeoutError)
                self.assertRaises(TimeoutError, self.recovery.sweep)
            self.assertEqual(('active', mark), self.states())

    def test_operation_that_fails_while_nova_lists_the_instances(self):
        """Its note stays, also if an earlier one of it is over."""
        self.instances.have('active', None)
        self.note_unfinished('i1')
        busy = self.instances.busy

        def list_late(host):
            found = busy(host)
            self.instances.busy = busy
            self.instances.have('active', 'powering-off')
            self.note_unfinished('i1')
            return found

        self.instances.busy = list_late
        self.sweep_often(1)
        self.assertEqual({'i1'}, self.unfinished)
        self.sweep_often(stuck_instances.UNATTENDED + 1)
        self.assertEqual(('active', None), self.states())
        self.sweep_often(1)
        self.assertEqual(set(), self.unfinished)

    def test_one_that_is_taken_back(self):
        """Another host was about to take it: it may still do so."""
        self.taking('rebooting', 'other', 'mine')
        self.assertRaises(recovery.StillBusy,
                          self.recovery.bring_to_rest, 'i1')

    def test_evacuation_is_nothing_that_it_was_doing(self):
        """Nobody rebuilds it; nova's start would set it to ERROR."""
        self.instances.asked = 'evacuate'
        for vm_state in 'active', 'stopped', 'error':
            self.taken(vm_state, 'rebuilding')
            self.bring_to_rest()
            self.assertEqual((vm_state, None), self.states())
        self.assertEqual([('init', None)] * 3, self.instances.done)

    def test_a_rebuild_of_which_ironic_was_told_or_not(self):
        for self.redeployed, expected in ((True, 'active'),
                                          (False, 'error')):
            self.taken('active', 'rebuild_spawning')
            self.bring_to_rest()
            self.assertEqual((expected, None), self.states())

    def test_a_build_that_fails_in_the_end(self):
        self.taken('building', 'spawning')
        self.machine = 'deploy failed'
        self.bring_to_rest()
        [(what, reason)] = self.instances.done
        self.assertEqual('fail', what)
        self.assertIn('deploy failed', reason)

    def test_a_build_that_ironic_was_not_told_of_begins_again(self):
        self.taken('building', 'networking')
        self.machine = None
        self.attempt = takeover.Step.AWAIT
        self.assertFalse(self.recovery.bring_to_rest('i1'))
        # Users see a build, and whoever comes after this process the mark.
        self.assertEqual([], self.instances.done)
        self.assertTrue(takeover.is_mark(self.states()[1]))
        self.attempt = takeover.Step.REPEAT
        self.bring_to_rest()
        self.assertEqual([('undo', 'networking')], self.instances.done)

    def test_a_rebuild_that_ironic_was_not_told_of_does_not(self):
        self.taken('active', 'rebuilding')
        self.attempt = takeover.Step.REPEAT
        self.bring_to_rest()
        self.assertEqual('fail', self.instances.done[0][0])

    def test_one_that_is_gone_or_not_being_taken_over(self):
        self.bring_to_rest()
        self.instances.have('active', 'rebooting')
        self.bring_to_rest()
        self.taking('rebooting', 'mine', 'other')
        self.bring_to_rest()
        self.assertEqual([], self.instances.done)

    def test_one_whose_mark_was_taken_off_by_a_process_that_is_gone(self):
        """Its write came late: nobody is at work on what it was doing."""
        self.instances.have('active', 'rebooting')
        self.bring_to_rest()
        self.assertEqual([], self.instances.done)
        self.sweep_often(stuck_instances.UNATTENDED)
        self.assertEqual([('init', 'rebooting')], self.instances.done)

    def test_one_that_another_host_has_taken_since(self):
        self.taken('active', None)
        read = self.instances.read

        def read_too_late(uuid):
            instance = read(uuid)
            self.instances.rows[uuid].task_state = takeover.taking(
                None, 'other')
            return instance

        self.instances.read = read_too_late
        self.assertFalse(self.recovery.bring_to_rest('i1'))
        self.assertEqual([], self.instances.done)

    def test_a_mark_that_is_taken_away_at_the_start(self):
        """Who wrote it has undone it; nova's start has not seen it."""
        self.taking('powering-off', 'other', 'mine')
        mark_again = self.recovery._mark_again

        def be_too_late(uuid):
            self.instances.rows[uuid].task_state = 'powering-off'
            self.recovery._mark_again = mark_again

        self.recovery._mark_again = be_too_late
        self.recovery.start(self.fail, self.instances.rows['i1'])
        for self.now in 5, 15:
            self.join()
            self.recovery.sweep()
        self.join()
        self.assertEqual([('init', 'powering-off')], self.instances.done)
        self.assertEqual(('active', None), self.states())


class WorkTestCase(InstancesTestCase):
    """In a thread."""

    def add(self, *uuids):
        self.recovery.add(uuids)
        self.join()

    def test_a_notification_that_cannot_be_sent_hurts_nobody(self):
        self.taken('active', 'rescuing')
        with self.assertLogs(operator_news.__name__, 'WARNING') as logs:
            self.recovery.took_over({'i1': 'dead'})
            self.join()
        self.assertIn('no bus', logs.output[0])
        self.assertEqual(('active', None), self.states())

    def test_it_is_told_who_took_over_from_whom(self):
        with mock.patch.object(self.instances, 'notify') as notify:
            self.recovery.took_over({'i1': 'dead'}, at_rest={'i1'})
            self.join()
        [(_, payload)] = [call.args for call in notify.mock_calls]
        told = payload['ironic_multihost_object.data']
        self.assertEqual(('Mine', 'dead', ['i1']), (
            told['host'], told['source_host'], told['instances']))
        self.assertEqual({'i1'}, self.came)

    def test_only_so_many_at_once(self):
        running, most = [], []

        def init(row):
            running.append(row)
            most.append(len(running))
            running.remove(row)

        self.instances.init_does = init
        uuids = [f'i{i}' for i in range(5 * recovery.WORKERS)]
        for uuid in uuids:
            self.taken('active', None, uuid)
        self.add(*uuids)
        self.assertEqual(len(uuids), len(most))
        self.assertLessEqual(max(most), recovery.WORKERS)

    def test_one_that_fails_does_not_hold_up_the_others(self):
        for uuid in ('i1', 'i2'):
            self.taken('active', None, uuid)

        def fail_one(row):
            if row.uuid == 'i1':
                raise ValueError('no')

        self.instances.init_does = fail_one
        with mock.patch.object(recovery, 'WORKERS', 1):
            self.add('i1', 'i2')
        self.assertEqual(2, len(self.instances.done))


class FailureTestCase(InstancesTestCase):
    """Nothing is lost with a call that fails, whichever it is."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.FakeLogger(level=logging.ERROR))

    def sweep(self):
        self.recovery.sweep()
        self.join()

    def sweep_if_it_can(self):
        """As the timer does: it is repeated."""
        with contextlib.suppress(OSError):
            self.sweep()

    def failing(self, method, *errors):
        """Let the first calls of a method raise, and do it or not."""
        target = (self if method == 'provision_state' else self.instances)
        original = getattr(type(target), method).__get__(target)
        errors = list(errors)

        def fail(*args):
            if not errors:
                return original(*args)
            done = errors.pop(0)
            if done:
                original(*args)
            raise OSError('no answer')

        setattr(target, method, fail)

    def test_whatever_fails_is_done_by_a_later_sweep(self):
        for vm_state, before, machine in (
                ('active', None, 'active'), ('active', 'rescuing', 'rescue'),
                ('active', 'deleting', 'active'),
                ('active', 'rebuild_spawning', 'active'),
                ('active', 'rebuilding', 'active'),
                ('building', 'spawning', 'active'),
                ('building', 'spawning', None)):
            for method in ('busy', 'read', 'provision_state', 'set_states',
                           'init', 'delete', 'fail', 'deployed', 'began',
                           'asked_last'):
                for errors in (False,), (True,), (False, False), (True, False):
                    self.begin()
                    self.machine, self.redeployed = machine, True
                    self.taken(vm_state, before)
                    self.failing(method, *errors)
                    self.sweep_for_a_minute()
                    rows = self.instances.rows.values()
                    self.assertEqual(
                        [] if before == 'deleting' else [None],
                        [row.task_state for row in rows], (method, errors))
                    self.assertNotIn(
                        'building', [row.vm_state for row in rows])

    def asking(self, act, sweeps=3 * recovery.FULL_SWEEP):
        """Return how often it is asked what is marked, in the sweeps after."""
        asked = []
        for _ in range(recovery.FULL_SWEEP + 1):
            self.sweep_often(1)
        act()
        self.join()
        busy = self.instances.busy
        with mock.patch.object(
                self.instances, 'busy',
                lambda host: asked.append(1) or busy(host)):
            self.sweep_often(sweeps)
        return len(asked)

    def test_marks_are_looked_for_now_and_then_while_all_rests(self):
        self.taken('active', 'powering-off')
        self.assertEqual(3, self.asking(lambda: None))
        self.assertEqual(('active', None), self.states())
        # Some may have been written.
        for act in (self.recovery.note_silence,
                    lambda: self.recovery.took_over({'i2': 'other'})):
            self.assertEqual(4, self.asking(act))

    def test_marks_are_looked_for_in_each_sweep_while_there_are_some(self):
        self.taken('active', 'powering-off')
        with mock.patch.object(
                self.instances, 'init', side_effect=ValueError):
            self.assertEqual(10, self.asking(lambda: None, 10))

    def sweep_for_a_minute(self):
        for _ in range(12):
            self.sweep_if_it_can()
            self.now += 5

    def test_start_that_cannot_know_of_an_evacuation(self):
        self.instances.asked = 'evacuate'
        self.instances.have('active', 'rebuilding')
        self.failing('asked_last', False, False)
        self.recovery.start(self.fail, self.instances.read('i1'))
        self.join()
        self.sweep_for_a_minute()
        self.assertEqual(('active', None), self.states())

    def test_answer_that_is_lost_of_a_build_that_had_hardly_begun(self):
        self.machine = None
        self.taken('building', None)
        self.failing('set_states', True)
        self.sweep_for_a_minute()
        self.assertEqual(('error', None), self.states())

    def test_nobody_else_begins_before_the_mark_is_there_again(self):
        self.taken('active', 'powering-off')
        self.failing('init', False)
        write, done = self.instances.set_states, []

        def write_and_be_slow(instance, vm_state, task_state):
            written = write(instance, vm_state, task_state)
            if takeover.is_mark(task_state):
                self.now += backoff.LONGEST
                self.recovery.sweep()
                done.append(list(self.instances.done))
            return written

        self.instances.set_states = write_and_be_slow
        self.sweep()
        self.assertEqual([[]], done)
        self.sweep_for_a_minute()
        self.assertEqual(('active', None), self.states())

    def test_all_go_on_soon_when_there_are_answers_again(self):
        """However long there were none."""
        many = [f'i{n}' for n in range(3 * recovery.WORKERS)]
        for uuid in many:
            self.taken('active', 'deleting', uuid)
        delete, self.instances.delete = self.instances.delete, mock.Mock(
            side_effect=ConnectionError)
        with mock.patch.object(recovery.LOG, 'warning') as warning:
            for self.now in range(0, 3600, 10):
                self.sweep()
        # Each tells of it once, and a few ask again in each sweep.
        self.assertEqual(len(many), warning.call_count)
        self.assertEqual(len(many) + 359 * recovery.WORKERS,
                         self.instances.delete.call_count)
        self.instances.delete = delete
        for self.now in 3600, 3610:
            self.sweep()
        self.assertEqual({}, self.instances.rows)

    def test_workers_that_end_are_replaced(self):
        self.taken('active', None)
        with mock.patch.object(self.recovery, 'bring_to_rest',
                               side_effect=GeneratorExit), mock.patch(
                'threading.excepthook'):
            for _ in range(2 * recovery.WORKERS):
                self.now += backoff.LONGEST
                self.sweep()
        self.sweep_for_a_minute()
        self.assertEqual(('active', None), self.states())

    def test_what_is_not_done_and_does_not_fail(self):
        """The guard could not read; nova has logged an error."""
        for vm_state, before, method in (
                ('active', 'deleting', 'delete'),
                ('building', 'spawning', 'fail'),
                ('deleted', None, 'delete')):
            self.begin()
            self.machine = None
            self.taken(vm_state, before)
            once = [True]
            do = getattr(self.instances, method)

            def not_at_first(*args):
                if once:
                    once.pop()
                else:
                    do(*args)

            setattr(self.instances, method, not_at_first)
            self.sweep_for_a_minute()
            if self.instances.rows:
                self.assertEqual(('error', None), self.states())
            self.assertEqual(before == 'spawning',
                             bool(self.instances.rows))

    def test_what_nova_gives_up_is_tried_again(self):
        """It takes the task state away from what has failed."""
        self.taken('active', 'deleting')

        def fail_once(instance):
            self.instances.delete = delete
            row = self.instances.rows[instance.uuid]
            row.vm_state, row.task_state = 'error', None
            raise OSError('503')

        delete, self.instances.delete = self.instances.delete, fail_once
        self.sweep()
        # Whoever comes after this process knows.
        self.assertEqual(('error', takeover.taken('deleting', 'mine')),
                         self.states())
        self.sweep_for_a_minute()
        self.assertEqual({}, self.instances.rows)

    def test_what_an_operator_calls_off(self):
        self.taken('active', 'deleting')

        def fail(instance):
            row = self.instances.rows[instance.uuid]
            row.vm_state, row.task_state = 'error', None
            raise OSError('503')

        self.instances.delete = fail
        self.sweep()
        self.instances.rows['i1'].task_state = None
        self.instances.rows['i1'].vm_state = 'active'
        self.sweep_for_a_minute()
        self.assertEqual(('active', None), self.states())

    def test_a_restore_that_fails(self):
        """nova would delete the server at its next look at such ones."""
        self.taken('soft-delete', 'restoring')
        restore = self.instances.restore

        def fail_once(instance):
            self.instances.restore = restore
            self.instances.rows[instance.uuid].task_state = None
            raise OSError('503')

        self.instances.restore = fail_once
        self.sweep()
        self.assertEqual(takeover.taken('restoring', 'mine'),
                         self.states()[1])
        self.sweep_for_a_minute()
        self.assertEqual(('active', None), self.states())

    def test_what_nova_should_have_ended_and_did_not(self):
        """It logs that and goes on."""
        for before in 'powering-off', 'rebooting':
            self.begin()
            self.taken('active', before)
            self.instances.init_does = lambda row: None
            self.sweep()
            self.assertEqual(takeover.taken(before, 'mine'),
                             self.states()[1])
            self.instances.init_does = end
            self.sweep_for_a_minute()
            self.assertEqual(('active', None), self.states())

    def test_what_nova_went_on_with_before_it_failed(self):
        self.taken('active', 'rebooting_hard')

        def fail_once(row):
            self.instances.init_does = end
            row.task_state = 'reboot_pending_hard'
            raise OSError('no answer')

        self.instances.init_does = fail_once
        self.sweep_for_a_minute()
        self.assertEqual(('active', None), self.states())

    def test_a_write_that_is_done_when_nobody_counts_on_it(self):
        """It takes the mark away."""
        self.taken('active', 'powering-off')
        set_states = self.instances.set_states

        def lose(*args):
            self.instances.set_states = set_states
            raise OSError('no answer')

        self.instances.set_states = lose
        self.sweep_often(2)
        self.instances.rows['i1'].task_state = 'powering-off'
        self.now += 60
        self.sweep_often(stuck_instances.UNATTENDED)
        self.assertEqual(('active', None), self.states())

    def test_another_host_that_comes_too_late(self):
        """Its mark is written while this host is at it, and taken away."""
        self.taken('active', 'powering-off')

        def be_marked(row):
            self.instances.init_does = end
            row.task_state = takeover.taking('powering-off', 'other')

        self.instances.init_does = be_marked
        self.sweep()
        self.assertEqual(
            takeover.taken('powering-off', 'mine'), self.states()[1])
        self.sweep_for_a_minute()
        self.assertEqual(('active', None), self.states())

    def test_one_that_always_fails_holds_up_no_other(self):
        self.taken('active', None, 'i1')
        self.taken('active', None, 'i2')
        read = self.instances.read

        def fail(uuid):
            if uuid == 'i1':
                raise OSError('corrupt')
            return read(uuid)

        self.recovery._unmarked['i1'] = None
        self.instances.read = fail
        self.sweep()
        self.assertEqual(('active', None), self.states('i2'))

    def test_not_what_somebody_has_begun_since(self):
        self.taken('active', None)

        def begin_and_fail(row):
            row.task_state = 'deleting'
            raise OSError('503')

        self.instances.init_does = begin_and_fail
        for _ in range(3):
            self.sweep()
        self.assertEqual(('active', 'deleting'), self.states())

    def test_it_is_tried_again_and_again_more_and_more_slowly(self):
        self.taken('active', 'deleting')
        tried = []

        def fail(instance):
            tried.append(self.now)
            # A sweep meanwhile sees no mark.
            self.recovery._due(frozenset())
            raise OSError('503')

        self.instances.delete = fail
        for self.now in range(0, 1300, 5):
            self.sweep()
        self.assertEqual([0, 10, 30, 70, 150, 310, 610, 910, 1210], tried)

    def test_ironic_is_not_asked_all_the_time_whether_it_has_deployed(self):
        for vm_state, before in (('building', 'spawning'),
                                 ('active', 'rebuild_spawning')):
            self.begin()
            self.taken(vm_state, before)
            self.machine = 'deploying'
            asked = []

            def provision_state(instance):
                asked.append(self.now)
                return self.machine

            self.provision_state = provision_state
            for self.now in range(0, 40, 5):
                self.sweep()
            self.assertEqual([0, 10, 20, 30], asked)
            del self.provision_state

    def test_what_another_has_taken_when_it_fails_gets_no_mark(self):
        def rob(row):
            row.host = 'other'
            raise OSError('no answer')

        self.taken('active', 'rescuing')
        self.instances.init_does = rob
        self.sweep()
        self.sweep()
        self.assertEqual(('active', 'rescuing'), self.states())

    def test_threads_that_are_used_up(self):
        self.taken('active', None)
        start = self.recovery._start
        self.recovery._start = lambda *args: False
        for _ in range(2 * recovery.WORKERS):
            self.recovery.took_over({'i1': 'dead'})
            self.recovery.sweep()
        self.recovery._start = start
        self.sweep()
        self.assertEqual(('active', None), self.states())


class SweepTestCase(InstancesTestCase):

    def sweep(self):
        self.recovery.sweep()
        self.join()

    def pending(self):
        return dict(self.recorder.pending[Pending.REST])

    def test_what_is_not_at_rest_is_pending_from_when_it_was_seen(self):
        self.taken('active', 'rescuing')
        init, self.instances.init_does = (
            self.instances.init_does, mock.Mock(side_effect=OSError))
        self.now = 10
        self.sweep()
        self.assertEqual({'i1': 10}, self.pending())
        self.now = 2000
        self.sweep()
        self.assertEqual({'i1': 10}, self.pending())
        self.instances.init_does = init
        self.now = 4000
        self.sweep()
        self.assertEqual(('active', None), self.states())
        self.sweep()
        self.assertEqual({}, self.pending())

    def test_what_ironic_deploys_is_pending(self):
        self.machine = 'deploying'
        self.taken('active', 'rebuild_spawning')
        self.sweep()
        self.sweep()
        self.assertEqual({'i1'}, self.pending().keys())

    def test_what_cannot_be_asked_for_stays_pending(self):
        self.taken('active', 'rescuing')
        self.instances.init_does = mock.Mock(side_effect=OSError)
        self.sweep()
        with mock.patch.object(self.instances, 'busy',
                               side_effect=TimeoutError):
            self.assertRaises(TimeoutError, self.recovery.sweep)
        self.assertEqual({'i1'}, self.pending().keys())

    def test_nobody_is_at_work_on_one_twice(self):
        self.taken('active', None)
        at_work, go_on = threading.Event(), threading.Event()

        def wait(row):
            at_work.set()
            go_on.wait(60)

        self.instances.init_does = wait
        self.recovery.sweep()
        at_work.wait(60)
        # As if the mark were there.
        self.taken('active', None)
        self.recovery.sweep()
        self.recovery.add(['i1'])
        go_on.set()
        self.join()
        self.assertEqual(1, len(self.instances.done))


class StartTestCase(InstancesTestCase):

    def start(self, init):
        self.recovery.start(init, self.instances.rows['i1'])

    def test_nova_does_it(self):
        self.instances.have('active', 'powering-off')
        called = []
        self.start(lambda: called.append(True))
        self.assertEqual([True], called)

    def test_what_rests_is_let_be(self):
        for vm_state in ('active', 'stopped', 'rescued', 'shelved'):
            self.instances.have(vm_state, None)
            self.start(lambda: self.fail('nova asks Ironic twice'))
            self.assertEqual((vm_state, None), self.states())

    def test_what_is_half_deleted_is_not(self):
        for vm_state in ('soft-delete', 'error'):
            self.instances.have(vm_state, None)
            called = []
            self.start(lambda: called.append(True))
            self.assertEqual([True], called)
        self.instances.have('deleted', None)
        self.start(lambda: self.fail('nova deletes the record first'))
        self.sweep_often(stuck_instances.UNATTENDED)
        self.assertEqual([('delete', None)], self.instances.done)

    def test_host_that_was_renamed_in_case_is_written_anew(self):
        self.instances.have('active', None)
        self.instances.rows['i1'].host = 'ME'
        called = []
        self.start(lambda: called.append(True))
        self.assertEqual([True], called)

    def test_what_fails_does_not_end_the_service(self):
        self.instances.have('active', 'rebooting_hard')

        def init():
            raise ValueError('InstanceActionEventNotFound')

        with self.assertLogs(recovery.__name__, 'ERROR') as logs:
            self.start(init)
        self.assertIn('--state active i1', logs.output[0])

    def test_what_waits_in_the_queue_is_carried_out(self):
        """nova's start does nothing for it, and this package neither."""
        for vm_state, task_state in (
                ('active', 'rescuing'), ('rescued', 'unrescuing'),
                ('soft-delete', 'restoring'), ('active', 'soft-deleting')):
            self.instances.have(vm_state, task_state)
            self.start(lambda: None)
            self.join()
            self.assertEqual((vm_state, task_state), self.states())

    def test_a_build_that_is_to_be_deleted_is_deleted(self):
        self.instances.have('building', 'deleting')
        self.start(lambda: self.fail('nova sets it to ERROR'))
        self.recovery.sweep()
        self.join()
        self.assertEqual({}, self.instances.rows)

    def test_a_build_whose_machine_is_deployed_is_over(self):
        self.instances.have('building', 'spawning')
        self.start(lambda: self.fail('nova sets it to ERROR'))
        self.join()
        self.assertEqual(('active', None), self.states())
        self.assertEqual([('deployed', 'spawning')], self.instances.done)

    def test_a_build_that_ironic_carries_out_is_waited_for(self):
        self.machine = 'wait call-back'
        self.instances.have('building', 'spawning')
        self.start(lambda: self.fail('nova sets it to ERROR'))
        self.join()
        self.assertEqual('building', self.states()[0])
        self.machine, self.now = 'active', backoff.POLL
        self.recovery.sweep()
        self.join()
        self.assertEqual(('active', None), self.states())

    def test_a_build_of_which_ironic_was_not_told(self):
        self.machine = 'available'
        self.instances.have('building', 'networking')
        self.start(lambda: self.fail('nova says nothing of why'))
        self.join()
        self.assertEqual(('error', None), self.states())
        [(what, reason)] = self.instances.done
        self.assertEqual('fail', what)
        self.assertIn('available', reason)

    def test_one_that_is_deleted_while_ironic_carries_it_out(self):
        """It is not waited for any more."""
        self.machine = 'deploying'
        self.instances.have('active', 'rebuild_spawning')
        self.start(lambda: self.fail('nova sets it to ERROR'))
        self.join()
        del self.instances.rows['i1']
        for turn in range(1, 4):
            self.now = turn * backoff.LONGEST
            with mock.patch.object(self.instances, 'read',
                                   wraps=self.instances.read) as read:
                self.recovery.sweep()
                self.join()
        read.assert_not_called()

    def test_a_rebuild_that_waits_in_the_queue_is_left_alone(self):
        self.instances.have('active', 'rebuilding')
        self.start(lambda: self.fail('nova sets it to ERROR'))
        self.join()
        self.assertEqual(('active', 'rebuilding'), self.states())
        # A full sweep sees to it if it does not come.
        self.machine = 'available'
        self.sweep_often(stuck_instances.ON_ITS_WAY + 1)
        self.assertEqual(('error', None), self.states())

    def test_a_take_over_that_was_cut_off_goes_on(self):
        for task_state in (
                takeover.taken('rescuing', 'mine'),
                takeover.taking('rescuing', 'other'),
                takeover.taken('rescuing', 'other'),
                'taking-over:0a1b2c3d:rescuing'):
            self.instances.have('active', task_state)
            self.start(lambda: self.fail('nova knows no such task state'))
            self.join()
            self.assertEqual(('active', None), self.states())

    def test_a_mark_that_cannot_be_taken_at_the_start(self):
        """Nor is it listed for this host."""
        self.instances.have('active', 'taking-over:0a1b2c3d:rescuing')
        read = self.instances.read

        def fail(uuid):
            raise OSError('no answer')

        self.instances.read = fail
        self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.start(lambda: self.fail('nova knows no such task state'))
        self.join()
        self.instances.read = read
        for self.now in 5, 10, 15:
            self.recovery.sweep()
            self.join()
        self.assertEqual(('active', None), self.states())
