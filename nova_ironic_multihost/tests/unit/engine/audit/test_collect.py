# SPDX-License-Identifier: Apache-2.0

"""What is read for an audit, and what is concluded from it."""

import types
from unittest import mock

import fixtures
import hypothesis
from hypothesis import strategies

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import collect
from nova_ironic_multihost.engine.audit import lister
from nova_ironic_multihost.engine.audit import peer_services
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.liveness import Outages
from nova_ironic_multihost.rules import mirror as mirrors
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine import cloud


class ForeignInstancesTestCase(cloud.AuditTestCase):

    def test_leaked_machine_of_a_dead_host_is_owned(self):
        self.cloud.set('b', up=False)
        self.cloud.ironic[cloud.NODES[0]] = 'i1'
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.placed = {'i1': InstanceState('b')}
        found = self.audit('a')
        self.assertIs(Reason.INSTANCE_OF_DEAD, found.reasons[cloud.NODES[0]])
        self.cloud.placed = {'i1': InstanceState('b', deleted=True)}
        found = self.audit('a')
        self.assertIs(Reason.LEAKED, found.reasons[cloud.NODES[0]])
        self.assertIn(cloud.NODES[0], found.nodes)

    def test_instance_of_a_live_host_is_asked_for_now_and_then(self):
        self.cloud.ironic = dict.fromkeys(cloud.NODES)
        for node in cloud.NODES:
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = InstanceState('b')
        self.audit('a')
        every = self.asked('instance_state')
        self.assertNotEqual([], every)
        again = []
        for _ in range(incremental.TURNS):
            self.audit('a')
            again += self.asked('instance_state')
        self.assertCountEqual(every, again)

    def test_instance_of_a_live_host_on_a_node_of_mine_is_watched(self):
        # b took it over and died before the node followed; while b was down
        # the server was deleted, which b does not know any more.
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'a')
        self.cloud.ironic[cloud.NODES[0]] = 'i1'
        self.cloud.placed = {'i1': InstanceState('b')}
        self.assertIs(Reason.INSTANCE_ELSEWHERE,
                      self.audit('a').reasons[cloud.NODES[0]])
        self.cloud.placed = {'i1': InstanceState('b', deleted=True)}
        self.assertIs(Reason.LEAKED, self.audit('a').reasons[cloud.NODES[0]])

    def test_instances_are_asked_for_again_when_anybody_comes_or_goes(self):
        """One may have been fenced meanwhile, and be back."""
        self.cloud.set('c')
        self.cloud.ironic[cloud.NODES[0]] = 'i1'
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.placed = {'i1': InstanceState('b', node=cloud.NODES[0])}
        self.settle('a')
        self.cloud.owners[cloud.NODES[1]] = 'c'
        self.audit('a')
        self.audit('a')
        self.assertNotIn('i1', self.asked('instance_state'))
        self.cloud.set('c', up=False)
        self.audit('a')
        self.assertIn('i1', self.asked('instance_state'))
        self.audit('a')
        self.assertNotIn('i1', self.asked('instance_state'))

    def test_instance_that_was_not_deleted_after_all(self):
        self.cloud.set('b', up=False)
        self.cloud.ironic[cloud.NODES[0]] = 'i1'
        self.cloud.placed = {'i1': InstanceState('b', deleted=True)}
        self.audit('a')
        self.cloud.set('b')
        self.cloud.placed = {'i1': InstanceState('b')}
        self.assertIs(Reason.INSTANCE_ELSEWHERE,
                      self.audit('a').reasons[cloud.NODES[0]])


class CostTestCase(cloud.AuditTestCase):

    def test_nodes_with_instances_of_a_disabled_host_are_not_looked_up(self):
        self.settle('a', 'b')
        self.cloud.set('b', disabled=True)
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.ironic = {node: f'i-{node}' for node in cloud.NODES}
        self.cloud.placed = {f'i-{node}': InstanceState('b', node=node)
                             for node in cloud.NODES}
        self.audit('a')
        self.assertEqual([], self.asked('record'))

    def test_steady_state_reads_nothing_of_others(self):
        for node in cloud.NODES[:5]:
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = InstanceState('b')
            self.cloud.owners[node] = 'b'
        self.settle('a', 'b')
        asked = []
        for _ in range(incremental.TURNS):
            self.audit('a')
            self.cloud.asked.remove(('records_of', 'a'))
            asked += self.cloud.asked
        self.assertCountEqual(set(asked), asked)
        self.assertEqual({'instance_state'},
                         {kind for kind, _ in asked})


class RecordsTestCase(cloud.AuditTestCase):
    """Host a looks, and so need not read all its records each time."""

    def setUp(self):
        super().setUp()
        self.settle('a', 'b')
        self.look()
        while self.all_read():
            pass
        self.mine = sorted(self.auditors['a'].last.nodes)

    def look(self):
        auditor = self.auditors['a']
        settings = audit_state.Settings('a', points=32)
        auditor.heartbeats.note_down(settings, auditor.read_view(settings))
        auditor.heartbeats.note_poll(settings)

    def all_read(self):
        self.found = self.audit('a')
        return bool(self.asked('records_of'))

    def test_now_and_then_all_are_read(self):
        self.assertEqual(2, sum(
            self.all_read() for _ in range(2 * incremental.TURNS)))
        self.assertEqual(self.mine, sorted(self.found.nodes))

    def test_record_that_was_moved_by_hand_is_found_then(self):
        self.cloud.owners[self.mine[0]] = 'b'
        found = []
        for _ in range(incremental.TURNS):
            found.append(self.auditors['a'].audit(audit_state.Settings(
                'a', points=32, **self.options)).reasons[self.mine[0]])
        self.assertIs(Reason.KEPT, found[0])
        self.assertIs(Reason.PULLED, found[-1])

    def test_who_could_not_look_was_perhaps_taken_for_dead(self):
        self.clock.now += 100
        self.look()
        self.assertTrue(self.all_read())
        self.clock.now += 100
        # Also when that is long over.
        for _ in range(20):
            self.look()
            self.clock.now += 10
        self.assertTrue(self.all_read())
        self.look()
        self.assertFalse(self.all_read())

    def test_who_was_seen_disabled_reads_all_of_them(self):
        """It may be enabled again before its next audit."""
        self.cloud.set('a', disabled=True)
        self.look()
        self.cloud.set('a')
        self.cloud.owners[self.mine[0]] = 'b'
        auditor = self.auditors['a']
        self.assertTrue(auditor.in_doubt)
        self.clock.now += 1
        self.assertIsNot(Reason.KEPT, auditor.audit(audit_state.Settings(
            'a', points=32, **self.options)).reasons[self.mine[0]])
        self.assertFalse(auditor.in_doubt)


HOSTS = ('a', 'b', 'c', 'd', 'e')


@strategies.composite
def deaths(draw):
    """Return (cloud, hosts that died, whether there are zones)."""
    its = cloud.Cloud(*HOSTS)
    dead = draw(strategies.sets(strategies.sampled_from(HOSTS[1:]),
                                min_size=1, max_size=3))
    for host in dead:
        its.set(host, up=False, forced_down=draw(strategies.booleans()))
    zones = {host: draw(strategies.sampled_from([None, 'z1', 'z2']))
             for host in HOSTS} if draw(strategies.booleans()) else {}
    its.host_aggregates = tuple(
        peers.Aggregate.of(host, [host], zone)
        for host, zone in zones.items())
    for node in cloud.NODES:
        owner = draw(strategies.sampled_from((None, *HOSTS)))
        if owner is not None:
            its.owners[node] = owner
        its.ironic[node] = draw(strategies.sampled_from([None, f'i-{node}']))
        host = draw(strategies.sampled_from([
            host for host in HOSTS if owner is None
            or zones.get(host) == zones.get(owner)]))
        state = InstanceState(host, draw(strategies.booleans()), node)
        if draw(strategies.booleans()):
            its.placed[f'i-{node}'] = state
    return its, sorted(dead), bool(zones)


class NodesOfHostsTestCase(cloud.AuditTestCase):

    def gather(self, its, dead, only=None):
        """Return {node: reason} of the nodes of the dead that concern a."""
        settings = audit_state.Settings(
            'a', points=32, policy=takeover.Policy('forced_down'))
        memory = audit_state.AuditState(mapped=True)
        its.asked.clear()
        return ownership.decide(collect.Collector(
            its, types.SimpleNamespace(mirror=mirrors.Mirror(its.ironic)),
            settings, peer_services.read_peers(
                its, memory, settings, Outages(), HOSTS), memory, None, 0
        ).nodes_of_hosts(dead, only).facts)

    @hypothesis.settings(derandomize=True, deadline=None)
    @hypothesis.given(deaths())
    def test_as_if_all_records_of_the_dead_were_read(self, death):
        its, dead, zoned = death
        found = self.gather(its, dead)
        with mock.patch.object(
                collect.Collector, '_may_inherit', lambda this, owners, only: {
                    node: None for node in this._mirror.nodes
                    if this._peers.preferences.may_prefer('a', node)}):
            expected = self.gather(its, dead)
        self.assertEqual(
            *({node for node, reason in reasons.items() if reason.mine}
              for reasons in (expected, found)))
        # Of what others of my zone, or nobody, are to have nothing is said.
        self.assertLessEqual(found.items(), expected.items())
        if not zoned:
            self.assertEqual(expected, found)
        for node in cloud.NODES[:4]:
            self.assertEqual(
                {node: found[node]} if node in found else {},
                self.gather(its, dead, frozenset({node, 'of-nobody'})))

    def test_of_a_host_in_another_zone_nothing_is_read(self):
        its = cloud.Cloud(*HOSTS)
        its.owners = dict.fromkeys(cloud.NODES, 'e')
        its.host_aggregates = tuple(
            peers.Aggregate.of(host, [host], zone)
            for host, zone in zip('abcde', ('z1', 'z1', 'z2', 'z2', 'z2'),
                                  strict=True))
        its.set('e', up=False)
        self.assertEqual({}, self.gather(its, 'e'))
        self.assertEqual([], [one for one in its.asked
                              if one[0] in ('records_of', 'record')])

    def test_records_of_the_dead_or_of_few_nodes_are_read(self):
        its = cloud.Cloud(*HOSTS)
        its.owners = dict.fromkeys(cloud.NODES, 'e')
        its.host_aggregates = tuple(
            peers.Aggregate.of(host, [host], zone)
            for host, zone in zip('abcde', ('z1', 'z1', 'z2', 'z2', 'z1'),
                                  strict=True))
        its.set('e', up=False)
        mine = self.preferred('a', 'a', 'b')
        self.assertEqual(mine, self.gather(its, 'e').keys())
        self.assertEqual([('records_of', 'e')], [
            one for one in its.asked if one[0].startswith('record')])
        one, other = min(mine), min(set(cloud.NODES) - mine)
        self.assertEqual(
            {one}, self.gather(its, 'e', frozenset({one, other})).keys())
        self.assertEqual([('record', one)], [
            one for one in its.asked if one[0].startswith('record')])

    def test_instances_go_to_my_zone_alone(self):
        """The nodes are as well preferred by one without a zone."""
        its = cloud.Cloud('a', 'b', 'e')
        its.owners = dict.fromkeys(cloud.NODES, 'e')
        its.ironic = {node: f'i-{node}' for node in cloud.NODES}
        its.placed = {f'i-{node}': cloud.instance('e', node)
                      for node in cloud.NODES}
        its.host_aggregates = tuple(
            peers.Aggregate.of(host, [host], 'z1') for host in 'ae')
        its.set('e', up=False, forced_down=True)
        self.assertEqual(
            dict.fromkeys(cloud.NODES, ownership.Reason.TAKEN_OVER),
            self.gather(its, 'e'))


class PartitionTestCase(cloud.AuditTestCase):

    def test_member_that_serves_a_shard_only_gets_nothing_else(self):
        # b sees the nodes of its shard alone; nobody told a.
        shard = cloud.NODES[:4]
        self.cloud.owners = dict.fromkeys(shard, 'b')
        self.cloud.labels = {'b': 'shard=s1'}
        self.settle('a')
        found = self.audit('a')
        self.assertEqual(set(cloud.NODES) - set(shard), set(found.nodes))
        self.assertIn(Reason.OTHER_PARTITION, found.reasons.values())

    def test_partition_of_a_member_is_learned_from_any_of_its_nodes(self):
        # None of its nodes is one that a would take.
        preferred = [node for node in cloud.NODES
                     if node in self.preferred('b', 'a', 'b')]
        for shard in (preferred[:1], preferred[-1:]):
            self.cloud.owners = dict.fromkeys(shard, 'b')
            self.cloud.labels = {'b': 'shard=s1'}
            self.auditors.clear()
            self.settle('a')
            self.assertEqual(set(cloud.NODES) - set(shard),
                             set(self.audit('a').nodes))

    def test_partition_of_a_member_with_none_of_those_is_asked_for(self):
        """What it is preferred for would be nobody's."""
        self.cloud.states = {
            host: peers.ComputeService(host, up=True) for host in 'aBc'}
        theirs = sorted(self.preferred('c', 'a', 'b', 'c'))
        self.cloud.owners = {**dict.fromkeys(theirs, 'c'), theirs[-1]: 'B'}
        self.cloud.labels = {'B': 'shard=s1'}
        self.useFixture(fixtures.MockPatchObject(collect, 'SAMPLE', 1))
        self.useFixture(fixtures.MockPatchObject(
            collect.random, 'sample',
            lambda nodes, number: sorted(nodes)[:number]))
        for asked in False, True:
            self.assertEqual(self.preferred('a', 'a', 'b', 'c'),
                             set(self.audit('a').nodes))
            self.assertIs(asked, 'B' in self.asked('records_of'))
        for _ in range(incremental.TURNS):
            found = self.audit('a')
            self.assertNotIn('B', self.asked('records_of'))
        self.assertEqual(self.preferred('a', 'a', 'c'), set(found.nodes))

    def test_records_of_a_member_that_a_sample_shows_are_not_all_read(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.set('b', up=False)
        self.audit('a')
        self.cloud.set('b')
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.audit('a')
        self.assertNotIn('b', self.asked('records_of'))

    def test_label_of_a_host_that_was_down_is_learned_anew(self):
        # As in an upgrade from nova's own driver, which writes no label.
        partition = peers.Partition(
            conductor_group='g', peer_list=('a', 'b'))
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.ironic = {node: f'i-{node}' for node in cloud.NODES}
        self.cloud.placed = {f'i-{node}': InstanceState('b', node=node)
                             for node in cloud.NODES}
        self.cloud.labels = {'a': partition.label}
        self.audit('a', partition=partition)
        self.cloud.set('b', up=False)
        for _ in range(2):
            self.audit('a', partition=partition)
        self.cloud.set('b')
        self.cloud.labels['b'] = partition.label
        self.audit('a', partition=partition)
        self.assertEqual({'a', 'b'}, self.audit(
            'a', partition=partition).view.members)

    def test_two_share_a_shard(self):
        self.cloud.labels = {'a': 'shard=s1', 'b': 'shard=s1'}
        self.options['partition'] = peers.Partition(
            shard='s1', peer_list=('A', 'b'))
        self.settle('a', 'b')
        for host in 'ab':
            self.assertEqual(self.preferred(host, 'a', 'b'),
                             set(self.audit(host).nodes))

    def test_shard_without_peers_takes_nothing_from_another_host(self):
        self.cloud.labels = {'a': 'shard=s1', 'b': 'shard=s1'}
        self.cloud.owners = dict.fromkeys(cloud.NODES[:4], 'b')
        self.options['partition'] = peers.Partition(shard='s1')
        self.settle('a')
        self.assertEqual(set(cloud.NODES[4:]), set(self.audit('a').nodes))


class AbsenceTestCase(cloud.AuditTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = cloud.Cloud('a')
        self.settle('a')

    def test_node_that_was_removed_under_its_server_waits_for_that(self):
        node = cloud.NODES[0]
        self.cloud.placed = {'i': cloud.instance('a', node)}
        self.cloud.allocations[node] = frozenset(['i'])
        self.audit()
        del self.cloud.ironic[node]
        for _ in range(3):
            found = self.audit()
            self.assertEqual(frozenset(), found.deleted)
            self.assertIs(Reason.UNLISTED, found.reasons[node])
        self.cloud.placed['i'] = InstanceState('a', deleted=True)
        # Nor while that is not known.
        self.cloud.placement_away = True
        self.assertEqual(frozenset(), self.audit().deleted)
        self.cloud.placement_away = False
        self.assertEqual({node}, self.audit().deleted)

    def test_providers_that_nova_could_not_delete_are_deleted_later(self):
        node, other = cloud.NODES[:2]
        self.audit()
        del self.cloud.ironic[node], self.cloud.ironic[other]
        while not (found := self.audit()).deleted:
            self.assertEqual([], self.cloud.removed)
        self.assertEqual({node, other}, found.deleted)
        self.cloud.placement_away = True
        for _ in range(2):
            self.audit()
        self.assertEqual([], self.cloud.removed)
        self.cloud.placement_away = False
        # It was enrolled anew, and may not be listed yet.
        self.cloud.ironic[other] = None
        self.cloud.hidden.add(other)
        self.audit()
        self.cloud.hidden.clear()
        self.audit()
        self.assertEqual([node], self.cloud.removed)

    def test_no_provider_is_deleted_while_ironic_shows_too_little(self):
        """The node may have been enrolled anew, and be hidden as well."""
        node = cloud.NODES[0]
        self.audit()
        del self.cloud.ironic[node]
        for _ in range(mirrors.AUDITS_MISSING):
            found = self.audit()
        self.assertEqual({node}, found.deleted)
        self.cloud.placement_away = True
        self.audit()
        self.cloud.placement_away = False
        shown = dict(self.cloud.ironic)
        for few in {}, dict.fromkeys(cloud.NODES[1:3]):
            self.cloud.ironic = few
            self.audit()
            self.assertEqual([], self.cloud.removed)
        self.cloud.ironic = shown
        self.audit()
        self.assertEqual([node], self.cloud.removed)

    def test_node_that_was_removed_is_deleted_after_two_audits(self):
        del self.cloud.ironic[cloud.NODES[0]]
        found = self.audit()
        self.assertEqual(frozenset(), found.deleted)
        self.assertIn(cloud.NODES[0], found.nodes)
        self.assertIs(Reason.UNLISTED, found.reasons[cloud.NODES[0]])
        found = self.audit()
        self.assertEqual({cloud.NODES[0]}, found.deleted)
        self.assertNotIn(cloud.NODES[0], found.nodes)
        self.assertIn(cloud.NODES[0],
                      {record.node for record in found.records})

    def test_node_that_is_left_out_of_the_listing_is_kept(self):
        self.cloud.hidden = {cloud.NODES[0]}
        for _ in range(3 * mirrors.AUDITS_MANY_MISSING):
            found = self.audit()
            self.assertEqual(frozenset(), found.deleted)
            self.assertIn(cloud.NODES[0], found.nodes)

    def test_ironic_that_does_not_answer_is_not_asked_for_each(self):
        """Each question may take as long as a timeout."""
        for node in cloud.NODES[:9]:
            del self.cloud.ironic[node]
        asked = self.useFixture(fixtures.MockPatchObject(
            cloud.Pages, 'node', side_effect=ListingError)).mock
        self.assertEqual(frozenset(), self.audit().deleted)
        self.assertEqual(lister.FAILURES, asked.call_count)

    def test_empty_listing_deletes_nothing_and_asks_nothing(self):
        self.cloud.ironic.clear()
        for _ in range(3 * mirrors.AUDITS_MANY_MISSING):
            found = self.audit()
            self.assertEqual(frozenset(), found.deleted)
            self.assertEqual(set(cloud.NODES), set(found.nodes))
            self.assertEqual([], self.asked('node'))

    def test_broken_answer_is_no_deletion(self):
        self.cloud.hidden = {cloud.NODES[0]}
        asked = self.useFixture(fixtures.MockPatchObject(
            cloud.Pages, 'node', side_effect=ListingError)).mock
        for _ in range(mirrors.AUDITS_MISSING + 1):
            self.assertEqual(frozenset(), self.audit().deleted)
        asked.assert_called_with(cloud.NODES[0])

    def test_node_without_a_known_state_is_not_reported(self):
        # A compute service that starts while it may list nothing.
        self.auditors.clear()
        self.cloud.hidden = set(cloud.NODES)
        found = self.audit(settled=False)
        self.assertEqual({}, dict(found.nodes))
        self.assertEqual((), found.records)
        self.assertEqual(frozenset(), found.deleted)
