# SPDX-License-Identifier: Apache-2.0

"""What an audit reads and writes in nova; the service row."""

import collections
import contextlib
import datetime
import inspect
import threading
from unittest import mock

import fixtures
from nova import exception
from nova import objects
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel
from oslo_utils import uuidutils
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import nova_facts
from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters import rpc_queue
from nova_ironic_multihost.engine.base import metrics as totals
from nova_ironic_multihost.engine.base import ports
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base


class NovaFactsTestCase(oslo_base.BaseTestCase):

    def test_ports_are_implemented(self):
        for port, adapter in (
                (ports.Cloud, nova_facts.NovaCloud),
                (ports.Pages, ironic.NodePages),
                (ports.Instances, nova_servers.ServerCalls),
                (ports.Machines, ironic.IronicMachines),
                (ports.Registration, nova_facts.ServiceRecord),
                (ports.Tracker, nova_tracker.NovaTracker),
                (ports.Queue, rpc_queue.RpcQueue),
                (ports.Queues, rpc_queue.RpcQueues)):
            for name, method in vars(port).items():
                if inspect.isfunction(method) and not name.startswith('_'):
                    self.assertEqual(
                        base.parameters(method),
                        base.parameters(getattr(adapter, name)), name)

    def consumers_of(self, answer, nodes):
        self.useFixture(fixtures.MockPatchObject(
            nova_facts.db, 'consumers',
            lambda client, node: answer(node)))
        return nova_facts.NovaCloud(
            mock.Mock(), mock.Mock()).consumers_of(nodes)

    def test_placement_is_asked_of_some_nodes_at_a_time(self):
        together = threading.Barrier(nova_facts.AT_ONCE)
        most, nodes = [0], [str(n) for n in range(3 * nova_facts.AT_ONCE)]

        def answer(node):
            together.wait(60)
            most[0] = max(most[0], threading.active_count() - before)
            return None if node == '1' else frozenset({f'i-{node}'})

        before = threading.active_count()
        self.assertEqual(
            {node: None if node == '1' else {f'i-{node}'} for node in nodes},
            self.consumers_of(answer, nodes))
        self.assertEqual([nova_facts.AT_ONCE], most)
        self.assertEqual({}, self.consumers_of(self.fail, []))

    def test_who_does_not_answer_is_not_asked_for_all_nodes(self):
        """Each question may take as long as a timeout."""
        nodes, asked = [str(n) for n in range(1000)], []

        def answer(node):
            asked.append(node)
            return frozenset() if node in '12' else None

        found = self.consumers_of(answer, nodes)
        self.assertEqual(nodes, [*found])
        self.assertEqual(
            [None], [*{found[node] for node in nodes if node not in '12'}])
        self.assertLess(len(asked), 3 * nova_facts.AT_ONCE)

    def test_what_fails_fails_for_all_nodes(self):
        self.assertRaises(
            ZeroDivisionError, self.consumers_of, lambda node: 1 / 0, 'abc')

    def test_nothing_is_taken_over_by_a_service_that_is_about_to_end(self):
        moved = self.useFixture(fixtures.MockPatchObject(
            nova_facts, 'take_over', return_value={'uuid': True})).mock
        ending = False
        recorder = totals.Metrics()
        writes = nova_facts.NovaCloud(
            None, None, lambda: ending, recorder)
        wanted = {'uuid': mock.Mock()}
        self.assertEqual(
            {'uuid': True}, writes.take_over(wanted, 'host', frozenset))
        ending = True
        self.assertEqual(
            {'uuid': False}, writes.take_over(wanted, 'host', frozenset))
        moved.assert_called_once()
        self.assertEqual(1, recorder.counts[Event.TAKEN_OVER])

    def test_take_overs_are_counted(self):
        take_over = self.useFixture(fixtures.MockPatchObject(
            nova_facts, 'take_over', return_value={
                'i1': True, 'i2': True, 'i3': False, 'i4': OSError()})).mock
        recorder = totals.Metrics()
        failed = mock.Mock()
        writes = nova_facts.NovaCloud(
            None, None, recorder=recorder, failed=failed)
        wanted = dict.fromkeys(['i1', 'i2', 'i3', 'i4'])

        def counted():
            counts = recorder.counts
            return counts[Event.TAKEN_OVER], counts[Event.TAKEOVER_FAILED]

        writes.take_over(wanted, 'host', frozenset)
        self.assertEqual((2, 1), counted())
        self.assertEqual(1, failed.call_count)
        take_over.side_effect = OSError
        self.assertRaises(OSError, writes.take_over, wanted, 'host', frozenset)
        self.assertEqual((2, 5), counted())
        self.assertEqual(2, failed.call_count)
        take_over.side_effect = None
        take_over.return_value = dict.fromkeys(wanted, False)
        writes.take_over(wanted, 'host', frozenset)
        self.assertEqual(2, failed.call_count)

    def test_each_attempt_at_an_instance_has_a_number_of_its_own(self):
        """However many others are taken over in between."""
        numbers = []

        def take_over(instances, host, eligible, attempts):
            numbers.extend(attempts[uuid] % takeover.ATTEMPTS
                           for uuid in instances if uuid == 'i1')
            return dict.fromkeys(instances, False)

        self.useFixture(fixtures.MockPatchObject(
            nova_facts, 'take_over', take_over))
        writes = nova_facts.NovaCloud(None, None)
        for _ in range(takeover.ATTEMPTS):
            writes.take_over({'i1': None}, 'host', frozenset)
            for number in range(takeover.ATTEMPTS - 1):
                writes.take_over({f'other{number}': None}, 'host', frozenset)
        self.assertEqual(takeover.ATTEMPTS, len(set(numbers)))

    def test_provider_of_a_node_that_is_gone(self):
        consumers = self.useFixture(fixtures.MockPatchObject(
            nova_facts.db, 'consumers')).mock
        states = self.useFixture(fixtures.MockPatchObject(
            nova_facts.db, 'instance_states')).mock
        client = mock.Mock()
        writes = nova_facts.NovaCloud(
            None, mock.Mock(report_client=client))
        living, gone = InstanceState('a'), InstanceState('a', deleted=True)
        for consumers.return_value, states.return_value in (
                (None, {}), ({'i'}, {}), ({'i'}, {'i': living}),
                ({'i', 'j'}, {'i': living, 'j': gone})):
            self.assertFalse(writes.remove_provider('n'))
        client.delete.assert_not_called()
        for status, done in (204, True), (404, True), (409, False), (
                500, False):
            answer = mock.MagicMock(status_code=status)
            answer.__bool__.return_value = status < 400
            client.delete.return_value = answer
            consumers.return_value = {'j'}
            states.return_value = {'j': gone}
            self.assertIs(done, writes.remove_provider('n'))
            client.delete_allocation_for_instance.assert_called_with(
                mock.ANY, 'j', force=True)
            self.assertEqual('/resource_providers/n',
                             client.delete.call_args.args[0])
            client.invalidate_resource_provider.assert_called_with('n')


#: The first attempt at each instance.
ATTEMPTS = collections.defaultdict(int)


def all_dead(hosts):
    return frozenset(hosts)


class TransferTestCase(base.DatabaseTestCase):

    dead = staticmethod(all_dead)

    def setUp(self):
        super().setUp()
        # A database in memory has one connection.
        self.useFixture(
            fixtures.MockPatchObject(nova_facts, 'WRITES_AT_ONCE', 1))
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
        outcome = nova_facts.take_over(
            {self.uuid: state or self.seen()}, host,
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
        read, made = nova_facts._read, []

        def reading(uuids):
            rows = read(uuids)
            made.append(rows)
            if len(made) == number:
                act(rows)
            return rows

        with mock.patch.object(
                nova_facts, '_read', side_effect=reading) as patched:
            yield patched

    def test_as_it_is_read(self):
        self.assertEqual(
            {self.uuid: self.seen()},
            db.instance_states([self.uuid]))

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
        migrating = nova_facts._migrating

        def too_early(rows):
            found = migrating(rows)
            self.evacuate(self.uuid, 'dead', 'accepted')
            return found

        # The task state was there when all were asked for.
        with mock.patch.object(nova_facts, '_migrating', too_early):
            self.assertFalse(self.take_over(
                self.seen(task_state='rebuilding')))

    def test_migrations_are_asked_for_together(self):
        wanted = self.some()
        migrating, *others = wanted
        self.evacuate(migrating, 'dead', 'accepted')
        with mock.patch.object(
                objects.MigrationList, 'get_by_filters',
                wraps=objects.MigrationList.get_by_filters) as asked:
            self.assertEqual(
                {migrating: False, **dict.fromkeys(others, True)},
                nova_facts.take_over(
                    wanted, 'mine', all_dead, ATTEMPTS),
            )
        self.assertEqual(2, asked.call_count)

    def test_no_more_are_begun_when_answers_are_lost(self):
        wanted = self.some()
        with mock.patch.object(
                objects.Instance, 'save',
                side_effect=messaging.MessagingTimeout) as save:
            found = nova_facts.take_over(
                wanted, 'mine', all_dead, ATTEMPTS)
        self.assertEqual(nova_facts.MAX_UNANSWERED, save.call_count)
        self.assertEqual(
            [False] * 3 + [True] * 2,
            sorted(bool(outcome) for outcome in found.values()))

    def test_not_when_it_is_gone(self):
        self.row.destroy()
        self.assertFalse(self.take_over())

    def losing(self, written, done):
        """Lose the answer to the writes of a host, whether they are done."""
        save = objects.Instance.save

        def lose(row, **how):
            if done or row.host != written:
                save(row, **how)
            if row.host == written:
                raise messaging.MessagingTimeout

        return mock.patch.object(objects.Instance, 'save', lose)

    def test_a_write_without_an_answer_is_unknown(self):
        """The sweep undoes a mark; the next audit finds a new host."""
        mark = takeover.taking(None, 'mine')
        for written, done, host, task_state in (
                ('dead', False, 'dead', None), ('dead', True, 'dead', mark),
                ('mine', False, 'dead', mark), ('mine', True, 'mine', None)):
            self.write('dead', None)
            with self.losing(written, done):
                self.assertRaises(messaging.MessagingTimeout, self.take_over)
            self.assertEqual((host, 'active', task_state), self.now())

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
        read = nova_facts._read
        reads_made = []

        def read_after_it_is_done(uuids):
            reads_made.append(uuids)
            if len(reads_made) == 2:
                self.write('mine', takeover.taken('deleting', 'mine'))
            return read(uuids)

        self.row.task_state = 'deleting'
        self.row.save()
        with mock.patch.object(nova_facts, '_read', read_after_it_is_done):
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
        return db.instance_states([
            row.uuid for row in objects.InstanceList.get_by_host(
                self.context, 'dead')])

    def test_several_are_read_at_once(self):
        wanted = self.some()
        made = []
        with self.after_reading(0, made.append) as read:
            self.assertEqual(
                dict.fromkeys(wanted, True),
                nova_facts.take_over(
                    wanted, 'mine', all_dead, ATTEMPTS),
            )
        # Before the first write of each and between the two, and no more.
        self.assertEqual([wanted.keys()] * 2, [
            set(call.args[0]) for call in read.call_args_list])
        self.assertEqual(
            {}, nova_facts.take_over(
                {}, 'mine', all_dead, ATTEMPTS))

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
            found = nova_facts.take_over(
                wanted, 'mine', all_dead, ATTEMPTS)
        self.assertIsInstance(found.pop(odd), ZeroDivisionError)
        self.assertEqual({gone: False, changed: False,
                          **dict.fromkeys(others, True)}, found)


WORDS = liveness.stop_marker_text(
    datetime.datetime(2026, 5, 4))
NEXT = liveness.stop_marker_text(
    datetime.datetime(2026, 5, 5))


class RegistrationTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.mine = nova_facts.ServiceRecord('a')

    def row(self):
        return objects.Service.get_by_compute_host(self.context, 'a')

    def state(self):
        row = self.row()
        return row.disabled, row.disabled_reason

    def operator(self, disabled, reason=None):
        """Disable or enable the service as nova's API does."""
        row = self.row()
        row.disabled = disabled
        row.disabled_reason = reason
        row.save()

    def test_said_and_taken_back(self):
        self.service('a')
        self.assertFalse(self.mine.take_back())
        self.assertTrue(self.mine.say(WORDS))
        self.assertEqual((False, WORDS), self.state())
        self.assertTrue(self.mine.close(WORDS))
        self.assertEqual((True, WORDS), self.state())
        # The process was killed, and its start as well.
        self.assertTrue(self.mine.say(NEXT))
        self.assertEqual((False, NEXT), self.state())
        self.assertFalse(self.mine.close(WORDS))
        self.assertTrue(self.mine.close(NEXT))
        self.assertEqual((True, NEXT), self.state())
        self.assertTrue(self.mine.take_back())
        self.assertEqual((False, None), self.state())
        self.assertFalse(self.mine.take_back())

    def test_said_and_open_for_builds(self):
        self.service('a')
        self.mine.say(WORDS)
        self.assertEqual((False, WORDS), self.state())
        self.assertTrue(self.mine.take_back())
        self.assertEqual((False, None), self.state())

    def test_what_an_operator_says_stands(self):
        self.service('a')
        for reason in (None, 'broken fan'):
            for before in ((), (self.mine.say,),
                           (self.mine.say, self.mine.close)):
                for act in before:
                    act(WORDS)
                self.operator(True, reason)
                for act in (self.mine.say, self.mine.close):
                    self.assertFalse(act(WORDS))
                self.assertFalse(self.mine.take_back())
                self.assertEqual((True, reason), self.state())
                self.operator(False)

    def test_who_is_enabled_meanwhile_stays_so(self):
        self.service('a')
        self.mine.say(WORDS)
        self.operator(False)
        self.assertFalse(self.mine.close(WORDS))
        self.assertFalse(self.mine.take_back())
        self.assertEqual((False, None), self.state())

    def test_who_is_forced_down_has_nothing_to_say(self):
        self.service('a', forced_down=True)
        self.assertFalse(self.mine.say(WORDS))
        self.assertEqual((False, None), self.state())

    def test_service_that_there_is_not(self):
        for act in (lambda: self.mine.say(WORDS),
                    lambda: self.mine.close(WORDS), self.mine.take_back):
            self.assertFalse(act())

    def test_service_that_is_deleted_meanwhile(self):
        self.service('a')
        with mock.patch.object(
                objects.Service, 'save',
                side_effect=exception.ServiceNotFound(service_id=1)):
            self.assertFalse(self.mine.say(WORDS))

    def test_others_hear_it(self):
        self.service('a')
        up = mock.Mock(**{'service_is_up.return_value': True})
        self.mine.say(WORDS)
        for _ in range(2):
            heard = db.compute_service(up, 'a')
            self.assertEqual(
                (False, WORDS), (heard.disabled, heard.stop_marker))
            self.mine.close(WORDS)
        self.operator(True)
        heard = db.compute_service(up, 'a')
        self.assertEqual((True, ''), (heard.disabled, heard.stop_marker))
