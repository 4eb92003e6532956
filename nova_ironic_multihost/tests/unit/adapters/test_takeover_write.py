# SPDX-License-Identifier: Apache-2.0

"""Instances that go from one host to another, each once."""

import collections
import contextlib
from unittest import mock

import fixtures
from nova import exception
from nova import objects
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel
from oslo_utils import uuidutils

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import takeover_write
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base


#: The first attempt at each instance.
ATTEMPTS = collections.defaultdict(int)


def all_dead(hosts):
    return frozenset(hosts)


class TransferTestCase(base.DatabaseTestCase):

    dead = staticmethod(all_dead)

    def setUp(self):
        super().setUp()
        # A database in memory has one connection.
        self.useFixture(fixtures.MockPatchObject(takeover_write, 'AT_ONCE', 1))
        self.uuid = uuidsentinel.instance
        self.row = self.instance(self.uuid, 'dead')
        self.row.vm_state = 'active'
        self.row.save()

    def seen(self, **how):
        return InstanceState(**{
            'host': 'dead', 'node': self.row.node, 'vm_state': 'active',
            'task_state': None, **how})

    def now(self):
        row = objects.Instance.get_by_uuid(self.context, self.uuid)
        return row.host, row.vm_state, row.task_state

    def take_over(self, state=None, host='mine', attempt=0):
        """Take it over; what is not known is raised."""
        outcome = takeover_write.take_over(
            self.context, {self.uuid: state or self.seen()}, host,
            self.dead, {self.uuid: attempt})[self.uuid]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def write(self, host, task_state):
        """Do what another process does."""
        row = objects.Instance.get_by_uuid(self.context, self.uuid)
        row.host, row.task_state = host, task_state
        row.save()

    @contextlib.contextmanager
    def after_reading(self, number, act):
        """Have something happen right after one of the reads."""
        read, made = takeover_write._read, []

        def reading(context, uuids):
            rows = read(context, uuids)
            made.append(rows)
            if len(made) == number:
                act(rows)
            return rows

        with mock.patch.object(
                takeover_write, '_read', side_effect=reading) as patched:
            yield patched

    def test_as_it_is_read(self):
        self.assertEqual(
            {self.uuid: self.seen()},
            db.instance_states(self.context, [self.uuid]))

    def test_it_is_moved_and_can_be_used_at_once(self):
        self.assertTrue(self.take_over())
        self.assertEqual(('mine', 'active', None), self.now())

    def test_its_host_is_back_while_the_first_marks_are_written(self):
        """That may take minutes."""
        marked = []

        def dead(hosts):
            marked.append(self.now())
            return frozenset(hosts) - {'dead'}

        self.dead = dead
        self.assertIs(False, self.take_over())
        (host, _, mark), = marked
        self.assertEqual(('dead', True), (host, takeover.is_mark(mark)))
        self.assertEqual(('dead', 'active', None), self.now())

    def test_it_cannot_be_known_whether_its_host_is_back(self):
        """Its mark is taken away later."""
        self.dead = mock.Mock(side_effect=messaging.MessagingTimeout)
        self.assertRaises(messaging.MessagingTimeout, self.take_over)
        self.assertEqual('dead', self.now()[0])

    def test_one_that_does_not_rest_is_marked(self):
        for vm_state, task_state in (
                ('error', None), ('active', 'powering-off')):
            self.row.host = 'dead'
            self.row.vm_state, self.row.task_state = vm_state, task_state
            self.row.save()
            self.assertTrue(self.take_over(self.seen(
                vm_state=vm_state, task_state=task_state)))
            self.assertEqual(
                ('mine', vm_state, takeover.taken(task_state, 'mine')),
                self.now())

    def test_one_that_others_have_marked_and_that_was_at_rest_before(self):
        self.row.task_state = mark = takeover.taken(None, 'dead')
        self.row.save()
        self.assertTrue(self.take_over(self.seen(task_state=mark)))
        self.assertEqual(('mine', 'active', None), self.now())

    def test_what_it_was_doing_is_kept(self):
        self.row.task_state = 'deleting'
        self.row.save()
        self.assertTrue(self.take_over(self.seen(task_state='deleting')))
        self.assertEqual('deleting', takeover.before_mark(self.now()[2]))

    def test_not_when_anything_has_changed(self):
        for state in (self.seen(host='other'), self.seen(node='other'),
                      self.seen(vm_state='stopped'),
                      self.seen(task_state='rebooting')):
            self.assertFalse(self.take_over(state))
        self.assertEqual(('dead', 'active', None), self.now())

    def test_one_of_two_that_read_the_same(self):
        second = []

        def take_over(rows):
            second.append(self.take_over(host='other'))

        with self.after_reading(1, take_over):
            self.assertFalse(self.take_over())
        self.assertEqual([True], second)
        self.assertEqual('other', self.now()[0])

    def evacuate(self, uuid, source, status):
        migration = objects.Migration(
            self.context, instance_uuid=uuid, status=status,
            migration_type='evacuation', source_compute=source,
            source_node='n', dest_compute='x', dest_node='n',
            dest_compute_id=1)
        migration.create()
        return migration

    def test_not_while_a_migration_is_in_progress(self):
        for source, status in (('dead', 'accepted'), ('dead', 'running'),
                               ('before', 'accepted')):
            migration = self.evacuate(self.uuid, source, status)
            self.assertFalse(self.take_over())
            migration.status = 'failed'
            migration.save()
        self.evacuate(self.uuid, 'dead', 'failed')
        self.assertTrue(self.take_over())

    def test_not_while_nova_is_about_to_begin_one(self):
        self.row.task_state = 'rebuilding'
        self.row.save()
        mark = takeover_write._Transfer.mark

        def late(transfer, row):
            self.evacuate(self.uuid, 'dead', 'accepted')
            mark(transfer, row)

        # The task state was there when all were asked for.
        with mock.patch.object(takeover_write._Transfer, 'mark', late):
            self.assertFalse(self.take_over(
                self.seen(task_state='rebuilding')))

    def test_marks_that_were_lost_keep_no_others_from_being_moved(self):
        wanted = self.some(6)
        first, *others, last = wanted
        save = objects.Instance.save

        def lose(row, **how):
            if row.uuid in (first, last) and 'expected_vm_state' in how:
                raise messaging.MessagingTimeout
            save(row, **how)

        with mock.patch.object(objects.Instance, 'save', lose), \
                mock.patch.object(takeover_write, 'MAX_UNANSWERED', 2), \
                self.in_order([*others, first, last], [first, last, *others]):
            found = takeover_write.take_over(
                self.context, wanted, 'mine', all_dead, ATTEMPTS)
        self.assertEqual(dict.fromkeys(others, True), {
            uuid: found[uuid] for uuid in others})

    @contextlib.contextmanager
    def in_order(self, *orders):
        """Have each phase come to instances in an order."""
        read, left = takeover_write._read, list(orders)

        class Rows(dict):

            def keys(self):
                return Keys(self.order)

        class Keys(list):

            def __sub__(self, others):
                return [uuid for uuid in self if uuid not in others]

        def reading(context, uuids):
            rows = Rows(read(context, uuids))
            rows.order = left.pop(0) if left else list(rows)
            return rows

        with mock.patch.object(takeover_write, '_read', reading):
            yield

    def test_migrations_are_asked_for_together(self):
        wanted = self.some()
        migrating, *others = wanted
        self.evacuate(migrating, 'dead', 'accepted')
        with mock.patch.object(
                objects.MigrationList, 'get_by_filters',
                wraps=objects.MigrationList.get_by_filters) as asked:
            self.assertEqual(
                {migrating: False, **dict.fromkeys(others, True)},
                takeover_write.take_over(
                    self.context, wanted, 'mine', all_dead, ATTEMPTS),
            )
        self.assertEqual(2, asked.call_count)

    def test_no_more_are_begun_when_answers_are_lost(self):
        wanted = self.some()
        with mock.patch.object(
                objects.Instance, 'save',
                side_effect=messaging.MessagingTimeout) as save:
            found = takeover_write.take_over(
                self.context, wanted, 'mine', all_dead, ATTEMPTS)
        self.assertEqual(takeover_write.MAX_UNANSWERED, save.call_count)
        self.assertEqual(
            [False] * 3 + [True] * 2,
            sorted(bool(outcome) for outcome in found.values()))

    def test_not_when_it_is_gone(self):
        self.row.destroy()
        self.assertFalse(self.take_over())

    def saving(self, *done):
        """Let writes have no answer, those that are True after they are."""
        save = objects.Instance.save
        done = list(done)

        def lose(row, **how):
            if not done or done.pop(0):
                save(row, **how)
            raise messaging.MessagingTimeout

        return mock.patch.object(objects.Instance, 'save', lose)

    def test_an_answer_that_is_lost_is_asked_for(self):
        with self.saving():
            self.assertTrue(self.take_over())
        self.assertEqual('mine', self.now()[0])

    def test_a_write_that_is_lost_is_noticed(self):
        mark = takeover.taking(None, 'mine')
        for done, task_state in (((False,), None), ((True, False), mark)):
            with self.saving(*done):
                # Whoever takes over many counts that.
                self.assertRaises(messaging.MessagingTimeout, self.take_over)
            # The sweep undoes what was done.
            self.assertEqual(('dead', 'active', task_state), self.now())

    def test_what_was_begun_before_is_ended(self):
        mark = takeover.taking('deleting', 'mine')
        self.row.task_state = mark
        self.row.save()
        self.assertTrue(self.take_over(self.seen(task_state=mark)))
        self.assertEqual(
            ('mine', 'active', takeover.taken('deleting', 'mine')),
            self.now())

    def test_a_write_of_an_earlier_attempt_that_is_done_now(self):
        """It is this host's then, and not to be undone."""
        read = takeover_write._read
        reads_made = []

        def read_after_it_is_done(context, uuids):
            reads_made.append(uuids)
            if len(reads_made) == 2:
                self.write('mine', takeover.taken('deleting', 'mine'))
            return read(context, uuids)

        self.row.task_state = 'deleting'
        self.row.save()
        with mock.patch.object(takeover_write, '_read', read_after_it_is_done):
            self.assertTrue(self.take_over(self.seen(task_state='deleting')))
        self.assertEqual(
            ('mine', 'active', takeover.taken('deleting', 'mine')),
            self.now())

    def test_not_what_another_has_taken_and_brought_to_rest_since(self):
        """Both states are then what they were: ABA."""
        save = objects.Instance.save
        before = []

        def save_too_late(row, **how):
            if not before:
                before.append(True)
                self.assertTrue(self.take_over(host='other'))
                other = objects.Instance.get_by_uuid(self.context, self.uuid)
                other.task_state = None
                save(other)
            save(row, **how)

        with mock.patch.object(objects.Instance, 'save', save_too_late):
            self.assertFalse(self.take_over())
        self.assertEqual(('other', 'active', None), self.now())

    def test_late_move_after_the_late_mark_of_another_attempt(self):
        """Another host has taken the instance over in between."""
        save, late = objects.Instance.save, []

        def save_later(row, **how):
            if len(late) < 2 and (row.host == 'mine' or not late):
                late.append(lambda: save(row, **how))
                raise messaging.MessagingTimeout()
            save(row, **how)

        with mock.patch.object(objects.Instance, 'save', save_later):
            self.assertRaises(
                messaging.MessagingTimeout, self.take_over, attempt=1)
            self.assertRaises(
                messaging.MessagingTimeout, self.take_over, attempt=2)
        self.write('dead', None)
        self.assertTrue(self.take_over(host='other'))
        mark, move = late
        mark()
        self.assertEqual(
            ('other', takeover.taking(None, 'mine', 1)), self.now()[::2])
        self.assertRaises(exception.UnexpectedTaskStateError, move)
        self.assertEqual('other', self.now()[0])

    def test_not_when_the_mark_is_taken_away_meanwhile(self):
        seen = []

        def take_it_away(rows):
            seen.extend(row.task_state for row in rows.values())
            self.write('dead', None)

        with self.after_reading(2, take_it_away):
            self.assertFalse(self.take_over())
        self.assertTrue(takeover.is_mark(seen[0]))
        self.assertEqual(('dead', 'active', None), self.now())

    def some(self, count=5):
        """Return {uuid: as it is seen} of this one and others."""
        for _ in range(count - 1):
            row = self.instance(uuidutils.generate_uuid(), 'dead')
            row.vm_state = 'active'
            row.save()
        return db.instance_states(self.context, [
            row.uuid for row in objects.InstanceList.get_by_host(
                self.context, 'dead')])

    def test_several_are_read_at_once(self):
        wanted = self.some()
        made = []
        with self.after_reading(0, made.append) as read:
            self.assertEqual(
                dict.fromkeys(wanted, True),
                takeover_write.take_over(
                    self.context, wanted, 'mine', all_dead, ATTEMPTS),
            )
        # Before the first write of each and between the two, and no more.
        self.assertEqual([wanted.keys()] * 2, [
            set(call.args[1]) for call in read.call_args_list])
        self.assertEqual(
            {}, takeover_write.take_over(
                self.context, {}, 'mine', all_dead, ATTEMPTS))

    def lose(self, uuid, act=lambda: None):
        """Lose the answer to the second write of one, which is done."""
        save = objects.Instance.save

        def save_and_lose(row, **how):
            save(row, **how)
            if (row.uuid, row.host) == (uuid, 'mine'):
                with mock.patch.object(objects.Instance, 'save', save):
                    act()
                raise messaging.MessagingTimeout

        return mock.patch.object(objects.Instance, 'save', save_and_lose)

    def test_those_that_are_known_to_be_moved_when_nobody_answers(self):
        wanted = self.some()
        odd, *others = wanted
        read, made = takeover_write._read, []

        def fail_the_third_time(context, uuids):
            made.append(uuids)
            if len(made) == 3:
                raise messaging.MessagingTimeout
            return read(context, uuids)

        with self.lose(odd), mock.patch.object(
                takeover_write, '_read', fail_the_third_time):
            found = takeover_write.take_over(
                self.context, wanted, 'mine', all_dead, ATTEMPTS)
        self.assertIsInstance(found.pop(odd), messaging.MessagingTimeout)
        self.assertEqual(dict.fromkeys(others, True), found)

    def test_an_earlier_write_that_is_done_right_before_the_second_one(self):
        wanted = self.some(1)
        uuid, = wanted

        def move(rows):
            row = objects.Instance.get_by_uuid(self.context, uuid)
            row.host, row.task_state = 'mine', None
            row.save()

        with self.after_reading(2, move):
            self.assertEqual({uuid: True}, takeover_write.take_over(
                self.context, wanted, 'mine', all_dead, ATTEMPTS))

    def test_one_that_is_used_at_once_is_moved(self):
        wanted = self.some(1)
        uuid, = wanted

        def use():
            row = objects.Instance.get_by_uuid(self.context, uuid)
            row.task_state = 'powering-off'
            row.save(expected_task_state=[None])

        with self.lose(uuid, use):
            self.assertEqual({uuid: True}, takeover_write.take_over(
                self.context, wanted, 'mine', all_dead, ATTEMPTS))

    def test_what_happens_to_one_happens_to_no_other(self):
        wanted = self.some()
        gone, changed, odd, *others = wanted
        save = objects.Instance.save

        def fail_for_one(row, **how):
            if row.uuid == odd:
                raise ZeroDivisionError
            save(row, **how)

        objects.Instance.get_by_uuid(self.context, gone).destroy()
        row = objects.Instance.get_by_uuid(self.context, changed)
        row.task_state = 'rebooting'
        row.save()
        with mock.patch.object(objects.Instance, 'save', fail_for_one):
            found = takeover_write.take_over(
                self.context, wanted, 'mine', all_dead, ATTEMPTS)
        self.assertIsInstance(found.pop(odd), ZeroDivisionError)
        self.assertEqual({gone: False, changed: False,
                          **dict.fromkeys(others, True)}, found)
