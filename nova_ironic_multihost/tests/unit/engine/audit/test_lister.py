# SPDX-License-Identifier: Apache-2.0

import collections
import itertools
from unittest import mock

import fixtures
import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.engine.audit import lister as readers
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.engine import listings

#: Seconds after which all nodes are listed again.
ROUND = 120
POLL = 10

NAMES = [f'node-{n}' for n in range(12)]
HERE = peers.Partition(shard='here')


def is_wanted(node):
    """Half of them are mine."""
    return int(node[-1]) % 2 == 0


class Consumer:
    """Keeps what a reader knows, told of the changes alone."""

    def __init__(self, ironic, partition=peers.Partition()):
        self.clock = 0.0
        self.reader = readers.Lister(ironic, lambda: self.clock)
        self.partition = partition
        self.mirror = None
        self.known = {}
        self.wanted = is_wanted

    def read(self):
        seen = self.reader.read(self.partition, ROUND, self.wanted)
        changed = (seen.nodes if self.mirror is None
                   else seen.changed_since(self.mirror.serial))
        gone = self.known.keys() - seen.nodes.keys()
        for node in gone:
            del self.known[node]
        for node in changed:
            self.known[node] = seen.nodes[node], seen.bodies.get(node)
        self.mirror = seen
        return {*changed, *gone}

    def truth(self, ironic):
        return {node: (row.instance, row.body) for node, row
                in ironic.truth(self.partition, is_wanted).items()}


class ReaderTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.ironic = listings.Ironic()
        for name in NAMES:
            self.ironic.create(name)
        self.consumer = Consumer(self.ironic)

    def wait(self, seconds=POLL):
        self.ironic.wait(seconds)
        self.consumer.clock += seconds

    def read(self):
        """Read, as some seconds later; returns the nodes that changed."""
        self.wait()
        self.ironic.asked.clear()
        return self.consumer.read()

    def asked(self):
        return collections.Counter(self.ironic.asked)

    def assertKnown(self):
        self.assertEqual(self.consumer.truth(self.ironic),
                         self.consumer.known)

    def test_all_at_first(self):
        self.assertEqual(set(NAMES), self.read())
        self.assertKnown()

    def test_whole_nodes_only_where_wanted(self):
        self.read()
        self.assertEqual(set(filter(is_wanted, NAMES)),
                         self.consumer.mirror.bodies.keys())

    def test_what_is_touched(self):
        self.read()
        self.ironic.work('node-4')
        self.ironic.change('node-5', instance='theirs')
        self.assertEqual({'node-4', 'node-5'}, self.read())
        self.assertKnown()

    def test_what_nobody_here_works_with(self):
        self.read()
        self.ironic.work('node-5')
        self.assertEqual(set(), self.read())

    def test_nothing_happens(self):
        self.ironic.work('node-4')
        self.read()
        self.read()
        self.assertEqual(set(), self.read())
        self.assertEqual({'newest': 1, 'total': 1}, self.asked())

    def test_nothing_happens_since_many_were_touched_at_once(self):
        """As in a cloud whose nodes were enrolled just now."""
        self.useFixture(fixtures.MockPatchObject(readers, 'FIRST', 3))
        self.read()
        for name in NAMES:
            self.ironic.work(name)
        self.read()
        for _ in range(3):
            self.assertEqual(set(), self.read())
            self.assertEqual({'newest': 1, 'total': 1}, self.asked())
        # The last of them, which is on no first page.
        self.ironic.change(NAMES[0], instance='theirs')
        self.assertEqual({NAMES[0]}, self.read())
        self.assertKnown()
        self.wait(100)
        self.ironic.work(NAMES[4])
        for _ in range(3):
            self.read()
        self.assertEqual({'newest': 1, 'total': 1}, self.asked())

    def test_as_many_are_created_as_go(self):
        """Their number says nothing until a new one is touched."""
        self.useFixture(fixtures.MockPatchObject(readers, 'FIRST', 2))
        for name in NAMES[-2:]:
            self.ironic.work(name)
        self.read()
        self.read()
        self.ironic.delete('node-3')
        self.ironic.create('node-30')
        self.assertEqual(set(), self.read())
        self.ironic.work('node-30')
        self.assertEqual({'node-3', 'node-30'}, self.read())
        self.assertKnown()

    def test_what_was_created_is_asked_for_each_time_without_a_count(self):
        self.ironic = listings.Ironic(counts=False)
        self.ironic.create('node-1')
        self.consumer = Consumer(self.ironic)
        self.read()
        self.ironic.delete('node-1')
        self.ironic.create('node-2')
        self.assertEqual({'node-2'}, self.read() - {'node-1'})
        self.assertEqual(1, self.asked()['total'])

    def test_created_and_never_touched(self):
        self.read()
        self.ironic.create('node-20')
        self.assertEqual({'node-20'}, self.read())
        self.assertKnown()

    def test_none_at_first(self):
        consumer = Consumer(ironic := listings.Ironic())
        consumer.read()
        ironic.create('node-0')
        self.assertEqual({'node-0'}, consumer.read())

    def test_deleted(self):
        self.read()
        self.ironic.delete('node-3')
        self.assertEqual({'node-3'}, self.read())
        self.assertKnown()

    def test_deleted_and_ironic_does_not_count(self):
        self.ironic = listings.Ironic(counts=False)
        for name in NAMES:
            self.ironic.create(name)
        self.consumer = Consumer(self.ironic)
        self.read()
        self.ironic.delete('node-3')
        self.assertEqual(set(), self.read())
        self.wait(ROUND)
        self.assertEqual({'node-3'}, self.read())

    def test_deleted_and_created_anew(self):
        self.read()
        self.ironic.delete('node-4')
        self.ironic.create('node-4')
        self.ironic.work('node-4')
        self.assertEqual({'node-4'}, self.read())
        self.assertKnown()

    def test_leaves_the_partition(self):
        for name in NAMES:
            self.ironic.change(name, shard='here')
        self.consumer = Consumer(self.ironic, HERE)
        self.read()
        self.ironic.change('node-4', shard='there')
        self.assertEqual({'node-4'}, self.read())
        self.assertKnown()

    def test_deleted_when_others_come_to_other_partitions(self):
        for name in NAMES:
            self.ironic.change(name, shard='here')
        self.consumer = Consumer(self.ironic, HERE)
        self.read()
        self.ironic.delete('node-4')
        self.ironic.create('node-40', shard='there')
        self.assertEqual({'node-4'}, self.read())

    def test_comes_into_the_partition(self):
        self.consumer = Consumer(self.ironic, HERE)
        self.read()
        self.ironic.change('node-4', shard='here')
        self.assertEqual({'node-4'}, self.read())
        self.assertKnown()

    def test_another_partition(self):
        self.ironic.change('node-4', shard='here')
        self.read()
        self.consumer.partition = HERE
        self.assertEqual(set(NAMES) - {'node-4'}, self.read())
        self.assertKnown()

    def test_an_edit_that_nobody_is_told_of(self):
        self.ironic.work('node-5')
        self.ironic.work('node-6')
        self.ironic.work('node-7')
        with small():
            self.read()
            self.read()
            self.ironic.edit('node-4')
            self.assertEqual(set(), self.read())
            self.wait(ROUND)
            self.assertEqual({'node-4'}, self.read())

    def test_a_clock_that_is_ahead_hides_nobody(self):
        with small():
            for name in NAMES[:6]:
                self.ironic.work(name, ahead=3600)
            self.read()
            self.ironic.work('node-10')
            self.assertEqual({'node-10'}, self.read())
            self.ironic.work('node-8')
            self.assertEqual({'node-8'}, self.read())

    def test_a_clock_that_is_behind_hides_for_a_round(self):
        for name in NAMES:
            self.ironic.work(name)
        self.read()
        with small():
            self.read()
            self.ironic.work('node-4', ahead=-3600)
            self.read()
            self.wait(ROUND)
            self.read()
            self.assertKnown()

    def test_two_changes_in_one_second(self):
        self.read()
        self.ironic.work('node-4')
        self.read()
        self.ironic.change('node-4', ahead=-POLL, instance='theirs')
        self.assertEqual({'node-4'}, self.read())

    def test_a_burst_is_listed_whole(self):
        with small():
            self.read()
            for name in NAMES:
                self.ironic.work(name)
            self.read()
            self.assertKnown()

    def test_a_failure_changes_nothing(self):
        def fail():
            self.ironic.meanwhile = lambda: None
            raise listings.SilentError()

        self.read()
        self.ironic.work('node-4')
        self.ironic.meanwhile = fail
        self.assertRaises(listings.SilentError, self.read)
        self.assertEqual({'node-4'}, self.read())

    def test_ironic_is_not_asked_for_ever_when_a_node_was_touched(self):
        """Each question may last until it has no answer."""
        for name in NAMES:
            self.ironic.work(name)
        self.ironic.broken = set(NAMES)
        self.read()
        self.assertEqual(readers.FAILURES, self.asked()['touched'])

    def test_nodes_that_ironic_cannot_show(self):
        self.ironic.work('node-4')
        self.ironic.broken = set(NAMES)
        self.read()
        self.ironic.work('node-6')
        self.assertEqual({'node-6'}, self.read())
        self.ironic.broken = {'node-6'}
        self.ironic.work('node-8')
        self.assertEqual({'node-8'}, self.read())
        self.assertKnown()

    def test_what_this_host_has_changed_is_read_anew(self):
        with small():
            self.read()
            self.ironic.edit('node-4')
            self.ironic.edit('node-6')
            self.assertEqual(set(), self.read())
            self.consumer.reader.forget('node-4')
            self.consumer.reader.forget('of-another-partition')
            self.assertEqual({'node-4'}, self.read())
            self.assertEqual(set(), self.read())
            self.assertEqual(0, self.asked()['node'])

    def test_what_cannot_be_read_anew_is_not_believed(self):
        with small():
            self.read()
            self.ironic.edit('node-4')
            self.ironic.edit('node-6')
            self.ironic.broken = {'node-4'}
            for name in ('node-4', 'node-6'):
                self.consumer.reader.forget(name)
            self.assertEqual({'node-6'}, self.read())
            self.assertNotIn('node-4', self.consumer.mirror.bodies)
            self.ironic.broken = set()
            self.assertEqual({'node-4'}, self.read())
            self.assertKnown()

    def test_nodes_that_ironic_cannot_show_hold_up_no_other(self):
        with small():
            self.read()
            self.ironic.edit('node-8')
            self.ironic.broken = {'node-1', 'node-2', 'node-3'}
            for name in (*self.ironic.broken, 'node-8'):
                self.consumer.reader.forget(name)
            self.assertIn('node-8', self.read() | self.read())

    def test_what_is_not_read_as_ironic_is_silent_is_read_later(self):
        def fail():
            raise listings.SilentError()

        self.read()
        self.ironic.edit('node-4')
        self.consumer.reader.forget('node-4')
        self.ironic.meanwhile = fail
        self.assertRaises(listings.SilentError, self.read)
        self.ironic.meanwhile = lambda: None
        self.assertEqual({'node-4'}, self.read())

    def test_node_that_is_not_shown_is_not_gone(self):
        """An account that lost a role is shown none."""
        self.read()
        self.consumer.reader.forget('node-4')
        self.ironic.blind = True
        self.read()
        self.assertIn('node-4', self.consumer.mirror.nodes)

    def test_more_is_known_of_what_becomes_mine(self):
        self.read()
        before = self.consumer.mirror
        mine = {'node-1', 'node-2'}
        self.assertEqual(
            mine, self.consumer.reader.complete(mine).bodies.keys())
        self.assertEqual(
            set(), self.consumer.reader.mirror.changed_since(before.serial))

    def test_many_that_become_mine_are_listed(self):
        self.read()
        mine = {'node-1', 'node-2', 'node-3'}
        self.consumer.wanted = lambda node: node in mine
        with mock.patch.object(readers, 'ALONE', 1):
            self.assertEqual(
                {'node-2'}, self.consumer.reader.complete(mine).bodies.keys())
            self.read()
        self.assertEqual(mine, self.consumer.mirror.bodies.keys())
        self.assertEqual(0, self.asked()['node'])

    def test_few_of_very_many_that_become_mine_are_read_alone(self):
        self.read()
        mine = {'node-1', 'node-2', 'node-3'}
        self.consumer.wanted = lambda node: node in mine
        with mock.patch.multiple(readers, FIRST=1, TOGETHER=1):
            self.read()
        self.assertLessEqual(mine, self.consumer.mirror.bodies.keys())
        self.assertEqual((2, 0), (self.asked()['node'], self.asked()['page']))

    def test_takeover_does_not_wait_for_ironic(self):
        self.read()
        self.ironic.change('node-1', instance='i1')
        self.read()
        mine = {'node-1', 'node-2'}
        self.consumer.wanted = mine.__contains__
        self.assertEqual(
            {'node-2'}, self.consumer.reader.complete(mine).bodies.keys())
        self.read()
        self.assertEqual(mine, self.consumer.mirror.bodies.keys())

    def test_of_what_becomes_mine_some_cannot_be_shown(self):
        self.read()
        self.ironic.broken = {'node-1'}
        self.assertEqual({'node-3'}, self.consumer.reader.complete(
            {'node-1', 'node-3'}).bodies.keys())

    def test_all_are_listed_when_one_is_sought(self):
        self.read()
        self.ironic.edit('node-1')
        self.consumer.reader.seek()
        self.read()
        self.assertEqual(1, self.asked()['page'])

    def test_nodes_that_go_one_by_one_have_them_listed_now_and_then(self):
        self.read()
        listed = []
        for name in NAMES[:6]:
            self.ironic.delete(name)
            self.read()
            listed.append(self.asked()['page'])
        self.assertEqual([1, 0, 0, 1, 0, 0], [
            min(1, pages - 1) for pages in listed])
        self.consumer.clock += readers.SOON
        self.read()
        self.assertKnown()

    def test_a_listing_that_was_sought_reads_no_fields(self):
        self.read()
        self.consumer.reader.seek()
        with mock.patch.object(
                self.ironic, 'page', wraps=self.ironic.page) as page:
            self.read()
        self.assertEqual([None], [call.args[3] for call
                                  in page.call_args_list])

    def test_a_listing_that_fails_hides_no_change_and_is_tried_later(self):
        def fail():
            if self.ironic.asked[-1] == 'page':
                raise listings.SilentError()

        self.read()
        self.wait(ROUND)
        self.ironic.meanwhile = fail
        self.ironic.work('node-4')
        self.assertEqual({'node-4'}, self.read())
        self.assertEqual(1, self.asked()['page'])
        self.read()
        self.assertEqual(0, self.asked()['page'])
        self.ironic.meanwhile = lambda: None
        self.ironic.edit('node-2')
        self.assertEqual({'node-2'}, self.read())
        self.assertKnown()

    def test_nodes_go_while_a_page_with_fields_fails(self):
        self.read()
        page = self.ironic.page

        def fail(partition, after, limit, wanted):
            if wanted is not None and after is None:
                raise listings.SilentError()
            return page(partition, after, limit, wanted)

        self.ironic.page = fail
        for name in NAMES[:6]:
            self.ironic.delete(name)
            self.read()
            self.wait(ROUND)
        self.wait(readers.SOON)
        self.read()
        self.assertEqual(set(NAMES[6:]), self.consumer.mirror.nodes.keys())

    def test_a_slow_listing_of_instances_hides_no_change(self):
        """Made between the last updates and the listing, and long before."""
        def work():
            if self.ironic.asked[-1] == 'total':
                self.ironic.meanwhile = lambda: None
                for name in 'node-4', 'node-5':
                    self.ironic.work(name)
                    self.wait(1)
                self.wait(60)
                self.ironic.work('node-6')

        self.useFixture(fixtures.MockPatchObject(readers, 'FIRST', 2))
        self.ironic.work('node-0')
        self.read()
        self.read()
        self.ironic.delete('node-3')
        self.ironic.meanwhile = work
        self.assertIn('node-3', self.read())
        self.read()
        self.assertKnown()

    def test_deleted_while_all_are_listed(self):
        def vanish():
            if 'page' in self.ironic.asked[:-1]:
                self.ironic.delete('node-1')

        self.ironic.meanwhile = vanish
        with small():
            self.read()
        self.ironic.meanwhile = lambda: None
        self.assertEqual({'node-1'}, self.read())

    def test_changed_and_changed_back(self):
        self.ironic.work('node-4')
        self.read()
        self.read()
        self.ironic.edit('node-4')
        self.consumer.reader.forget('node-4')
        self.assertEqual({'node-4'}, self.read())
        self.ironic._table['node-4'].content -= 1
        self.assertEqual({'node-4'}, self.read())
        self.assertKnown()

    def test_many_that_come_into_sight_are_not_read_one_by_one(self):
        hidden = {f'node-{number}': self.ironic._table.pop(f'node-{number}')
                  for number in range(8)}
        self.read()
        self.ironic._table.update(hidden)
        self.ironic.delete('node-11')
        self.ironic.delete('node-10')
        self.consumer.reader.seek()
        self.read()
        self.read()
        self.assertKnown()
        self.assertEqual(0, self.asked()['node'])

    def test_the_last_one_is_enrolled_anew_behind_others(self):
        self.read()
        self.ironic.create('node-30')
        self.ironic.delete(NAMES[-1])
        self.ironic.create(NAMES[-1])
        self.assertLessEqual({'node-30'}, self.read())
        self.assertKnown()

    def test_count_that_fails_stops_nothing(self):
        def fail():
            if self.ironic.asked[-1] == 'total':
                raise listings.SilentError()

        self.read()
        self.ironic.meanwhile = fail
        self.ironic.delete('node-3')
        self.ironic.work('node-4')
        with self.assertLogs(readers.__name__, 'WARNING') as logs:
            self.assertEqual({'node-4'}, self.read())
            self.read()
        self.assertEqual(1, len(logs.output))
        self.ironic.meanwhile = lambda: None
        self.assertEqual({'node-3'}, self.read())

    def test_nodes_that_vanish_while_they_are_listed_are_no_list(self):
        self.ironic = listings.Ironic(limit=3)
        for name in NAMES:
            self.ironic.create(name)
        self.consumer = Consumer(self.ironic)

        numbers = itertools.count(100)

        def vanish():
            for node in list(self.ironic.truth()):
                self.ironic.delete(node)
                self.ironic.create(f'node-{next(numbers)}')

        self.ironic.meanwhile = vanish
        self.assertRaises(listings.ListingError, self.read)

    def test_node_that_is_said_to_be_gone_is_looked_for_at_once(self):
        self.ironic = listings.Ironic(counts=False)
        for name in NAMES:
            self.ironic.create(name)
        self.consumer = Consumer(self.ironic)
        self.read()
        self.ironic.delete('node-4')
        self.consumer.reader.forget('node-4')
        self.assertEqual(set(), self.read())
        self.assertEqual({'node-4'}, self.read())

    def test_who_is_in_a_hurry_does_not_wait_for_a_reading(self):
        self.read()
        seen = []

        def look():
            self.ironic.meanwhile = lambda: None
            seen.append(self.brief())

        before = self.consumer.mirror
        self.ironic.work('node-4')
        self.ironic.meanwhile = look
        self.assertEqual({'node-4'}, self.read())
        self.assertEqual([before], seen)

    def brief(self):
        return self.consumer.reader.read(
            self.consumer.partition, ROUND, is_wanted, brief=True)

    def test_who_is_in_a_hurry_sees_what_has_just_changed(self):
        self.read()
        self.ironic.work('node-4')
        seen = self.brief()
        self.assertEqual({'node-4'}, seen.changed_since(
            self.consumer.mirror.serial))

    def test_who_is_in_a_hurry_lists_no_nodes(self):
        with small():
            self.read()
            for name in NAMES:
                self.ironic.work(name)
            self.assertIs(self.consumer.mirror, self.brief())
            self.read()
            self.assertKnown()

    def test_after_a_long_pause_one_round_is_enough(self):
        with small():
            self.read()
            self.wait(10 * ROUND)
            self.read()
            self.assertLessEqual(self.asked()['page'],
                                 len(NAMES) // readers.PAGE + 1)

    def test_forgets_what_is_not_mine(self):
        self.read()
        self.consumer.reader.complete(frozenset({'node-2'}))
        self.consumer.wanted = lambda node: node == 'node-2'
        self.assertEqual(set(), self.read())
        self.assertEqual({'node-2'}, self.consumer.mirror.bodies.keys())


class TakenTestCase(base.BaseTestCase):
    """Nodes with servers, not the last updated ones, become this host's."""

    MINE = frozenset({'node-0', 'node-1'})

    def setUp(self):
        super().setUp()
        self.ironic = listings.Ironic()
        for n in range(18):
            self.ironic.create(f'node-{n}')
            self.ironic.change(f'node-{n}', instance=f'of-{n}')
            self.ironic.wait(60)
        self.clock = 0
        self.reader = readers.Lister(self.ironic, lambda: self.clock)
        self.useFixture(fixtures.MockPatchObject(readers, 'FIRST', 2))
        for _ in range(2):
            self.read(frozenset())
        self.reader.complete(self.MINE)

    def read(self, wanted=MINE, seconds=POLL):
        """Return how often all nodes were listed."""
        self.clock += seconds
        self.ironic.wait(seconds)
        self.ironic.asked.clear()
        self.reader.read(peers.Partition(), ROUND, wanted.__contains__)
        return self.ironic.asked.count('page')

    def test_read_that_began_before(self):
        """It has waited for the other one."""
        self.read(frozenset())
        self.assertEqual(1, self.read())
        self.assertEqual(self.MINE, self.reader.mirror.bodies.keys())

    def test_page_that_fails(self):
        self.ironic.broken_pages = True
        self.assertEqual(1, self.read())
        self.reader.complete(self.MINE)
        self.assertEqual(0, self.read())
        self.assertEqual(self.MINE, self.reader.mirror.bodies.keys())

    def fail_with_bodies(self):
        """Have pages with bodies fail; return a mock that notes all pages."""
        page = self.ironic.page

        def fail(partition, after, limit, wanted):
            if wanted:
                raise listings.SilentError
            return page(partition, after, limit, wanted)

        return self.useFixture(fixtures.MockPatchObject(
            self.ironic, 'page', mock.Mock(side_effect=fail))).mock

    def test_page_that_fails_with_bodies(self):
        """A listing without them is no reason to try one with them again."""
        tries = self.fail_with_bodies()
        self.read()
        tries.reset_mock()
        self.reader.seek()
        for wanted in self.MINE, {f'node-{n}' for n in range(4)}:
            self.read(wanted, 1)
        self.assertEqual([None], [call.args[3] for call in tries.mock_calls])

    def test_node_that_cannot_be_shown(self):
        """Ironic lists all of them once."""
        self.reader.forget('node-1')
        self.ironic.broken = {'node-1'}
        for listings_of_all in 1, 0, 0, 0:
            self.assertEqual(listings_of_all, self.read())
            self.reader.complete(self.MINE)
        self.assertEqual(self.MINE, self.reader.mirror.bodies.keys())

    def test_many_that_cannot_be_shown_hold_up_no_other(self):
        wanted = frozenset(f'node-{n}' for n in range(8))
        self.ironic.broken = wanted - {'node-5'}
        self.fail_with_bodies()
        self.useFixture(fixtures.MockPatchObject(readers, 'ALONE', 1))
        for _ in wanted:
            self.read(wanted)
        self.assertIn('node-5', self.reader.mirror.bodies)
        for node in wanted:
            self.ironic.broken = wanted
            self.reader.complete(frozenset())
            for _ in range(30):
                self.read(wanted)
            # This one alone stays so.
            self.ironic.broken = {node}
            for _ in range(100):
                self.read(wanted)
            self.assertEqual(
                wanted - {node}, self.reader.mirror.bodies.keys())


def small():
    """Pages so small that a few nodes need several."""
    return mock.patch.multiple(
        readers, PAGE=3, FIRST=2, MANY=8)


nodes = strategies.sampled_from(NAMES)
clocks = strategies.sampled_from([0, 1, -1, 15, -15])
wrong_clocks = strategies.sampled_from([0, 900, -900])


def changes(ahead):
    """What others do to Ironic."""
    return strategies.one_of(
        strategies.tuples(strategies.just('work'), nodes, ahead),
        strategies.tuples(
            strategies.just('change'), nodes, ahead,
            strategies.fixed_dictionaries({
                'instance': strategies.sampled_from(
                    [None, 'mine', 'theirs'])})),
        strategies.tuples(strategies.sampled_from(['create', 'delete']),
                          nodes))


def apply(ironic, change):
    name, node, *rest = change
    more = rest.pop() if name == 'change' else {}
    getattr(ironic, name)(node, *rest, **more)


def without_deletes(played):
    """Have nodes created between two readings alone, and none deleted.

    While nodes come and go their number says nothing.
    """
    return [([change for change in before if change[0] != 'delete'],
             [change for change in during
              if change is None or change[0] not in ('create', 'delete')],
             seconds) for before, during, seconds in played]


def turns(ahead):
    """Rounds of: what happens before a reading, and during it; how it ends."""
    return strategies.lists(strategies.tuples(
        strategies.lists(changes(ahead), max_size=6),
        strategies.lists(strategies.one_of(
            strategies.none(), strategies.just('fail'), changes(ahead)),
            max_size=8),
        strategies.integers(1, 40)), max_size=8)


class PropertiesTestCase(base.BaseTestCase):

    def play(self, ironic, consumer, played, judge):
        for name in NAMES[:8]:
            ironic.create(name)
        for before, during, seconds in played:
            for change in before:
                apply(ironic, change)
            steps = iter(during)

            def meanwhile():
                step = next(steps, None)
                if step == 'fail':
                    raise listings.SilentError()
                if step is not None:
                    apply(ironic, step)

            known = dict(consumer.known)
            ironic.meanwhile = meanwhile
            try:
                consumer.read()
            except listings.SilentError:
                self.assertEqual(known, consumer.known)
            ironic.meanwhile = lambda: None
            judge()
            ironic.wait(seconds)
            consumer.clock += seconds

    @hypothesis.given(turns(clocks), strategies.integers(2, 5))
    def test_a_change_is_seen_by_the_next_readings(self, played, limit):
        ironic = listings.Ironic(limit)
        consumer = Consumer(ironic)
        for name in NAMES[:8]:
            ironic.create(name)
            ironic.work(name)
        with small():
            self.play(ironic, consumer, without_deletes(played),
                      lambda: None)
            for _ in range(3):
                consumer.read()
        self.assertEqual(consumer.truth(ironic), consumer.known)

    @hypothesis.given(turns(wrong_clocks), strategies.integers(2, 5),
                      strategies.booleans())
    def test_whatever_happens_rounds_find_it(self, played, limit, counts):
        ironic = listings.Ironic(limit, counts)
        consumer = Consumer(ironic)
        with small():
            self.play(ironic, consumer, played, lambda: None)
            for _ in range(2 * ROUND // POLL + 2):
                ironic.wait(POLL)
                consumer.clock += POLL
                consumer.read()
        self.assertEqual(consumer.truth(ironic), consumer.known)

    @hypothesis.given(turns(wrong_clocks), strategies.integers(2, 5))
    def test_no_node_vanishes_that_is_there(self, played, limit):
        ironic = listings.Ironic(limit)
        consumer = Consumer(ironic)
        there = NAMES[:3]

        def judge():
            self.assertLessEqual(
                set(there) if consumer.mirror else set(),
                consumer.known.keys())

        with small():
            self.play(ironic, consumer, [
                ([c for c in before if not (
                    c[0] == 'delete' and c[1] in there)],
                 [c for c in during if c in (None, 'fail') or not (
                     c[0] == 'delete' and c[1] in there)], seconds)
                for before, during, seconds in played], judge)
