# SPDX-License-Identifier: Apache-2.0

"""Audits of several hosts, one after the other."""

import datetime
import threading
from unittest import mock

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import auditor
from nova_ironic_multihost.engine.audit import lister
from nova_ironic_multihost.engine.audit import operator_news
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine import listings

NODES = cloud.NODES


class OwnershipTestCase(cloud.AuditTestCase):

    def test_dead_hosts_nodes_are_adopted_and_pulled_back(self):
        self.settle('a', 'b')
        self.cloud.set('b', up=False)
        self.assertEqual(set(cloud.NODES), set(self.audit('a').nodes))
        self.cloud.set('b')
        # It was thought dead: this audit only finds that out.
        self.assertEqual(set(), set(self.audit('b').nodes))
        self.assertEqual(self.preferred('b', 'a', 'b'),
                         set(self.audit('b').nodes))

    def test_disabled_host_is_drained_and_takes_nothing(self):
        self.settle('a', 'b')
        self.cloud.set('b', disabled=True)
        self.cloud.ironic['new'] = None
        self.settle('b')
        self.assertEqual(self.preferred('b', 'a', 'b'),
                         set(self.audit('b').nodes))
        self.assertIn(Reason.PULLED, self.audit('a').reasons.values())
        self.settle('a')
        self.assertEqual(set(), set(self.audit('b').nodes))
        self.assertIn('new', self.audit('a').nodes)

    def test_first_audit_keeps_and_creates_and_no_more(self):
        kept, foreign, dead, free = cloud.NODES[:4]
        self.cloud = cloud.Cloud('a', 'b')
        self.cloud.set('c', up=False)
        self.cloud.owners = {kept: 'a', **dict.fromkeys(cloud.NODES[4:], 'b'),
                             foreign: 'b', dead: 'c'}
        mine = set(self.audit(settled=False).nodes)
        self.assertEqual({kept} | (
            {free} & self.preferred('a', 'a', 'b')), mine)

    def test_nodes_with_allocations_are_not_pulled(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.audit('a')
        self.cloud.allocations = dict.fromkeys(cloud.NODES, frozenset(['i1']))
        found = self.audit('a')
        self.assertEqual({}, dict(found.nodes))
        self.assertIn(Reason.ALLOCATED, found.reasons.values())
        self.cloud.allocations = {}
        self.assertEqual(self.preferred('a', 'a', 'b'),
                         set(self.audit('a').nodes))

    def test_dead_hosts_node_waits_for_a_build_that_was_sent_there(self):
        # The host goes on with it, or ends it, when it returns.
        building, deleted, gone, unknown = cloud.NODES[:4]
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.set('b', up=False)
        self.cloud.placed = {
            'i1': InstanceState(None),
            'i2': InstanceState(None, deleted=True)}
        self.cloud.allocations = {
            building: frozenset(['i1']), deleted: frozenset(['i2']),
            gone: frozenset(['of-nobody']), unknown: None}
        found = self.audit('a')
        self.assertEqual(
            set(cloud.NODES) - {building, unknown}, set(found.nodes))
        self.assertEqual([Reason.AWAITED, Reason.UNANSWERED], [
            found.reasons[node] for node in (building, unknown)])

    def test_nodes_that_came_from_others_are_recent_for_two_audits(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.set('b', up=False)
        self.assertEqual([set(), set(cloud.NODES), set(cloud.NODES), set()],
                         [self.audit('a').recent for _ in range(4)])

    def test_pulls_are_limited_for_each_audit(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.audit('a')
        self.assertEqual(2, len(self.audit('a', pulls_per_audit=2).nodes))
        self.assertEqual(2, len(self.asked('consumers')))
        self.assertEqual(4, len(self.audit('a', pulls_per_audit=2).nodes))

    def test_zones_that_cannot_be_read(self):
        def cannot_be_read():
            raise OSError('no API database')

        read, self.cloud.aggregates = self.cloud.aggregates, cannot_be_read
        auditor = self.new_auditor()
        # nova-compute comes up, and nothing changes hands without them.
        auditor.refresh_ring(audit_state.Settings('a'))
        self.assertEqual({'a', 'b'}, set(auditor.preferences.members))
        with self.assertLogs('nova_ironic_multihost', 'WARNING') as logs:
            self.assertRaises(
                OSError, auditor.audit, audit_state.Settings('a'))
        self.assertIn('no API database', logs.output[0])
        # Those that were read once are good enough.
        self.cloud.aggregates = read
        auditor.audit(audit_state.Settings('a'))
        self.cloud.aggregates = cannot_be_read
        auditor.audit(audit_state.Settings('a'))

    def test_late_answer_brings_no_older_ring_back(self):
        now, settings = iter(range(9)), audit_state.Settings('a')
        self.clock = lambda: next(now)
        auditor, services = self.new_auditor(), self.cloud.services

        def late():
            answer = services()
            # Another thread asks meanwhile, and is answered first.
            self.cloud.services = services
            self.cloud.set('b', up=False)
            auditor.refresh_ring(settings)
            return answer

        self.cloud.services = late
        self.assertEqual(
            {'a', 'b'}, set(auditor.refresh_ring(settings).members))
        self.assertEqual({'a'}, set(auditor.preferences.members))

    def test_first_listing_has_the_nodes_of_the_zone(self):
        self.cloud.host_aggregates = tuple(
            peers.Aggregate.of(host, [host], f'zone-{host}')
            for host in self.cloud.states)
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'a')
        auditor, settings = self.new_auditor(), audit_state.Settings('a')
        # nova does that first.
        auditor.refresh_ring(settings)
        self.assertEqual(set(cloud.NODES), set(auditor.audit(settings).nodes))
        self.assertEqual([], self.asked('node'))

    def test_nodes_that_stay_allocated_keep_nobody_waiting(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        wanted = self.preferred('a', 'a', 'b')
        busy = set(sorted(wanted)[:2])
        self.cloud.allocations = dict.fromkeys(busy, frozenset(['i1']))
        self.audit('a')
        for _ in range(100):
            self.audit('a', pulls_per_audit=1)
        self.assertEqual(wanted - busy, {
            node for node, owner in self.cloud.owners.items()
            if owner == 'a'})

    def lost_to_peers(self, audits=12, **options):
        """Have a take all that b has after each audit of b.

        :returns: how many nodes b has pulled in each.
        """
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'a')
        pulled = []
        for _ in range(audits):
            reasons = self.audit(
                'b', pulls_per_audit=200, pull_delay_audits=3,
                **options).reasons
            pulled.append(sum(reason is Reason.PULLED
                              for reason in reasons.values()))
            self.cloud.owners = dict.fromkeys(cloud.NODES, 'a')
        return pulled

    def test_host_that_loses_pulled_nodes_to_peers_waits_anew(self):
        self.audit('a')
        pulled = self.lost_to_peers()
        number = max(pulled)
        self.assertNotEqual(0, number)
        self.assertEqual([0, 0, 0, number] * 3, pulled)

    def test_pulls_that_are_refused_are_no_robbery(self):
        """As of nodes that get a build each time."""
        self.audit('a')
        self.refused = {*cloud.NODES}
        pulled = self.lost_to_peers()
        number = max(pulled)
        self.assertNotEqual(0, number)
        self.assertEqual([0] * 3 + [number] * 9, pulled)

    def test_who_was_no_member_between_two_audits_pulls_nothing_yet(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'a')
        self.audit('a')
        settings = audit_state.Settings('b')

        def audit():
            self.clock.now += 10
            found = self.audit('b', pull_delay_audits=3)
            self.cloud.owners = dict.fromkeys(cloud.NODES, 'a')
            return Reason.PULLED in found.reasons.values()

        audits = [audit() for _ in range(3)]
        for up in True, False, True:
            self.cloud.set('b', up=up)
            self.auditors['b'].read_view(settings)
        audits += [audit() for _ in range(4)]
        self.assertEqual([False] * 6 + [True], audits)

    def test_first_heartbeat_of_a_host_is_no_return(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'a')
        self.audit('a')
        self.cloud.set('b', up=False)
        found = []
        for settled in False, True, True, True:
            found.append(Reason.PULLED in self.audit(
                'b', settled, pull_delay_audits=3).reasons.values())
            for up in settled, True:
                self.clock.now += 10
                self.cloud.set('b', up=up)
                self.auditors['b'].read_view(audit_state.Settings('b'))
        self.assertEqual([False] * 3 + [True], found)

    def test_audit_that_fails_changes_nothing(self):
        before = self.audit('a')
        self.cloud.broken = True
        self.assertRaises(OSError, self.audit, 'a')
        self.assertIs(before, self.auditors['a'].last)

    def test_second_records_are_no_nodes_and_keep_theirs_away(self):
        """Until somebody deletes them; a server waits, too."""
        free, used, *_ = NODES
        self.options['policy'] = takeover.Policy(takeover.FORCED_DOWN)
        self.cloud.owners = {free: 'b', used: 'b'}
        self.cloud.ironic = {free: None, used: 'i'}
        self.cloud.placed['i'] = cloud.instance('b', used)
        self.cloud.second = {('a', node): f'row-of-{node}'
                             for node in (free, used)}
        self.cloud.set('b', up=False, forced_down=True)
        with self.assertLogs(operator_news.__name__, 'WARNING') as logs:
            for _ in range(3):
                found = self.audit('a')
        self.assertEqual({free: Reason.BARRED, used: Reason.BARRED},
                         found.reasons)
        self.assertEqual('b', self.cloud.placed['i'].host)
        self.assertEqual(({}, ()), (found.nodes, found.records))
        # One line for each.
        self.assertEqual(2, len(logs.output))
        for node in free, used:
            [line] = (one for one in logs.output
                      if f'second record of node {node}' in one)
            self.assertIn(f"WHERE uuid = 'row-of-{node}'", line)
        self.cloud.second.clear()
        self.audit('a')
        found = self.audit('a')
        self.assertEqual('a', self.cloud.placed['i'].host)
        self.assertEqual({'a'}, set(self.cloud.owners.values()))

    def test_second_records_of_the_dead_are_no_nodes_of_theirs(self):
        self.cloud = cloud.Cloud('a', 'b', 'c')
        self.cloud.owners = dict.fromkeys(NODES, 'c')
        self.cloud.second = {('b', node): f'row-of-{node}' for node in NODES}
        self.audit('a', pulls_per_audit=0)
        self.cloud.set('b', up=False)
        found, mine = self.audit_hosts('a', 'b', pulls_per_audit=0)
        self.assertEqual(set(), mine)

    def test_node_that_the_database_refuses_is_tried_now_and_then(self):
        self.options['pulls_per_audit'] = 0
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.audit('a')
        self.cloud.set('b', up=False)
        for node in NODES[:2]:
            self.auditors['a'].bar(node)
        found, mine = self.audit_hosts('a', 'b')
        self.assertEqual(set(NODES[2:]), mine)
        self.assertEqual({Reason.BARRED}, {
            found.reasons[node] for node in NODES[:2]})
        self.clock.now += 1
        self.audit('a')
        self.assertEqual({'a'}, set(self.cloud.owners.values()))
        self.assertFalse(self.auditors['a'].is_barred(NODES[0]))

    def test_node_that_the_database_has_just_refused_is_not_tried_again(self):
        self.options['pulls_per_audit'] = 0
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.audit('a')
        self.cloud.set('b', up=False)
        self.auditors['a'].audit(audit_state.Settings(
            'a', points=32, **self.options))
        offers = self.offers('a')
        self.auditors['a'].bar(NODES[0])
        self.assertEqual(set(NODES[1:]), {
            record.node for record in offers.to_move(NODES, '')})
        self.assertFalse(offers.still_valid(NODES[0]))
        self.assertTrue(offers.still_valid(NODES[1]))
        self.assertFalse(
            offers.may_create(NODES[0], audit_state.Settings('a')))

    def test_host_that_is_not_mapped_takes_nothing_from_others(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.is_mapped = False
        self.settle('a')
        self.assertEqual({}, dict(self.audit('a').nodes))
        self.cloud.is_mapped = True
        self.assertNotEqual({}, dict(self.audit('a').nodes))

    def test_mapping_that_cannot_be_known_hinders_nothing(self):
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.is_mapped = None
        self.settle('a')
        self.assertNotEqual({}, dict(self.audit('a').nodes))

    def test_nodes_under_a_former_spelling_are_mine(self):
        self.cloud = cloud.Cloud('A')
        self.cloud.set('A', up=False)
        self.cloud.ironic[cloud.NODES[0]] = 'i1'
        self.cloud.placed = {'i1': InstanceState('A')}
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'A')
        found = self.audit('a', settled=False)
        self.assertEqual(set(cloud.NODES), set(found.nodes))
        self.assertIs(Reason.INSTANCE_HERE, found.reasons[cloud.NODES[0]])

    def test_zone_keeps_its_nodes(self):
        self.cloud.host_aggregates = tuple(
            peers.Aggregate.of(uuid, [host], uuid)
            for host, uuid in (('a', 'z1'), ('b', 'z2')))
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.settle('a')
        self.assertEqual({}, dict(self.audit('a').nodes))
        self.settle('a')
        self.assertNotEqual({}, dict(self.audit(
            'a', move_across_zones=True).nodes))


class FirstListingTestCase(cloud.AuditTestCase):

    def test_no_more_is_read_with_all_that_nova_needs(self):
        """Its nodes by the ring, though it is not up."""
        self.auditors['a'] = self.new_auditor()
        self.cloud.set('a', up=False)
        pages = self.auditors['a']._reader._pages
        page, found = pages.page, set()

        def ask(partition, after, limit, wanted):
            found.update(filter(wanted, cloud.NODES))
            return page(partition, after, limit, wanted)

        pages.page = ask
        self.audit(settled=False)
        self.assertEqual(self.preferred('a', 'a', 'b'), found)




class AuditHostsTestCase(cloud.AuditTestCase):
    """Host a leaves when all have settled; b audits its nodes."""

    def setUp(self):
        super().setUp()
        self.cloud = cloud.Cloud('b', 'a', 'c')
        self.settle('b', 'a', 'c')
        self.before = self.audit('b')
        self.theirs = {node for node, owner in self.cloud.owners.items()
                       if owner == 'a'}
        self.share = self.theirs & self.preferred('b', 'b', 'c')

    def test_nothing_comes_of_it_before_the_first_audit(self):
        self.assertEqual({}, self.new_auditor().audit_hosts(
            audit_state.Settings('a'), ['b'], mock.Mock(side_effect=OSError)))

    def test_my_share_of_a_dead_hosts_nodes(self):
        self.cloud.set('a', up=False)
        found, mine = self.audit_hosts('b', 'a')
        self.assertNotEqual(set(), self.share)
        self.assertEqual(self.share, mine)
        self.assertEqual(self.share, set(self.decided))
        self.assertIs(found, self.auditors['b'].last)
        self.assertEqual({Reason.ADOPTED},
                         {found.reasons[node] for node in mine})
        self.assertEqual({'a'}, {found.owners[node] for node in mine})
        self.assertEqual(set(self.before.nodes) | mine, set(found.nodes))
        self.assertEqual(set(found.nodes),
                         {record.node for record in found.records})
        self.assertLessEqual(mine, found.recent)

    def test_all_else_stays_as_the_last_audit_found_it(self):
        self.cloud.set('a', up=False)
        self.cloud.ironic['new'] = None
        self.cloud.owners[next(iter(self.before.nodes))] = 'c'
        found, mine = self.audit_hosts('b', 'a')
        for name in ('reasons', 'nodes', 'owners'):
            before, after = (
                {node: value for node, value in getattr(some, name).items()
                 if node not in self.theirs} for some in (self.before, found))
            self.assertEqual(before, after)
        self.assertEqual(
            (self.before.view, self.before.preferences, self.before.deleted),
            (found.view, found.preferences, found.deleted))
        self.assertEqual(set(self.before.reasons),
                         set(found.reasons) | mine)

    def test_nodes_stay_recent_for_the_next_audits(self):
        self.cloud.set('a', up=False)
        _, mine = self.audit_hosts('b', 'a')
        self.assertEqual([mine, mine, set()], [
            self.audit('b').recent & mine for _ in range(3)])

    def test_late_check_lets_my_share_through_and_nothing_else(self):
        self.cloud.set('a', up=False)
        self.audit_hosts('b', 'a')
        node, other = sorted(self.share)[:2]
        self.cloud.owners.update({node: 'a', other: 'c'})
        self.assertTrue(self.offers('b').still_valid(node))
        self.assertFalse(self.offers('b').still_valid(other))

    def test_instances_and_builds_of_the_dead_stay(self):
        for host in 'ac':
            self.cloud.set(host, up=False)
        used, building, leaked = sorted(self.theirs)[:3]
        self.cloud.ironic.update({used: 'i1', leaked: 'i3'})
        self.cloud.placed = {'i1': InstanceState('a'),
                             'i2': InstanceState(None),
                             'i3': InstanceState('a', deleted=True)}
        self.cloud.allocations = {building: frozenset(['i2'])}
        found, mine = self.audit_hosts('b', 'a')
        self.assertEqual(self.theirs - {used, building}, mine)
        self.assertEqual(
            [Reason.INSTANCE_OF_DEAD, Reason.AWAITED, Reason.LEAKED],
            [found.reasons[node] for node in (used, building, leaked)])

    def test_node_that_the_last_audit_meant_to_take_and_has_not_yet(self):
        self.cloud.set('a', up=False)
        found = self.auditors['b'].audit(
            audit_state.Settings('b', points=32))
        building = min(self.share)
        self.assertIn(building, found.nodes)
        self.cloud.placed = {'i1': InstanceState(None)}
        self.cloud.allocations = {building: frozenset(['i1'])}
        found, mine = self.audit_hosts('b', 'a')
        self.assertNotIn(building, mine)
        self.assertNotIn(building, found.nodes)
        self.assertNotIn(building, found.owners)

    def test_idle_nodes_of_a_disabled_host_within_the_limit(self):
        self.cloud.set('a', disabled=True)
        busy = min(self.share)
        self.cloud.allocations = {busy: frozenset(['i1'])}
        found, mine = self.audit_hosts('b', 'a', pulls_per_audit=2)
        self.assertEqual(Reason.ALLOCATED, found.reasons[busy])
        self.assertEqual([Reason.PULLED],
                         [found.reasons[node] for node in mine])

    def test_host_that_lost_nodes_to_peers_pulls_nothing_back_at_once(self):
        lost = next(iter(self.before.nodes))
        self.cloud.owners[lost] = 'a'
        self.cloud.set('a', disabled=True)
        self.assertEqual(set(), self.audit_hosts('b', 'a')[1])

    def test_what_is_remembered_between_audits_is_as_before(self):
        # As after an audit in which nothing happened: the one that comes
        # next neither waits anew nor takes nodes for lost to peers.
        self.cloud.set('a', disabled=True)
        self.audit_hosts('b', 'a')
        self.refused = self.share
        self.cloud.owners.update(dict.fromkeys(self.share, 'a'))
        self.assertEqual(self.share, {
            node for node, reason in self.audit('b').reasons.items()
            if reason is Reason.PULLED})

    def test_disabled_host_is_found_under_its_own_spelling(self):
        self.cloud.set('A', disabled=True)
        del self.cloud.states['a']
        self.cloud.owners.update(dict.fromkeys(self.theirs, 'A'))
        self.assertEqual(self.share, self.audit_hosts('b', 'A')[1])

    def test_node_that_ironic_has_no_more_is_nobodys(self):
        self.cloud.set('a', up=False)
        gone = min(self.share)
        del self.cloud.ironic[gone]
        self.auditors['b'].read(audit_state.Settings('b'))
        self.assertEqual(self.share - {gone}, self.audit_hosts('b', 'a')[1])

    def test_nodes_of_another_partition_are_no_business_of_mine(self):
        partition = peers.Partition(shard='rack1', peer_list=('b', 'c'))
        self.audit('b', partition=partition)
        self.cloud.set('a', up=False)
        few = min(self.share)
        for node in self.theirs - {few}:
            self.cloud.owners[node] = 'c'
        self.cloud.hidden = {few}
        self.auditors['b'].read(audit_state.Settings('b', partition))
        self.assertEqual(set(), self.audit_hosts(
            'b', 'a', partition=partition)[1])

    def test_look_sees_who_is_disabled_too(self):
        auditor, settings = self.auditors['b'], audit_state.Settings('b')
        self.cloud.set('a', disabled=True)
        self.assertNotIn('a', auditor.read_view(settings).services)
        view = auditor.read_view(settings, ['a'])
        self.assertTrue(view.services['a'].disabled)
        self.assertEqual({'b', 'c'}, view.members)

    def beat(self, **beats):
        """Let hosts have heartbeats; b's clock is 55 s fast.

        :param beats: host -> second of its last one.
        """
        for host, second in beats.items():
            self.cloud.set(
                host, up=abs(self.second + 55 - second) <= 60,
                beat=datetime.datetime(2026, 1, 1)
                + datetime.timedelta(seconds=second))

    def test_heartbeat_since_the_last_look_keeps_a_node(self):
        auditor, settings = (
            self.auditors['b'],
            audit_state.Settings('b', points=32),
        )
        for self.second in range(0, 80, 10):
            self.clock.now += 10
            self.beat(b=self.second, a=0, c=self.second)
            auditor.heartbeats.note_down(settings, auditor.read_view(settings))
        _, mine = self.audit_hosts('b', 'a')
        node = min(mine)
        self.cloud.owners[node] = 'a'
        self.assertFalse(auditor.heartbeats.lives('a'))
        self.assertTrue(self.offers('b').still_valid(node))
        self.beat(a=1)
        # nova calls it down nevertheless.
        self.assertFalse(self.cloud.states['a'].up)
        self.assertTrue(auditor.heartbeats.lives('a'))
        self.assertFalse(self.offers('b').still_valid(node))

    def test_a_look_with_nothing_to_do_waits_for_no_audit(self):
        auditor, settings = self.auditors['b'], audit_state.Settings('b')
        looked = threading.Event()

        def look():
            auditor.heartbeats.note_down(settings, auditor.read_view(settings))
            looked.set()

        with auditor._lock:
            threading.Thread(target=look, daemon=True).start()
            self.assertTrue(looked.wait(30))

    def test_who_audits_next_waits_until_it_is_carried_out(self):
        auditor = self.auditors['b']
        settings = audit_state.Settings('b', points=32)
        free = []
        for act in (
                lambda then: auditor.audit(settings, then=then),
                lambda then: auditor.audit_hosts(settings, ['a'], then)):
            act(lambda *facts: free.append(
                auditor._lock.acquire(blocking=False)))
        self.assertEqual([False, False], free)


class ShardsTestCase(cloud.AuditTestCase):
    """Two hosts, each with a shard of its own in one Ironic."""

    def setUp(self):
        super().setUp()
        self.ironic = listings.Ironic(counts=False)
        for node in cloud.NODES:
            self.ironic.create(node, 'a' if node < cloud.NODES[10] else 'b')
            self.ironic.change(node)
        shards = {host: peers.Partition(shard=host, peer_list=(host,))
                  for host in 'ab'}
        self.cloud.labels = {host: its.label for host, its in shards.items()}
        self.shards = shards
        self.settle('a', 'b')

    def new_auditor(self):
        return auditor.Auditor(
            self.cloud, lister.Lister(self.ironic, self.clock),
            self.clock)

    def audit(self, host='a', settled=True, **options):
        self.clock.now += 60
        self.ironic.wait(60)
        return super().audit(
            host, settled, partition=self.shards[host], **options)

    def test_node_that_changes_its_shard_moves_once(self):
        node = cloud.NODES[0]
        self.assertEqual('a', self.cloud.owners[node])
        self.ironic.change(node, shard='b')
        owners = []
        for host in 'ba' * 5:
            self.audit(host)
            owners.append(self.cloud.owners[node])
        self.assertEqual(['b'] * 10, owners)
        self.assertNotIn(node, self.auditors['a'].last.nodes)

    def test_node_of_a_shard_that_nobody_serves_is_no_more_offered(self):
        node = cloud.NODES[0]
        self.ironic.change(node, shard='c')
        self.audit('a')
        self.assertIs(Reason.UNLISTED, self.audit('a').reasons[node])
