# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.incremental import NodeInputs
from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import ring

NODES = [f'node-{number}' for number in range(50)]
ALL = peers.Partition()


def view(*up, down=()):
    return peers.view([
        *(peers.ComputeService(host, up=True) for host in up),
        *(peers.ComputeService(host, up=False) for host in down)],
        ALL, 'a')


def listed(**instances):
    return Mirror().listed(
        [
            NodeRow(node, instances.get(node.replace('-', '_')))
            for node in NODES
        ],
        None,
    )


class _StandingTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.preferences = ring.Preferences({'a': None, 'b': None}, 8)
        self.basis = incremental.Inputs(
            view('a', 'b'), self.preferences, {}, ALL)
        self.mirror = listed(node_1='i1')
        self.before = incremental.LastAudit(
            self.basis, self.mirror.serial, frozenset({'node-0'}),
            frozenset({'i1'}), frozenset())


class DueTestCase(_StandingTestCase):

    def due(self, before=None, basis=None, mirror=None, mine=('node-0',),
            instances=('i1',)):
        """Return what is due besides those whose turn it is."""
        before = before or self.before
        every = [incremental.due(
            dataclasses.replace(before, turn=turn), basis or self.basis,
            mirror or self.mirror, frozenset(mine), frozenset(instances))
            for turn in range(incremental.TURNS)]
        return set.intersection(*map(set, every))

    def test_all_at_first(self):
        self.assertEqual(set(NODES), set(incremental.due(
            incremental.LastAudit(), self.basis, self.mirror, frozenset(),
            frozenset())))

    def test_nothing_if_nothing_has_changed(self):
        self.assertEqual(set(), self.due())

    def test_each_in_its_turn(self):
        turns = [incremental.due(
            dataclasses.replace(self.before, turn=turn), self.basis,
            self.mirror, frozenset({'node-0'}), frozenset({'i1'}))
            for turn in range(3, 3 + incremental.TURNS)]
        self.assertCountEqual(NODES, itertools.chain(*turns))

    def test_all_if_what_all_depend_on_has_changed(self):
        for change in (
                {'view': view('a', down=['b'])}, {'zones': {'a': 'z1'}},
                {'preferences': ring.Preferences({'a': None}, 8)},
                {'partition': peers.Partition(shard='s1')}):
            self.assertEqual(set(NODES), self.due(
                basis=dataclasses.replace(self.basis, **change)))

    def test_same_services_in_another_order_are_no_change(self):
        self.assertEqual(set(), self.due(basis=dataclasses.replace(
            self.basis, view=view('b', 'a'))))

    def test_what_has_changed(self):
        mirror = self.mirror.met(
            [NodeRow('node-2', 'i2'), NodeRow('new', None)])
        self.assertEqual({'node-2', 'new'}, self.due(mirror=mirror))

    def test_node_that_is_gone_is_nobodys(self):
        self.assertEqual(set(), self.due(
            mirror=self.mirror.without(['node-2'])))

    def test_nodes_whose_record_or_instance_came_or_went(self):
        self.assertEqual({'node-0', 'node-7'}, self.due(mine=['node-7']))
        self.assertEqual({'node-1'}, self.due(instances=[]))

    def test_what_may_change_without_a_sign(self):
        self.assertEqual({'node-9'}, self.due(dataclasses.replace(
            self.before, unsettled=frozenset({'node-9', 'gone'}))))


class UncertainTestCase(_StandingTestCase):

    def setUp(self):
        super().setUp()
        prefers = self.preferences.prefers
        self.mine = [node for node in NODES if prefers('a', node)]
        self.theirs = [node for node in NODES[2:] if prefers('b', node)]
        self.before = dataclasses.replace(self.before, turn=1)

    def uncertain(self, recorded, mine=None, **changes):
        changes = {'before': self.before, 'basis': self.basis,
                   'mirror': self.mirror, **changes}
        return incremental.uncertain(
            **changes, recorded=frozenset(recorded),
            mine=recorded if mine is None else mine)

    def test_all_now_and_then_and_when_everything_may_be_another(self):
        turns = [self.uncertain([], before=dataclasses.replace(
            self.before, turn=turn)) for turn in range(2 * incremental.TURNS)]
        self.assertEqual(2, turns.count(None))
        self.assertIsNone(self.uncertain([], before=incremental.LastAudit()))
        self.assertIsNone(self.uncertain([], basis=dataclasses.replace(
            self.basis, view=view('a', down=['b']))))

    def test_nothing_if_nothing_has_changed(self):
        self.assertEqual(set(), self.uncertain(self.mine))

    def test_what_another_may_take(self):
        self.assertEqual(
            {self.theirs[0]}, self.uncertain([self.mine[0], self.theirs[0]]))

    def test_node_with_an_instance_of_mine_is_nobodys_to_take(self):
        node = self.theirs[0]
        mirror = self.mirror.met([NodeRow(node, 'i1')])
        before = dataclasses.replace(self.before, serial=mirror.serial)
        self.assertEqual(set(), self.uncertain(
            [node], mirror=mirror, before=before))

    def test_what_has_changed_or_is_unsettled_or_gone(self):
        first, second, third = self.mine[:3]
        self.assertEqual({first, second, third}, self.uncertain(
            self.mine, mirror=self.mirror.met([NodeRow(first, 'i2')]).without(
                [second]), before=dataclasses.replace(
                    self.before, unsettled=frozenset({third, 'gone'}))))

    def test_what_has_become_mine_since(self):
        self.assertEqual({self.mine[0]}, self.uncertain(
            [], mine=[self.mine[0]]))


class DoubtTestCase(base.BaseTestCase):

    def test_until_all_records_are_read_later(self):
        for recorded, doubted, doubt in (
                (10, None, False), (None, None, False), (None, 5, True),
                (10, 5, False), (10, 10, True), (10, 11, True)):
            self.assertIs(doubt, incremental.in_doubt(recorded, doubted))


HOSTS = ['a', 'b', 'c']
ONE = 'node-1'


@strategies.composite
def facts(draw):
    """Return what is to be known of one node."""
    states = {host: draw(strategies.booleans()) for host in HOSTS}
    instance = draw(strategies.sampled_from([None, 'i1']))
    zones = {host: zone for host in HOSTS if (
        zone := draw(strategies.sampled_from([None, None, 'z1', 'z2'])))}
    host = draw(strategies.sampled_from([None, *HOSTS]))
    owner = draw(strategies.sampled_from([None, *HOSTS]))
    state = InstanceState(host, draw(strategies.booleans()))
    known = view('a', *(h for h in 'bc' if states[h]),
                 down=[h for h in 'bc' if not states[h]])
    return Facts(
        nodes={ONE: instance},
        my_instances=frozenset(
            {'i1'} if instance and host == 'a' and not state.deleted else ()),
        my_nodes=frozenset({ONE} if owner == 'a' else ()), view=known,
        preferences=ring.Preferences(
            {member: zones.get(member) for member in known.members}, 8),
        zones=zones, instance_states={'i1': state} if draw(
            strategies.booleans()) or host == 'a' else {},
        records={ONE: Record(ONE, owner)} if owner not in (None, 'a') else {})


class SettledTestCase(base.BaseTestCase):

    @hypothesis.settings(derandomize=True, deadline=None)
    @hypothesis.given(facts())
    def test_what_stands_is_mine_and_recorded_or_a_live_hosts(self, its):
        reason = ownership.decide(its)[ONE]
        if not incremental.reason_lasts(ONE, reason, its):
            return
        if reason.mine:
            self.assertIn(ONE, its.my_nodes)
            self.assertIn(reason, (Reason.KEPT, Reason.INSTANCE_HERE))
            return
        self.assertNotIn(ONE, its.my_nodes)
        self.assertIn(reason, (Reason.INSTANCE_ELSEWHERE,
                               Reason.OTHER_PREFERRED))
        state = its.instance_states.get(its.nodes[ONE])
        record = its.records.get(ONE)
        self.assertTrue(
            not its.concerns_me(ONE)
            or state and its.view.live(state.host_key)
            or record and its.view.live(record.owner))

    def settled(self, owner=None, instance=None, host=None, down=False):
        """Return why the node is a's or not, and whether that stands."""
        its = Facts(
            nodes={ONE: instance}, my_instances=frozenset(
                {'i1'} if host == 'a' else ()),
            my_nodes=frozenset({ONE} if owner == 'a' else ()),
            view=view('a', down=['b']) if down else view('a', 'b'),
            preferences=ring.Preferences({'a': None}, 8),
            instance_states={'i1': InstanceState(host)} if host else {},
            records={ONE: Record(ONE, 'b')} if owner == 'b' else {})
        reason = ownership.decide(its)[ONE]
        return reason, incremental.reason_lasts(ONE, reason, its)

    def test_what_stands(self):
        self.assertEqual((Reason.KEPT, True), self.settled('a'))
        self.assertEqual((Reason.INSTANCE_HERE, True),
                         self.settled('a', 'i1', 'a'))
        self.assertEqual((Reason.INSTANCE_ELSEWHERE, True),
                         self.settled('b', 'i1', 'b'))

    def test_what_is_about_to_change_or_to_be_cleared_up(self):
        self.assertEqual((Reason.CREATED, False), self.settled())
        self.assertEqual((Reason.PULLED, False), self.settled('b'))
        self.assertEqual((Reason.ADOPTED, False),
                         self.settled('b', down=True))
        self.assertEqual((Reason.INSTANCE_HERE, False),
                         self.settled('b', 'i1', 'a'))
        self.assertEqual((Reason.INSTANCE_OF_DEAD, False),
                         self.settled('b', 'i1', 'b', down=True))
        self.assertEqual((Reason.INSTANCE_ELSEWHERE, False),
                         self.settled('a', 'i1', 'b'))
        self.assertEqual((Reason.UNKNOWN, False), self.settled('a', 'i1'))


UUIDS = [f'1be26c0b-03f2-4d2e-ae87-c02d7f33c1{i:02}' for i in range(40)]
BASIS = NodeInputs(NodeRow(UUIDS[0], None, b'content'), Reason.KEPT, 1)
INTERVAL = 1000


class TrackerDueTestCase(base.BaseTestCase):

    def due(self, basis=BASIS, last=BASIS, passed=0):
        return incremental.audit_is_due(
            basis,
            last and incremental.NodeAudit(last, 50),
            50 + passed,
            INTERVAL,
        )

    def test_node_that_was_never_audited(self):
        self.assertTrue(self.due(last=None))

    def test_node_of_which_nothing_has_changed(self):
        self.assertFalse(self.due())
        same = NodeInputs(
            NodeRow(UUIDS[0], None, b'cont' + b'ent'), Reason.KEPT, 1)
        self.assertFalse(self.due(same, passed=INTERVAL / 3))

    def test_whatever_an_audit_depends_on(self):
        row = BASIS.node
        for changed in (
            NodeInputs(row._replace(body=b'other'), Reason.KEPT, 1),
            NodeInputs(row._replace(instance='i1'), Reason.KEPT, 1),
            NodeInputs(row, Reason.LEAKED, 1),
            NodeInputs(row, Reason.KEPT, 2),
        ):
            self.assertTrue(self.due(changed))

    def test_node_that_came_and_is_kept_now(self):
        for reason in Reason.ADOPTED, Reason.PULLED:
            came = NodeInputs(BASIS.node, reason, 1)
            self.assertFalse(self.due(last=came))
            # It has been another's in between.
            self.assertTrue(self.due(came))
            self.assertTrue(
                self.due(NodeInputs(BASIS.node, Reason.KEPT, 2), came))
            self.assertTrue(self.due(
                NodeInputs(BASIS.node, Reason.LEAKED, 1), came))
            self.assertTrue(self.due(NodeInputs(
                BASIS.node._replace(instance='i'), Reason.KEPT, 1), came))
        self.assertTrue(self.due(
            last=NodeInputs(BASIS.node, Reason.INSTANCE_HERE, 1)))

    def test_node_of_which_it_is_not_known_what_it_is(self):
        unknown = NodeInputs(BASIS.node._replace(body=None), Reason.KEPT, 1)
        self.assertTrue(self.due(unknown, unknown))

    @hypothesis.given(strategies.uuids(version=4).map(str))
    def test_each_once_in_the_interval(self, node):
        basis = NodeInputs(NodeRow(node, None, b''), Reason.KEPT, 1)
        self.assertTrue(self.due(basis, basis, INTERVAL))
        self.assertFalse(self.due(
            basis, basis, INTERVAL * incremental.EARLIEST - 1))

    def test_not_all_at_once(self):
        moments = sorted(map(incremental.moment, UUIDS))
        self.assertEqual(len(UUIDS), len(set(moments)))
        # Each quarter of the time has its share.
        for quarter in range(4):
            begin = (
                incremental.EARLIEST
                + (1 - incremental.EARLIEST) * quarter / 4)
            end = begin + (1 - incremental.EARLIEST) / 4
            self.assertGreater(
                sum(begin <= one < end for one in moments), len(UUIDS) / 8)


class OrderTestCase(base.BaseTestCase):

    def test_what_nobody_can_build_on_yet_is_first(self):
        self.assertEqual(
            ['changed', 'free-new', 'used-new', 'free-old', 'used-old'],
            incremental.audit_order(
                ['used-old', 'free-old', 'used-new', 'free-new', 'changed'],
                {'changed'}, {'free-old', 'used-old', 'gone', 'changed'},
                {'used-new', 'used-old', 'changed'}))


class DriftedTestCase(base.BaseTestCase):

    def test_generation_that_is_another_or_gone(self):
        self.assertEqual({'b', 'c'}, incremental.drifted(
            {'a': 1, 'b': 1, 'c': 1}, {'a': 1, 'b': 2, 'new': 7}))
