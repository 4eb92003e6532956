# SPDX-License-Identifier: Apache-2.0

"""What tools/bench makes of what it has measured."""

import collections
import importlib
import json
import os
import pathlib
import random
import sys
import tempfile
import threading
from unittest import mock

import fixtures
from oslotest import base

from benchmarks import asking
from benchmarks import auditing
from benchmarks import changes
from benchmarks import claiming
from benchmarks import cli
from benchmarks import computing
from benchmarks import deciding
from benchmarks import delays
from benchmarks import disturbing
from benchmarks import fencing
from benchmarks import joining
from benchmarks import measured
from benchmarks import plotting
from benchmarks import polling
from benchmarks import proportion
from benchmarks import ring
from benchmarks import starting
from benchmarks import switching
from benchmarks import tracked
from lab import errors
from lab import progress as progresses
from lab import settings


def change(at, content, kind='power'):
    return delays.Change(kind, 'n', at, content)


def known(*pairs):
    return [delays.Known(at, content) for at, content in pairs]


class DelaysTestCase(base.BaseTestCase):

    def test_until_the_content_is_known(self):
        self.assertEqual([3], delays.delays(
            [change(10, 'b')], known((0, 'a'), (13, 'b')), [5, 13]))

    def test_what_was_known_before_its_time_was_noted(self):
        self.assertEqual([0], delays.delays(
            [change(10, 'b')], known((0, 'a'), (9.9, 'b')), [9.9]))

    def test_two_quick_changes_are_seen_as_one(self):
        self.assertEqual([3, 2], delays.delays(
            [change(10, 'b'), change(11, 'c')],
            known((0, 'a'), (13, 'c')), [13]))

    def test_a_later_change_is_not_seen_before_it_is_made(self):
        self.assertEqual([5, 0], delays.delays(
            [change(10, 'b'), change(15, 'a')], known((0, 'a')), [12, 15]))

    def test_one_that_is_undone_at_once(self):
        self.assertEqual([3, 0], delays.delays(
            [change(10, 'b'), change(11, 'a')], known((0, 'a')), [13]))

    def test_one_that_is_never_seen(self):
        self.assertEqual([None], delays.delays(
            [change(10, 'b')], known((0, 'a')), [13, 23]))

    def test_a_node_that_came_and_went(self):
        self.assertEqual([3, 9], delays.delays(
            [change(10, 'a'), change(14, None)],
            known((13, 'a'), (23, None)), [13, 23]))

    def test_one_that_was_never_there_for_somebody(self):
        self.assertEqual([3, 0], delays.delays(
            [change(10, 'a'), change(12, None)], [], [13]))

    def test_figures(self):
        self.assertEqual(
            {'changes': 101, 'lost': 1, 'median': 50.5, '95 %': 95,
             'longest': 100},
            delays.summary([*range(1, 101), None]))

    def test_figures_of_nothing(self):
        self.assertEqual(
            {'changes': 0, 'lost': 0, 'median': None, '95 %': None,
             'longest': None}, delays.summary([]))


class JudgeTestCase(base.BaseTestCase):

    SEEN = {
        'a': {'states': [[0, {'n': {'x': 1}}], [12, {'n': {'x': 2}}],
                         [22, {'n': None}], [30, {}]],
              'reports': [[13, 'n', {'x': 2}]]},
        'b': {'states': [[0, {'n': ''}], [24, {'n': None}], [30, {}]],
              'reports': []}}
    CHANGES = {'n': [change(10, {'x': 2}), change(20, None, 'delete')]}

    def judge(self, listed=()):
        return {'audit': {'nodes': 1, 'wall': 0.1, 'cpu': 0.1},
                **changes.judge(self.CHANGES, self.SEEN, lambda node: 'a',
                                dict(listed))}

    def test_the_owner_has_seen_it_when_placement_was_told(self):
        found = self.judge()
        self.assertEqual(3, found['kinds']['power']['longest'])
        self.assertEqual(2, found['kinds']['delete']['longest'])

    def test_others_know_who_came_or_went(self):
        self.assertEqual((1, 4), (self.judge()['others']['changes'],
                                  self.judge()['others']['longest']))

    def test_all_is_well(self):
        self.assertEqual([], changes.failures(self.judge()))

    def test_what_is_wrong(self):
        found = self.judge({'m': {'x': 1}})
        found['owner'] = {'lost': 1, 'longest': 16}
        self.assertEqual(
            ['owner: 1 changes were never seen',
             'owner: a change was seen after 16.0 s',
             '2 nodes are known wrongly'], changes.failures(found))

    def test_what_came_and_went_unseen_is_not_lost(self):
        its = [change(10, {'x': 1}, 'create'), change(11, None, 'delete')]
        self.assertEqual([2, 0], changes._of_other(
            'm', its, {'states': [[0, {}], [12, {}]]}))

    def test_from_one_poll_to_the_next(self):
        self.assertEqual([10], changes.pauses(self.SEEN['a']['states']))

    def test_it_is_shown(self):
        self.assertIn('came or went', '\n'.join(changes.table(self.judge())))

    def test_of_nodes_of_others_no_more_than_that_they_are_there(self):
        self.assertEqual(0, changes.differences(
            {'n': {'x': 1}}, {'n': ''}, lambda node: False))
        self.assertEqual(1, changes.differences(
            {'n': {'x': 1}}, {'n': ''}, lambda node: True))

    def test_traits_have_no_order(self):
        self.assertEqual(
            {'traits': ['a', 'b'], 'uuid': 'n'}, disturbing.normal(
                {'traits': ['b', 'a'], 'uuid': 'n', 'more': 1},
                ['traits', 'uuid']))


class HandTestCase(base.BaseTestCase):

    def test_it_makes_nodes_when_it_has_none(self):
        ironic = mock.Mock()
        ironic.node.create.return_value.uuid = 'n'
        ironic.node.get.return_value.to_dict.return_value = {
            'maintenance': True, 'traits': []}
        hand = disturbing.Hand(ironic, ['maintenance', 'traits'], {},
                               random.Random(1), 'bench')
        hand.change()
        self.assertEqual(
            [('create', 'n', {'maintenance': True, 'traits': []})],
            [(one.kind, one.node, one.content) for one in hand.done])

    def test_it_waits_until_something_is_done(self):
        node = {'maintenance': False, 'traits': [], 'power_state': 'power on',
                'target_power_state': None}
        ironic = mock.Mock()
        ironic.node.get.return_value.to_dict.side_effect = [
            node, {**node, 'target_power_state': 'power off'},
            {**node, 'power_state': 'power off'}]
        hand = disturbing.Hand(ironic, list(node), {'n': node},
                               mock.Mock(choices=lambda *args: ['power'],
                                         choice=lambda some: some[0]), 'x')
        with mock.patch.object(disturbing, 'PAUSE', 0):
            hand.change()
        self.assertEqual('power off', hand.done[0].content['power_state'])
        ironic.node.set_power_state.assert_called_once_with('n', 'off')


class DecidingTestCase(base.BaseTestCase):

    def test_both_sides_have_the_same_nodes(self):
        cloud = deciding.Cloud(60, 3, 2)
        ours = deciding.Ours(cloud)
        self.assertEqual(60, ours.audit())
        self.assertEqual(60, deciding.Stock(cloud).audit())

    def test_little_is_decided_when_nothing_has_changed(self):
        cloud = deciding.Cloud(600, 3)
        ours = deciding.Ours(cloud)
        ours.audit()
        before = ours.audit()
        cloud.change(100, 1)
        self.assertTrue(before < ours.audit() < 300)

    def test_ratios(self):
        self.assertEqual({'first': 2.0}, deciding.ratios(
            {'first': {'cpu': 3}}, {'first': {'cpu': 1.5}}))


class LookingTestCase(base.BaseTestCase):

    def test_requests_by_the_name_of_their_service(self):
        lab = settings.Settings(None, None, 28000)
        found = polling.counted({
            'asked': {'conductor': 3, str(lab.port('ironic')): 2},
            'wall': 1, 'cpu': 1, 'megabytes': 1, 'ironic': 0.5,
            'result': 7}, lab)
        self.assertEqual((3, 2, 0, 7, 0.5), tuple(found[name] for name in (
            'conductor', 'ironic', 'placement', 'given', 'Ironic CPU')))


class AskingTestCase(base.BaseTestCase):

    def test_a_fence_asks_as_much_with_many_nodes_as_with_few(self):
        fence = f'fence {asking.DEAD}'
        found = asking.measure(
            progresses.Progress(), sizes=(10, 3000), commands=(fence, 'list'))
        few, many = (found['commands'][fence][size] for size in (10, 3000))
        self.assertEqual(3, few['questions'])
        self.assertEqual(few['questions'], many['questions'])
        # Which asks for the nodes, page by page.
        few, many = (found['commands']['list'][size]['questions']
                     for size in (10, 3000))
        self.assertGreater(many, few)
        self.assertIn('10', asking.table(found)[0])

    def test_it_needs_no_lab(self):
        args = cli.parser().parse_args(['client', '--json'])
        self.assertIsNone(args.enrolled)
        with mock.patch.object(asking, 'measure', return_value={}) as measure:
            self.assertFalse(args.func(args, None, mock.sentinel.progress))
        measure.assert_called_once_with(mock.sentinel.progress)

    def test_refused(self):
        self.assertRaises(
            errors.LabError, asking.measure, progresses.Progress(), (3,),
            (f'unfence {asking.DEAD}x',))


class ClockTestCase(base.BaseTestCase):

    def test_who_was_imported_meanwhile_takes_it_for_later(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / 'bench_clock.py').write_text(
            'import time\ndef now(clock=time.monotonic):\n'
            '    return clock(), time.time()\n')
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        self.addCleanup(sys.modules.pop, 'bench_clock')
        right = sys.modules['time']
        clock = computing.Clock()
        with clock.imported():
            module = importlib.import_module('bench_clock')
        before = module.now()
        clock.ahead = 1000
        self.assertTrue(all(
            1000 <= later - one < 1100
            for one, later in zip(before, module.now(), strict=True)))
        self.assertIs(right, sys.modules['time'])
        self.assertIs(right.sleep, clock.sleep)


class ComputeTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        # All that it has is nova's.
        self.compute = computing.Compute.__new__(computing.Compute)
        self.compute._counted = computing.collections.Counter()
        self.compute._context = None
        self.compute._manager = mock.Mock()
        self.tracker = self.compute._manager.rt
        self.audited = self.tracker.update_available_resource
        self.compute._count(self.tracker)

    def audit(self, context):
        for node in ('a', 'b'):
            try:
                self.tracker.update_available_resource(context, node)
            except ValueError:
                # nova logs it, and goes on.
                pass

    def test_nodes_in_the_tracker_are_counted_at_each_audit(self):
        self.compute._manager.update_available_resource = self.audit
        self.assertEqual([2, 2], [self.compute.update() for _ in range(2)])

    def test_an_audit_that_has_failed_on_a_node_is_none(self):
        self.compute._manager.update_available_resource = self.audit
        self.audited.side_effect = [None, ValueError]
        self.assertRaises(RuntimeError, self.compute.update)

    def test_claims_end_with_the_audit(self):
        claimed, over = threading.Event(), threading.Event()

        def update():
            claimed.wait(60)
            over.set()

        def claim(*build):
            claimed.set()
            return over.wait(60)

        self.compute.update = update

        self.compute._claim = claim
        # The audit may be over a moment before it is known to be.
        self.assertTrue(1 <= len(self.compute.claim([['s']] * 99, True)) < 99)

    def test_claims_at_rest(self):
        self.compute._claim = lambda server, node: len(server + node)
        self.assertEqual([2, 3], self.compute.claim(
            [['s', 'n'], ['s', 'nn']]))


class MeasuredTestCase(base.BaseTestCase):

    def test_cpu_of_each_process_with_its_children(self):
        mine, = measured.cpu(os.getpid())
        parents, = measured.cpu(os.getppid())
        self.assertTrue(0 < mine <= parents)


class AuditingTestCase(base.BaseTestCase):

    def figures(self, wall=2):
        lab = settings.Settings(None, None, 28000)
        port = str(lab.port('placement'))
        return auditing.figures({
            'asked': {'conductor': 3, port: 4}, 'told': {port: 1},
            'wall': wall, 'cpu': 1, 'peak': 1, 'placement': 0.25,
            'conductor': 0.5, 'mariadb': 0.125, 'ironic': 0, 'result': 7},
            lab)

    def test_requests_and_writes(self):
        its = self.figures()
        self.assertEqual((3, 4, 1, 7, 0.25, 0.5), tuple(its[name] for name in (
            'conductor', 'placement', 'writes', 'audited', 'placement CPU',
            'conductor CPU')))

    def test_a_tenth_of_the_nodes_but_at_most_200(self):
        self.assertEqual([1, 30, 200, 200], [
            auditing.changes(nodes) for nodes in (3, 300, 2000, 10000)])

    def test_the_median_of_audits(self):
        self.assertEqual({'wall': 2}, auditing.median(
            [{'wall': wall} for wall in (3, 1, 2)]))

    def test_with_more_nodes_as_many_change(self):
        found = auditing.grown({
            'steady': {'wall': 3, 'audited': 10},
            'changed 2': {'wall': 4, 'audited': 10, 'recorded': 2}}, 10)
        self.assertEqual({
            'steady': {'wall': 30, 'audited': 100},
            'changed 2': {'wall': 31, 'audited': 100, 'recorded': 2}}, found)

    def test_who_asks_nothing_is_not_divided_by(self):
        stock = {'steady': self.figures()}
        ours = {'steady': {**self.figures(1), 'placement': 0}}
        found = auditing.ratios(stock, ours)
        self.assertEqual((2, 4), (found['steady wall'],
                                  found['steady placement requests']))

    def test_it_is_shown(self):
        its = {'steady': self.figures(), 'changed 1': {
            **self.figures(), 'recorded': 1}}
        lines = auditing.table({'nodes': 4, 'stock nodes': 4, 'stock': its,
                                'ours': its, 'ratios': {}})
        self.assertIn('500.0', lines[1])
        self.assertEqual(2, sum('nova recorded 1' in line for line in lines))


class ClaimingTestCase(base.BaseTestCase):

    def rows(self):
        rows = mock.Mock()
        rows.free.return_value = {'a': 'CUSTOM_1', 'b': 'CUSTOM_2'}
        rows.waiting.side_effect = lambda nodes: [f'on-{n}' for n in nodes]
        return rows

    def test_free_nodes_in_turn(self):
        self.assertEqual(
            [['on-a', 'a', 'CUSTOM_1'], ['on-b', 'b', 'CUSTOM_2'],
             ['on-a', 'a', 'CUSTOM_1']], claiming.builds(self.rows(), 3))

    def test_as_many_audits_as_it_takes(self):
        rows = self.rows()
        ask = mock.Mock(side_effect=[{'result': [1, 2]}, {'result': [3]}])
        found = claiming._auditing(ask, rows, 2, 3)
        self.assertEqual((3, 2), (found['claims'], found['audits']))
        self.assertEqual([3, 1], [len(call.args[1])
                                  for call in ask.call_args_list])
        # Each of them finds that all nodes have changed.
        self.assertEqual([mock.call(2, seed=1), mock.call(2, seed=2)],
                         rows.change.call_args_list)

    def test_figures_are_milliseconds(self):
        self.assertEqual(
            {'claims': 200, 'p50': 100, 'p99': 198, 'longest': 200},
            claiming.summary([one / 1000 for one in range(200, 0, -1)]))

    def test_there_may_be_none(self):
        self.assertEqual({'claims': 0, 'p50': 0, 'p99': 0, 'longest': 0},
                         claiming.summary([]))

    def test_it_is_shown(self):
        its = {'rest': claiming.summary([0.5]),
               'auditing': {**claiming.summary([1]), 'audits': 3}}
        self.assertEqual(5, len(claiming.table({'stock': its, 'ours': its})))


class ClaimsMeanwhileTestCase(base.BaseTestCase):
    """Claims of a compute service while it does something."""

    BUILDS = [['server', str(number), 'CLASS'] for number in range(1000)]

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(computing, 'PAUSE', 0))
        self.compute = object.__new__(computing.Compute)
        self.compute._counted = collections.Counter(audited=7)
        self.compute._claim = self.claim
        self.claimed, self.over = [], threading.Event()

    def claim(self, server, node, resource_class):
        self.claimed.append(node)
        if len(self.claimed) == 3:
            self.over.set()
        if node == '1':
            raise ValueError(node)
        return 0.5

    def test_until_it_is_done(self):
        its = self.compute._claim_while(
            lambda: self.over.wait(60), self.BUILDS)
        self.assertTrue(2 <= len(its['claims']) < 999, its)
        self.assertEqual((1, 0), (its['refused'], its['audited']))

    def test_what_fails_is_said(self):
        self.assertRaises(ZeroDivisionError, self.compute._claim_while,
                          lambda: 1 / 0, [])

    def switch(self, nodes, ours):
        self.compute._service = mock.Mock(disabled=False)
        self.compute._context = None
        self.compute._nodes, self.compute._ours = nodes, ours
        self.compute._manager = mock.Mock()
        found = self.compute.switch(False, self.BUILDS)
        self.assertTrue(self.compute._service.disabled)
        self.compute._service.save.assert_called_once_with()
        self.compute._manager.set_host_enabled.assert_called_once_with(
            None, enabled=False)
        return found

    def test_who_is_disabled_is_done_with_the_request(self):
        self.assertLess(self.switch(None, None)['request'], 60)

    def test_or_when_the_audits_in_the_background_are(self):
        ours = mock.Mock()
        ours.background_audit.once = lambda: self.over.wait(60)
        nodes = mock.Mock()
        self.switch(nodes, ours)
        nodes.poll_peers.assert_called_once_with()
        self.assertGreater(len(self.claimed), 2)


class SwitchingTestCase(base.BaseTestCase):

    def turn(self, **figures):
        return {'request': 1, 'done': 2, 'left': 0, 'conductor': 3,
                'placement': 4, 'audited': 0, 'refused': 0,
                'claims': [0.1], **figures}

    def test_figures_of_several_times(self):
        found = switching.figures(
            [self.turn(), self.turn(done=4, left=1, claims=[]),
             self.turn(done=5, refused=2, claims=[0.2, 0.3])], 100)
        self.assertEqual(
            {'done': 4, 'each second': 25, 'left': 1, 'refused': 2,
             'claims': 3, 'longest': 300},
            {name: found[name] for name in (
                'done', 'each second', 'left', 'refused', 'claims',
                'longest')})

    def switched(self, marked, enabled=False):
        """Switch four nodes of which so many are marked then."""
        some = settings.Settings(
            pathlib.Path('/lab'), pathlib.Path('/venv'), 17000)
        rows = mock.Mock()
        rows.free.return_value = {'a': 'CUSTOM_1'}
        rows.waiting.return_value = ['server'] * 4
        rows.marked.return_value = marked
        its = self.turn()
        del its['done'], its['left']
        ask = mock.Mock(return_value={
            'result': its, 'asked': {'conductor': 9}})
        with (mock.patch.object(switching, 'POLL', 0),
              mock.patch.object(switching, 'PATIENCE', 0)):
            return switching._switch(ask, rows, enabled, 4, some)

    def test_until_the_last_node_is_marked(self):
        self.assertEqual((0, 9), tuple(
            self.switched(4)[name] for name in ('left', 'conductor')))
        self.assertEqual(0, self.switched(0, enabled=True)['left'])

    def test_those_that_never_are(self):
        self.assertEqual(1, self.switched(3)['left'])
        self.assertEqual(3, self.switched(3, enabled=True)['left'])

    def test_it_is_shown(self):
        its = switching.figures([self.turn()], 10)
        lines = switching.table({
            driver: {'disable': its, 'enable': its}
            for driver in ('stock', 'ours')})
        self.assertEqual(5, len(lines))
        self.assertEqual({len(lines[0])}, set(map(len, lines)))


class JoiningTestCase(base.BaseTestCase):

    def test_until_no_more_nodes_move(self):
        for moved, over in (([0], False), ([0] * 10, False),
                            ([0, 3, 5, 5, 5], False), ([0, 3, 3, 3, 3], True),
                            ([3, 3, 3, 3], True), ([0, 3, 4, 3, 3], False),
                            ([0] * 41, True)):
            with self.subTest(moved):
                self.assertIs(over, joining.over(moved))

    def round(self, moved, seconds):
        return {'moved': moved,
                'compute-1': {'claims': [0.1], 'refused': 0},
                'compute-2': {'claims': [0.1] * 2, 'refused': 1,
                              'seconds': seconds, 'after': 0.5}}

    def test_figures(self):
        found = joining.figures([
            self.round(0, 10), self.round(4, 2), self.round(4, 1),
            self.round(6, 2), self.round(6, 5)])
        self.assertEqual(
            {'moved': 6, 'audits': 2, 'seconds': 4, 'each second': 1.5,
             'after': 1, 'refused': 5},
            {name: found[name] for name in (
                'moved', 'audits', 'seconds', 'each second', 'after',
                'refused')})
        self.assertEqual((5, 10), (found['compute-1']['claims'],
                                   found['compute-2']['claims']))

    def test_nothing_has_moved(self):
        found = joining.figures([self.round(0, 1)])
        self.assertEqual((0, 0), (found['moved'], found['each second']))

    def test_builds_are_for_nodes_that_stay(self):
        rows = mock.Mock()
        rows.free.side_effect = lambda host: {
            'compute-1': {'a': 'X', 'b': 'Y'}, 'compute-2': {}}[host]
        rows.waiting.side_effect = lambda nodes: [f'on-{n}' for n in nodes]
        self.assertEqual(
            [['on-b', 'b', 'Y']] * joining.CLAIMS,
            joining._builds(rows, 'compute-1', {'b'}))
        self.assertEqual([], joining._builds(rows, 'compute-2', {'b'}))

    def test_it_is_shown(self):
        its = joining.figures([self.round(1, 1)])
        lines = joining.table({'stock': its, 'ours': its})
        self.assertEqual({len(lines[0])}, set(map(len, lines)))


class StartingTestCase(base.BaseTestCase):

    def test_a_claim_is_done_when_the_next_task_begins(self):
        for row, done in (
                ((), False), ((None, 'building', 'scheduling'), False),
                ((None, 'building', None), False),
                (('c', 'building', None), False),
                (('c', 'building', 'networking'), True),
                (('c', 'building', 'spawning'), True),
                (('c', 'active', None), True), (('c', 'error', None), False)):
            with self.subTest(row):
                self.assertEqual(done, starting.is_claimed(*row))

    def accepted(self, rows, running='running'):
        """Look at these rows one after another."""
        some = settings.Settings(
            pathlib.Path('/lab'), pathlib.Path('/venv'), 17000)
        started = starting.Started(some, ())
        started._cloud = mock.Mock()
        started._cloud.create.side_effect = lambda name: name
        started._computes = mock.Mock()
        started._computes.process_state.return_value = running
        connection = mock.MagicMock()
        connection.return_value.__enter__.return_value = (None, None)
        with (mock.patch.object(starting.filling, 'Connection', connection),
              mock.patch.object(starting, 'PAUSE', 0),
              mock.patch.object(
                  starting, '_row', side_effect=lambda *args: rows.pop(0))):
            return started._accepted(float('inf'))

    def test_another_build_is_sent_when_one_is_given_up(self):
        self.assertEqual(('build-1', 1), self.accepted([
            (), (None, 'building', 'scheduling'), (None, 'error', None),
            (None, 'building', None), ('c', 'building', 'networking')]))

    def test_too_many_are_given_up(self):
        self.assertRaises(
            errors.LabError, self.accepted,
            [(None, 'error', None)] * starting.BUILDS)

    def test_it_does_not_wait_for_a_process_that_has_ended(self):
        self.assertRaises(
            errors.LabError, self.accepted, [()], running='stopped')

    def test_it_is_shown(self):
        its = {'accepted': 12.34, 'active': 15, 'given up': 1, 'cpu': 3,
               'ironic CPU': 1, 'placement CPU': 1, 'conductor CPU': 1,
               'mariadb CPU': 1}
        lines = starting.table({'nodes': 4, 'stock nodes': 4, 'stock': its,
                                'ours': its, 'ratio': 1})
        self.assertIn('12.34', lines[1])


class TogetherTestCase(base.BaseTestCase):

    def test_all_do_it_at_the_same_time_and_end(self):
        meeting = threading.Barrier(2)
        services = [mock.MagicMock() for _ in range(2)]
        for number, service in enumerate(services):
            service.__enter__.return_value = (
                lambda command, value, number=number:
                meeting.wait(60) is not None and (number, command, value))
        with measured.Together(services) as both:
            self.assertEqual([(0, 'act', 7), (1, 'act', 7)], both('act', 7))
        for service in services:
            service.__exit__.assert_called_once()


class ProportionTestCase(base.BaseTestCase):

    def test_part_of_it_grows(self):
        self.assertEqual({'a': 41, 'b': 7}, proportion.grown(
            {'a': 5, 'b': 7}, {'a': 4}, 10))

    def test_nothing_grows(self):
        self.assertEqual({'a': 5}, proportion.grown({'a': 5}, {'a': 5}, 1))

    def test_it_is_said(self):
        self.assertEqual([], proportion.note(
            {'nodes': 10, 'stock nodes': 10}))
        self.assertIn('with 3 nodes', proportion.note(
            {'nodes': 10, 'stock nodes': 3})[0])


class FencingTestCase(base.BaseTestCase):

    def test_each_node_of_the_one_that_dies_has_a_server(self):
        hosts = ['a', 'b', 'c']
        for nodes, others in (1, 1), (20, 20), (120, fencing.OTHERS):
            found = fencing.machines(nodes, hosts)
            self.assertEqual([others, others, nodes], [
                sum(one.owner == host for one in found) for host in hosts])
            self.assertTrue(all(
                one.instance for one in found if one.owner == 'c'))

    def watch(self, *manageable):
        """Look, each time a second after the look before."""
        now = iter(range(10_000))
        rows = mock.Mock()
        rows.manageable.side_effect = manageable
        return fencing.watch(rows, ['n1', 'n2', 'n3'], lambda: next(now),
                             lambda seconds: None)

    def test_when_each_could_be_managed(self):
        first, second, third = self.watch(0, 1, 1, 3)
        self.assertTrue(first < second == third)

    def test_it_does_not_wait_for_ever(self):
        self.assertEqual(1, len(self.watch(*[1] * 1000)))

    def figures(self, waits):
        lab = settings.Settings(None, None, 28000)
        its = {'asked': {'conductor': 3, str(lab.port('ironic')): 2},
               'conductor': 1, 'mariadb': 1, 'cpu': 1}
        return fencing.figures(
            [{**its, 'result': ['n1', 'mine']}, {**its, 'result': ['n2']}],
            lab, ['n1', 'n2', 'n3'], waits)

    def test_what_is_left_and_what_the_tracker_does_not_know(self):
        found = self.figures([11, 12])
        self.assertEqual((3, 1, 1, 11, 12, 12000), tuple(
            found[name] for name in (
                'servers', 'left', 'unknown', 'first', 'last', 'each')))
        self.assertEqual((6, 0, 4), tuple(
            found[name] for name in ('conductor', 'placement', 'ironic')))

    def test_it_is_shown(self):
        for waits in [], [11.25, 12, 13]:
            lines = fencing.table({'ours': self.figures(waits)})
            self.assertIn('never', lines[1])
        self.assertIn('11.2', lines[2])


class TrackedTestCase(base.BaseTestCase):

    def test_what_the_driver_says_of_a_node(self):
        found = tracked.capabilities()
        self.assertEqual(('x86_64', 'uefi'), (found['cpu_arch'],
                                              found['boot_mode']))

    def test_the_flavor_is_of_the_class_of_its_node(self):
        flavor = json.loads(tracked.FLAVOR.replace('CLASS', 'CUSTOM_X'))
        self.assertEqual('1', flavor['cur']['nova_object.data'][
            'extra_specs']['resources:CUSTOM_X'])


class PlottingTestCase(base.BaseTestCase):

    def file(self, text):
        file = tempfile.NamedTemporaryFile('w')
        self.addCleanup(file.close)
        file.write(text)
        file.flush()
        return file.name

    def test_the_last_line_of_what_was_printed(self):
        run = {'command': 'start', 'nodes': 10, 'stock': {}, 'ours': {}}
        self.assertEqual(run, plotting.read(
            self.file('a table\n' + json.dumps(run) + '\n')))

    def test_something_else(self):
        for text in ('', 'a table\n', '[]\n', '{"nodes": 1}\n',
                     '{"command": "peer_poll"}\n'):
            with self.subTest(text):
                self.assertRaises(
                    errors.LabError, plotting.read, self.file(text))

    def test_in_the_order_of_their_sizes(self):
        def run(nodes, wall):
            return {'nodes': nodes, 'stock': {'steady': {'wall': wall}},
                    'ours': {'steady': {'wall': 0}}}

        self.assertEqual(
            {'stock': ([10, 100], [1, 9], [True] * 2),
             'ours': ([10, 100], [0.001] * 2, [True] * 2)},
            plotting.lines([run(100, 9), run(10, 1)], ('steady', 'wall')))

    def test_what_was_multiplied_was_not_measured(self):
        run = {'nodes': 100, 'stock nodes': 10, 'stock': {'accepted': 5},
               'ours': {'accepted': 1}}
        self.assertEqual(
            {'stock': ([100], [5], [False]), 'ours': ([100], [1], [True])},
            plotting.lines([run], ('accepted',)))


class RingTestCase(base.BaseTestCase):

    def test_who_joins_gets_all_that_moves(self):
        to, between = ring.moved(3, 400, 64, random.Random(1))
        self.assertTrue(0.15 < to < 0.35)
        self.assertEqual(0, between)


class CommandTestCase(base.BaseTestCase):

    def test_what_needs_no_lab(self):
        parsed = {name: cli.parser().parse_args([name, *more]).enrolled
                  for name, *more in (
                      ['decide'], ['ring'],
                      ['plot', 'a.json', '--output', 'a.png'])}
        self.assertEqual({None}, set(parsed.values()))

    def test_what_is_filled_wants_one_node_that_is_enrolled(self):
        for name in ('audit', 'claim', 'start', 'disable', 'join',
                     'takeover'):
            args = cli.parser().parse_args([name, '--nodes', '5'])
            self.assertEqual((1, 5), (args.enrolled(args), args.nodes))

    def test_changes_want_nodes_that_are_enrolled(self):
        args = cli.parser().parse_args(['changes', '--nodes', '20'])
        self.assertEqual(20, args.enrolled(args))
