# SPDX-License-Identifier: Apache-2.0

import dataclasses
from unittest import mock

from lab.bench import operations
from lab.bench import takeover
from lab import errors
from lab import ledger
from lab.tests.unit import test_bench
from nova_ironic_multihost.rules import takeover as takeovers
from nova_ironic_multihost.tests import views


def adopted(seen, host):
    """The server and the record of its node are on a host."""
    return views.changed(views.changed(seen, 'records', 0, host=host),
                         'instances', 0, host=host)


class TakenOverTestCase(test_bench.FilmTestCase):

    def taken_over(self, seen):
        return takeover.taken_over(seen, 'Compute-1', ['server-0'])

    def test_not_before_both_nova_and_the_record_say_so(self):
        self.assertFalse(self.taken_over(self.good))
        self.assertFalse(self.taken_over(views.changed(
            self.good, 'instances', 0, host='compute-2')))
        self.assertTrue(self.taken_over(adopted(self.good, 'compute-2')))

    def test_not_while_the_new_owner_looks_what_is_to_be_finished(self):
        self.assertFalse(self.taken_over(views.changed(
            adopted(self.good, 'compute-2'), 'instances', 0,
            task_state=takeovers.taken(None, 'compute-2'))))

    def test_not_by_one_that_is_dead_too(self):
        self.assertFalse(self.taken_over(views.changed(
            adopted(self.good, 'compute-2'), 'services', 1, up=False)))

    def test_who_is_gone_is_not_waited_for(self):
        self.assertTrue(self.taken_over(
            views.changed(self.good, 'instances', 0, deleted=True)))
        self.assertTrue(self.taken_over(
            views.without(self.good, 'instances', 0)))


class AtRestTestCase(test_bench.FilmTestCase):

    def at_rest(self, gone=False, **changes):
        return takeover.at_rest(
            views.changed(self.good, 'instances', 0, **changes), 'server-0',
            gone)

    def test_nothing_goes_on(self):
        self.assertTrue(self.at_rest())
        self.assertFalse(self.at_rest(task_state='rebooting'))

    def test_what_is_to_be_deleted_is_gone_with_its_machine(self):
        self.assertFalse(self.at_rest(gone=True))
        self.assertFalse(self.at_rest(gone=True, deleted=True))
        free = views.changed(self.good, 'nodes', 0, instance_uuid=None)
        self.assertTrue(takeover.at_rest(
            views.without(free, 'instances', 0), 'server-0', gone=True))


class ServersTestCase(test_bench.FilmTestCase):

    def servers(self, *seen):
        return takeover.Servers(self.bench(*seen), 'compute-1',
                                {'one': ('server-0', 'node-0')})

    def test_when_they_are_taken_over(self):
        servers = self.servers(*[self.good] * 4,
                               adopted(self.good, 'compute-3'))
        self.assertEqual(4.0, servers.await_taken_over(30))

    def test_that_nobody_takes_them_over_is_a_finding(self):
        self.assertIsNone(self.servers(self.good).await_taken_over(30))

    def test_error_and_stuck_are_counted_of_those_that_live(self):
        server = ledger.Server('one', 'compute-1', 'error')
        kept = ledger.Ledger({
            'a': server, 'b': dataclasses.replace(server, deleted=True),
            'c': ledger.Server('two', 'compute-1', 'active', 'rebooting')},
            {})
        self.assertEqual({'error': 1, 'stuck': 1},
                         self.servers(self.good).meanwhile(kept))

    def test_only_what_was_stopped_is_started_again(self):
        self.assertEqual({}, self.servers(self.good).start_again('one'))
        stopped = views.changed(self.good, 'instances', 0,
                                vm_state='stopped')
        self.assertEqual({'one': [takeover.START_AGAIN]},
                         self.servers(stopped).start_again('one'))

    def test_what_the_return_of_a_compute_has_done(self):
        machine = ledger.Machine('server-0', 'active', 'power on', 1)
        before = ledger.Ledger(
            {'server-0': ledger.Server('x', 'compute-2', 'active')},
            {'node-0': machine})
        after = ledger.Ledger(
            {'server-0': ledger.Server('x', 'compute-2', 'stopped')},
            {'node-0': dataclasses.replace(machine, changed=2)},
            (ledger.Deed('server-0', 'stop', 'compute-1', 1.0, 'Success'),
             ledger.Deed('server-0', 'start', 'compute-2', 2.0, 'Success')))
        self.assertEqual(
            {'changed': ['x: vm_state was active, is stopped'],
             'touched': ['one'], 'deeds': {'stop: Success': 1}},
            self.servers(self.good).returned(before, after))

    def test_deletes_those_that_are_left(self):
        bench = dataclasses.replace(
            self.bench(self.good), cloud=mock.Mock())
        takeover.Servers(bench, 'compute-1', {
            'one': ('server-0', 'node-0'),
            'gone': ('server-9', 'node-1')}).delete()
        [[asked]] = [call.args for call in bench.cloud.delete.mock_calls]
        self.assertEqual(['server-0'], list(asked))

    def test_one_that_cannot_be_deleted_is_left(self):
        told = []
        bench = dataclasses.replace(
            self.bench(self.good), cloud=mock.Mock(), tell=told.append)
        bench.cloud.delete.side_effect = errors.LabError('not gone')
        takeover.Servers(bench, 'compute-1', {
            'one': ('server-0', 'node-0')}).delete()
        self.assertIn('not gone', told[0])


class RestsTestCase(test_bench.FilmTestCase):

    def rests(self, bench):
        bench.recorder.listen = mock.Mock()
        with mock.patch('time.time', lambda: views.NOW):
            return takeover.Rests(bench, {
                'stopped': ('server-0', operations.STOP),
                'deleted': ('server-1', operations.DELETE)})

    def look(self, rests, age, **changes):
        rests.see(dataclasses.replace(
            views.changed(self.good, 'instances', 0, **changes),
            at=views.NOW + age))

    def test_a_look_of_before_the_request_does_not_count(self):
        bench = self.bench(self.good)
        rests = self.rests(bench)
        self.look(rests, 0.5)
        self.look(rests, 2, task_state='powering-off')
        bench.recorder.watch(7)
        self.look(rests, 8)
        bench.recorder.watch(5)
        self.look(rests, 13)
        self.assertEqual(5.0, rests.seconds(2.0, 30)['stopped'])

    def test_what_never_rests(self):
        rests = self.rests(self.bench(self.good))
        self.look(rests, 2, task_state='powering-off')
        self.assertIsNone(rests.seconds(0.0, 30)['stopped'])


class SentencesTestCase(test_bench.FilmTestCase):

    def test_seconds_between(self):
        self.assertEqual(1.5, takeover.between(2.0, 3.5))
        self.assertIsNone(takeover.between(None, 3.5))
        self.assertIsNone(takeover.between(2.0, None))

    def test_undisturbed(self):
        good = {'changed': [], 'touched': [], 'deeds': {'reboot: Error': 1}}
        self.assertEqual([], takeover.undisturbed(good, 'returned: '))
        [one, two] = takeover.undisturbed(
            good | {'changed': ['x: power was 1, is 4'],
                    'touched': ['stopped']}, 'returned: ')
        self.assertEqual('returned: x: power was 1, is 4', one)
        self.assertIn('stopped', two)

    def test_undone(self):
        self.assertEqual([], takeover.undone(
            {'asked_before': {'stopped': 1.0}, 'not_done': {}}))
        [one, two] = takeover.undone({
            'asked_before': {'stopped': None},
            'not_done': {'reboot': 'ACTIVE, in rebooting'}})
        self.assertTrue(one.startswith('stopped'))
        self.assertEqual('reboot: ACTIVE, in rebooting', two)
