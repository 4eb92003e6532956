# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


import dataclasses
import types

from oslotest import base

from nova_ironic_multihost.audit import auditor as audit
from nova_ironic_multihost.core import absence
from nova_ironic_multihost.core import aggregates
from nova_ironic_multihost.core import membership
from nova_ironic_multihost.core import ownership
from nova_ironic_multihost.core import ring
from nova_ironic_multihost.core import takeover
from nova_ironic_multihost.core.ownership import Reason

NODES = [f'1be26c0b-03f2-4d2e-ae87-c02d7f33c1{i:02}' for i in range(20)]


class Cloud:
    """Sources that answer from plain values and count the questions."""

    def __init__(self, *hosts):
        self.states = {
            host: membership.ComputeService(host, up=True) for host in hosts}
        self.ironic = dict.fromkeys(NODES)
        self.hidden = set()
        self.owners = {}
        self.labels = {}
        self.placed = {}
        self.allocations = {}
        self.is_mapped = True
        self.host_aggregates = ()
        self.broken = False
        self.asked = []

    def set(self, host, **state):
        self.states[host] = membership.ComputeService(
            host, **{'up': True, **state})

    def services(self):
        return [service for service in self.states.values()
                if not service.disabled and service.ironic]

    def service(self, host):
        return self.states.get(host)

    def nodes(self, partition):
        if self.broken:
            raise OSError('Ironic is away')
        return {node: types.SimpleNamespace(id=node, instance_id=instance)
                for node, instance in self.ironic.items()
                if node not in self.hidden}

    def node(self, uuid):
        self.asked.append(('node', uuid))
        if self.broken:
            raise OSError('Ironic is away')
        if uuid not in self.ironic:
            return None
        return types.SimpleNamespace(id=uuid, instance_id=self.ironic[uuid])

    def instances(self, hosts):
        return {instance for instance, state in self.placed.items()
                if state.host in hosts and not state.deleted}

    def instance_states(self, instances):
        self.asked += [('instance_state', instance) for instance in instances]
        return {instance: self.placed[instance]
                for instance in instances if instance in self.placed}

    def record(self, node):
        host = self.owners[node]
        return ownership.Record(node, host, self.labels.get(host, ''))

    def records_of(self, hosts):
        return [self.record(node) for node, host in self.owners.items()
                if host in hosts]

    def records(self, nodes):
        self.asked += [('record', node) for node in nodes]
        return [self.record(node) for node in nodes if node in self.owners]

    def consumers(self, node):
        self.asked.append(('consumers', node))
        return self.allocations.get(node, frozenset())

    def mapped(self, host):
        self.asked.append(('mapped', host))
        return self.is_mapped

    def aggregates(self):
        return self.host_aggregates

    def take_over(self, instance, state, host):
        self.asked.append(('take_over', instance))
        if self.placed[instance] != state:
            return False
        self.placed[instance] = dataclasses.replace(state, host=host)
        return True


class Clock:

    now = 1000.0

    def __call__(self):
        return self.now


class AuditTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = Cloud('a', 'b')
        self.clock = Clock()
        self.auditors = {}
        self.options = {'pull_delay_audits': 1}

    def audit(self, host='a', settled=True, **options):
        """Audit one host and let it take what it finds to be its own."""
        if host not in self.auditors:
            self.auditors[host] = audit.Auditor(self.cloud, self.clock)
        self.cloud.asked.clear()
        found = self.auditors[host].audit(audit.Settings(
            host, ring_partitions=32, **{**self.options, **options}), settled)
        for node in found.nodes:
            self.cloud.owners[node] = host
        for node in found.deleted:
            self.cloud.owners.pop(node, None)
        return found

    def audit_hosts(self, host, *others, **options):
        """Audit the nodes of some hosts; return what ``then`` was told."""
        self.cloud.asked.clear()
        told = []
        self.decided = self.auditors[host].audit_hosts(audit.Settings(
            host, ring_partitions=32, **{**self.options, **options}),
            others, lambda *facts: told.append(facts))
        (found, mine), = told
        for node in mine:
            self.cloud.owners[node] = host
        return found, set(mine)

    def settle(self, *hosts):
        for _ in range(4):
            for host in hosts:
                self.audit(host)

    def asked(self, what):
        return [about for kind, about in self.cloud.asked if kind == what]

    def preferred(self, host, *members):
        members = ring.Ring(members, 32)
        return {node for node in NODES if members.prefers(host, node)}


class OwnershipTestCase(AuditTestCase):

    def test_alone_it_owns_every_node(self):
        self.cloud = Cloud()
        self.assertEqual(set(NODES), set(self.audit().nodes))

    def test_two_share(self):
        self.settle('a', 'b')
        for host in 'ab':
            self.assertEqual(self.preferred(host, 'a', 'b'),
                             set(self.audit(host).nodes))

    def test_dead_hosts_nodes_are_adopted_and_pulled_back(self):
        self.settle('a', 'b')
        self.cloud.set('b', up=False)
        self.assertEqual(set(NODES), set(self.audit('a').nodes))
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
        kept, foreign, dead, free = NODES[:4]
        self.cloud = Cloud('a', 'b')
        self.cloud.set('c', up=False)
        self.cloud.owners = {kept: 'a', **dict.fromkeys(NODES[4:], 'b'),
                             foreign: 'b', dead: 'c'}
        mine = set(self.audit(settled=False).nodes)
        self.assertEqual({kept} | (
            {free} & self.preferred('a', 'a', 'b')), mine)

    def test_first_audit_does_without_a_heartbeat(self):
        self.cloud = Cloud()
        self.cloud.set('a', up=False)
        self.assertEqual(set(NODES), set(self.audit(settled=False).nodes))

    def test_nodes_with_allocations_are_not_pulled(self):
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.audit('a')
        self.cloud.allocations = dict.fromkeys(NODES, frozenset(['i1']))
        found = self.audit('a')
        self.assertEqual({}, dict(found.nodes))
        self.assertIn(Reason.ALLOCATED, found.reasons.values())
        self.cloud.allocations = {}
        self.assertEqual(self.preferred('a', 'a', 'b'),
                         set(self.audit('a').nodes))

    def test_nodes_are_not_pulled_when_placement_does_not_answer(self):
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.cloud.allocations = dict.fromkeys(NODES)
        self.settle('a')
        self.assertEqual({}, dict(self.audit('a').nodes))

    def test_dead_hosts_node_waits_for_a_build_that_was_sent_there(self):
        # The host goes on with it, or ends it, when it returns.
        building, deleted, gone, unknown = NODES[:4]
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.cloud.set('b', up=False)
        self.cloud.placed = {
            'i1': ownership.InstanceState(None),
            'i2': ownership.InstanceState(None, deleted=True)}
        self.cloud.allocations = {
            building: frozenset(['i1']), deleted: frozenset(['i2']),
            gone: frozenset(['of-nobody']), unknown: None}
        found = self.audit('a')
        self.assertEqual(set(NODES) - {building}, set(found.nodes))
        self.assertIs(Reason.AWAITED, found.reasons[building])

    def test_nodes_that_came_from_others_are_recent_for_two_audits(self):
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.cloud.set('b', up=False)
        self.assertEqual([set(), set(NODES), set(NODES), set()],
                         [self.audit('a').recent for _ in range(4)])

    def test_pulls_are_limited_for_each_audit(self):
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.audit('a')
        self.assertEqual(2, len(self.audit('a', pulls_per_audit=2).nodes))
        self.assertEqual(2, len(self.asked('consumers')))
        self.assertEqual(4, len(self.audit('a', pulls_per_audit=2).nodes))

    def test_pulls_wait_for_some_audits_as_a_member(self):
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        for _ in range(3):
            self.assertEqual({}, dict(self.audit(
                'a', pull_delay_audits=3).nodes))
        self.assertNotEqual({}, dict(self.audit(
            'a', pull_delay_audits=3).nodes))

    def test_audit_that_fails_changes_nothing(self):
        before = self.audit('a')
        self.cloud.broken = True
        self.assertRaises(OSError, self.audit, 'a')
        self.assertIs(before, self.auditors['a'].last)

    def test_host_that_is_not_mapped_takes_nothing_from_others(self):
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.cloud.is_mapped = False
        self.settle('a')
        self.assertEqual({}, dict(self.audit('a').nodes))
        self.cloud.is_mapped = True
        self.assertNotEqual({}, dict(self.audit('a').nodes))

    def test_mapping_that_cannot_be_known_hinders_nothing(self):
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.cloud.is_mapped = None
        self.settle('a')
        self.assertNotEqual({}, dict(self.audit('a').nodes))

    def test_nodes_under_a_former_spelling_are_mine(self):
        self.cloud = Cloud('A')
        self.cloud.set('A', up=False)
        self.cloud.ironic[NODES[0]] = 'i1'
        self.cloud.placed = {'i1': ownership.InstanceState('A')}
        self.cloud.owners = dict.fromkeys(NODES, 'A')
        found = self.audit('a', settled=False)
        self.assertEqual(set(NODES), set(found.nodes))
        self.assertIs(Reason.INSTANCE_HERE, found.reasons[NODES[0]])

    def test_zone_keeps_its_nodes(self):
        self.cloud.host_aggregates = tuple(
            aggregates.Aggregate(uuid, frozenset([host]), uuid)
            for host, uuid in (('a', 'z1'), ('b', 'z2')))
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.settle('a')
        self.assertEqual({}, dict(self.audit('a').nodes))
        self.settle('a')
        self.assertNotEqual({}, dict(self.audit(
            'a', move_across_zones=True).nodes))


class ForeignInstancesTestCase(AuditTestCase):

    def test_leaked_machine_of_a_dead_host_is_owned(self):
        self.cloud.set('b', up=False)
        self.cloud.ironic[NODES[0]] = 'i1'
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.cloud.placed = {'i1': ownership.InstanceState('b')}
        found = self.audit('a')
        self.assertIs(Reason.INSTANCE_OF_DEAD, found.reasons[NODES[0]])
        self.cloud.placed = {'i1': ownership.InstanceState('b', deleted=True)}
        found = self.audit('a')
        self.assertIs(Reason.LEAKED, found.reasons[NODES[0]])
        self.assertIn(NODES[0], found.nodes)

    def test_instance_of_a_live_host_is_asked_for_once(self):
        self.cloud.ironic = dict.fromkeys(NODES)
        for node in NODES:
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = ownership.InstanceState('b')
        self.audit('a')
        self.assertNotEqual([], self.asked('instance_state'))
        self.audit('a')
        self.assertEqual([], self.asked('instance_state'))

    def test_instance_of_a_live_host_on_a_node_of_mine_is_watched(self):
        # b took it over and died before the node followed; while b was down
        # the server was deleted, which b does not know any more.
        self.cloud.owners = dict.fromkeys(NODES, 'a')
        self.cloud.ironic[NODES[0]] = 'i1'
        self.cloud.placed = {'i1': ownership.InstanceState('b')}
        self.assertIs(Reason.INSTANCE_ELSEWHERE,
                      self.audit('a').reasons[NODES[0]])
        self.cloud.placed = {'i1': ownership.InstanceState('b', deleted=True)}
        self.assertIs(Reason.LEAKED, self.audit('a').reasons[NODES[0]])

    def test_instance_is_asked_for_again_when_its_host_has_died(self):
        self.cloud.ironic[NODES[0]] = 'i1'
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.cloud.placed = {'i1': ownership.InstanceState('b')}
        self.cloud.set('c')
        self.settle('a')
        self.cloud.set('b', up=False)
        self.cloud.set('c', up=False)
        self.cloud.placed = {'i1': ownership.InstanceState('b', deleted=True)}
        self.assertIs(Reason.LEAKED, self.audit('a').reasons[NODES[0]])

    def test_instance_that_was_not_deleted_after_all(self):
        self.cloud.set('b', up=False)
        self.cloud.ironic[NODES[0]] = 'i1'
        self.cloud.placed = {'i1': ownership.InstanceState('b', deleted=True)}
        self.audit('a')
        self.cloud.set('b')
        self.cloud.placed = {'i1': ownership.InstanceState('b')}
        self.assertIs(Reason.INSTANCE_ELSEWHERE,
                      self.audit('a').reasons[NODES[0]])


class CostTestCase(AuditTestCase):

    def test_steady_state_reads_nothing_of_others(self):
        for node in NODES[:5]:
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = ownership.InstanceState('b')
            self.cloud.owners[node] = 'b'
        self.settle('a', 'b')
        self.audit('a')
        self.assertEqual([], self.cloud.asked)


class PartitionTestCase(AuditTestCase):

    def test_member_that_serves_a_shard_only_gets_nothing_else(self):
        # b sees the nodes of its shard alone; nobody told a.
        shard = NODES[:4]
        self.cloud.owners = dict.fromkeys(shard, 'b')
        self.cloud.labels = {'b': 'shard=s1'}
        self.settle('a')
        found = self.audit('a')
        self.assertEqual(set(NODES) - set(shard), set(found.nodes))
        self.assertIn(Reason.OTHER_PARTITION, found.reasons.values())

    def test_partition_of_a_member_is_learned_from_any_of_its_nodes(self):
        # None of its nodes is one that a would take.
        preferred = [node for node in NODES
                     if node in self.preferred('b', 'a', 'b')]
        for shard in (preferred[:1], preferred[-1:]):
            self.cloud.owners = dict.fromkeys(shard, 'b')
            self.cloud.labels = {'b': 'shard=s1'}
            self.auditors.clear()
            self.settle('a')
            self.assertEqual(set(NODES) - set(shard),
                             set(self.audit('a').nodes))

    def test_two_share_a_shard(self):
        self.cloud.labels = {'a': 'shard=s1', 'b': 'shard=s1'}
        self.options['partition'] = membership.Partition(
            shard='s1', peer_list=('A', 'b'))
        self.settle('a', 'b')
        for host in 'ab':
            self.assertEqual(self.preferred(host, 'a', 'b'),
                             set(self.audit(host).nodes))

    def test_shard_without_peers_takes_nothing_from_another_host(self):
        self.cloud.labels = {'a': 'shard=s1', 'b': 'shard=s1'}
        self.cloud.owners = dict.fromkeys(NODES[:4], 'b')
        self.options['partition'] = membership.Partition(shard='s1')
        self.settle('a')
        self.assertEqual(set(NODES[4:]), set(self.audit('a').nodes))


class AbsenceTestCase(AuditTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = Cloud('a')
        self.settle('a')

    def test_node_that_was_removed_is_deleted_after_two_audits(self):
        del self.cloud.ironic[NODES[0]]
        found = self.audit()
        self.assertEqual(frozenset(), found.deleted)
        self.assertIn(NODES[0], found.nodes)
        self.assertIs(Reason.UNLISTED, found.reasons[NODES[0]])
        found = self.audit()
        self.assertEqual({NODES[0]}, found.deleted)
        self.assertNotIn(NODES[0], found.nodes)
        self.assertIn(NODES[0], {record.node for record in found.records})

    def test_node_that_is_left_out_of_the_listing_is_kept(self):
        self.cloud.hidden = {NODES[0]}
        for _ in range(3 * absence.AUDITS_OF_MANY):
            found = self.audit()
            self.assertEqual(frozenset(), found.deleted)
            self.assertIn(NODES[0], found.nodes)

    def test_empty_listing_deletes_nothing_and_asks_nothing(self):
        self.cloud.ironic.clear()
        for _ in range(3 * absence.AUDITS_OF_MANY):
            found = self.audit()
            self.assertEqual(frozenset(), found.deleted)
            self.assertEqual(set(NODES), set(found.nodes))
            self.assertEqual([], self.asked('node'))

    def test_broken_answer_is_no_deletion(self):
        self.cloud.hidden = {NODES[0]}
        self.cloud.node = lambda uuid: 1 / 0
        for _ in range(absence.AUDITS + 1):
            self.assertEqual(frozenset(), self.audit().deleted)

    def test_node_without_a_known_state_is_not_reported(self):
        # A compute service that starts while it may list nothing.
        self.auditors.clear()
        self.cloud.hidden = set(NODES)
        found = self.audit(settled=False)
        self.assertEqual({}, dict(found.nodes))
        self.assertEqual((), found.records)
        self.assertEqual(frozenset(), found.deleted)


class StandsTestCase(AuditTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.auditors['a'] = auditor = audit.Auditor(self.cloud)
        for _ in range(2):
            auditor.audit(audit.Settings(
                'a', ring_partitions=32, pull_delay_audits=1))
        self.auditor = auditor
        self.node = next(iter(auditor.last.nodes))

    def test_as_decided(self):
        self.assertTrue(self.auditor.still_valid(self.node))

    def test_not_when_a_third_host_was_faster(self):
        self.cloud.owners[self.node] = 'c'
        self.cloud.set('c')
        self.assertFalse(self.auditor.still_valid(self.node))

    def test_only_nodes_that_another_would_pull_may_be_gone(self):
        self.settle('b')
        auditor = self.auditors['b']
        self.assertEqual(
            set(auditor.last.nodes) - self.preferred('b', 'a', 'b'),
            {node for node in NODES if auditor.may_be_gone(node)})
        self.cloud.set('b', disabled=True)
        self.audit('b')
        self.assertEqual(
            set(auditor.last.nodes),
            {node for node in NODES if auditor.may_be_gone(node)})
        self.assertFalse(audit.Auditor(self.cloud).may_be_gone(NODES[0]))

    def test_nothing_before_the_first_audit(self):
        self.assertFalse(audit.Auditor(self.cloud).still_valid(self.node))

    def test_record_that_was_read_by_nova_is_not_read_again(self):
        self.cloud.asked.clear()
        self.cloud.set('c')
        self.assertFalse(self.auditor.still_valid(
            self.node, ownership.Record(self.node, 'c')))
        self.assertTrue(self.auditor.still_valid(
            self.node, ownership.Record(self.node, 'A')))
        self.assertEqual([], self.asked('record'))

    def test_not_for_a_node_that_is_not_mine(self):
        other = next(iter(set(NODES) - set(self.auditor.last.nodes)))
        self.assertFalse(self.auditor.still_valid(other))
        self.assertFalse(self.auditor.still_valid('never-heard-of'))

    def test_owner_that_came_back_keeps_its_node(self):
        self.cloud.set('b', up=False)
        self.auditor.audit(audit.Settings('a', ring_partitions=32))
        self.assertTrue(self.auditor.still_valid(NODES[0]))
        self.cloud.set('b')
        self.assertFalse(self.auditor.still_valid(NODES[0]))

    def test_my_instance_that_moved_on_takes_no_node_along(self):
        self.cloud.ironic[self.node] = 'i1'
        self.cloud.placed = {'i1': ownership.InstanceState('a')}
        self.auditor.audit(audit.Settings('a', ring_partitions=32))
        self.assertTrue(self.auditor.still_valid(self.node))
        self.cloud.placed = {'i1': ownership.InstanceState('b')}
        self.assertFalse(self.auditor.still_valid(self.node))


class TakeoverTestCase(AuditTestCase):
    """c dies with an instance on each of its nodes."""

    def setUp(self):
        super().setUp()
        self.cloud = Cloud('a', 'b', 'c')
        self.settle('a', 'b', 'c')
        self.theirs = [node for node, host in self.cloud.owners.items()
                       if host == 'c']
        for node in self.theirs:
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = ownership.InstanceState(
                'c', node=node, vm_state='active')
        self.options['policy'] = takeover.Policy('forced_down')

    def hosts(self):
        return {state.host for state in self.cloud.placed.values()}

    def test_a_fenced_hosts_instances_go_to_the_preferred(self):
        self.cloud.set('c', up=False)
        self.audit('a'), self.audit('b')
        self.assertEqual({'c'}, self.hosts())
        self.cloud.set('c', up=False, forced_down=True)
        taken = {}
        for host in 'ab':
            found = self.audit(host)
            self.assertEqual(
                {'c'} if found.taken_over else set(),
                set(found.taken_over.values()))
            taken.update(dict.fromkeys(found.taken_over, host))
        self.assertEqual({f'i-{node}' for node in self.theirs}, taken.keys())
        self.assertEqual(taken, {
            instance: state.host
            for instance, state in self.cloud.placed.items()})
        for node in self.theirs:
            self.assertEqual(taken[f'i-{node}'], self.cloud.owners[node])

    def test_once(self):
        self.cloud.set('c', up=False, forced_down=True)
        self.settle('a', 'b')
        for host in 'ab':
            found = self.audit(host)
            self.assertEqual({}, dict(found.taken_over))
            self.assertEqual([], self.asked('take_over'))
            self.assertIn(Reason.INSTANCE_HERE, found.reasons.values())

    def test_one_that_has_changed_since_is_left(self):
        self.cloud.set('c', up=False, forced_down=True)
        take_over = self.cloud.take_over

        def too_late(instance, state, host):
            self.cloud.placed[instance] = dataclasses.replace(
                state, task_state='rebooting')
            return take_over(instance, state, host)

        self.cloud.take_over = too_late
        found = self.audit('a')
        self.assertEqual({}, dict(found.taken_over))
        self.assertNotIn(Reason.TAKEN_OVER, found.reasons.values())
        self.assertEqual({'c'}, self.hosts())

    def strand(self):
        """c had claimed its builds, and had reserved no machine yet."""
        for node in self.theirs:
            self.cloud.ironic[node] = None
            self.cloud.allocations[node] = frozenset([f'i-{node}'])
            self.cloud.placed[f'i-{node}'] = ownership.InstanceState(
                'c', node=node, vm_state='building')
        self.cloud.set('b', up=False)

    def test_builds_without_a_machine_are_taken_and_their_nodes_too(self):
        self.strand()
        self.cloud.set('c', up=False)
        found = self.audit('a')
        self.assertEqual(
            {Reason.AWAITED}, {found.reasons[node] for node in self.theirs})
        self.cloud.set('c', up=False, forced_down=True)
        found = self.audit('a')
        self.assertEqual({f'i-{node}': 'c' for node in self.theirs},
                         dict(found.taken_over))
        self.assertEqual(
            {Reason.ADOPTED}, {found.reasons[node] for node in self.theirs})
        self.assertEqual({}, dict(self.audit('a').taken_over))

    def test_builds_and_servers_are_so_many_together(self):
        self.strand()
        self.cloud.set('c', up=False, forced_down=True)
        server = self.theirs[0]
        self.cloud.ironic[server] = f'i-{server}'
        first, second = (self.audit('a', takeovers_per_audit=2)
                         for _ in range(2))
        self.assertEqual(2, len(first.taken_over))
        self.assertIs(Reason.INSTANCE_WAITS, first.reasons[server])
        self.assertEqual(2, [first.reasons[node] for node in self.theirs]
                         .count(Reason.ADOPTED))
        self.assertEqual(2, len(second.taken_over))

    def test_build_that_has_changed_since_keeps_its_node_waiting(self):
        self.strand()
        self.cloud.set('c', up=False, forced_down=True)
        self.cloud.take_over = lambda *arguments: False
        found = self.audit('a')
        self.assertEqual({}, dict(found.taken_over))
        self.assertEqual(
            {Reason.AWAITED}, {found.reasons[node] for node in self.theirs})

    def test_so_many_in_one_audit(self):
        self.cloud.set('c', up=False, forced_down=True)
        self.cloud.set('b', up=False)
        self.assertGreater(len(self.theirs), 3)
        found = self.audit('a', takeovers_per_audit=2)
        self.assertEqual(2, len(found.taken_over))
        self.assertEqual(
            len(self.theirs) - 2,
            list(found.reasons.values()).count(Reason.INSTANCE_WAITS))
        self.assertEqual(
            2, len(self.audit('a', takeovers_per_audit=2).taken_over))

    def test_down_counts_from_when_it_was_first_seen_down(self):
        self.options['policy'] = takeover.Policy('down', after=60)
        self.cloud.set('c', up=False)
        self.settle('a', 'b')
        self.clock.now += 59
        self.settle('a', 'b')
        self.assertEqual({'c'}, self.hosts())
        self.cloud.set('c')
        self.audit('a'), self.audit('b')
        self.cloud.set('c', up=False)
        self.clock.now += 59
        self.settle('a', 'b')
        self.clock.now += 59
        self.settle('a', 'b')
        self.assertEqual({'c'}, self.hosts())
        self.clock.now += 1
        self.settle('a', 'b')
        self.assertEqual({'a', 'b'}, self.hosts())

    def test_those_of_one_host_are_audited_at_once(self):
        self.cloud.set('c', up=False, forced_down=True)
        before = self.auditors['a'].last
        reasons = self.auditors['a'].audit_hosts(
            audit.Settings('a', ring_partitions=32, **self.options), ['c'],
            lambda found, mine: None)
        after = self.auditors['a'].last
        taken = set(after.taken_over)
        self.assertTrue(taken)
        self.assertEqual(
            taken, {f'i-{node}' for node, reason in reasons.items()
                    if reason is Reason.TAKEN_OVER})
        self.assertEqual(taken, {
            instance for instance, state in self.cloud.placed.items()
            if state.host == 'a'})
        self.assertLessEqual(before.nodes.keys(), after.nodes.keys())
        # Once for each.
        self.auditors['a'].audit_hosts(
            audit.Settings('a', ring_partitions=32, **self.options), ['c'],
            lambda found, mine: None)
        self.assertEqual({}, dict(self.auditors['a'].last.taken_over))

    def test_looks_count_the_time_for_which_a_host_is_down(self):
        self.options['policy'] = takeover.Policy('down', after=60)
        settings = audit.Settings('a', ring_partitions=32, **self.options)
        self.cloud.set('c', up=False)
        auditor = self.auditors['a']
        for seconds, expected in ((0, set()), (59, set()), (1, {'c'})):
            self.clock.now += seconds
            _, view = auditor.read_view(settings)
            self.assertEqual(expected, auditor.eligible(settings, view))

    def test_a_host_that_starts_takes_nothing_over(self):
        self.cloud.set('c', up=False, forced_down=True)
        self.assertEqual({}, dict(self.audit('a', settled=False).taken_over))


class AuditHostsTestCase(AuditTestCase):
    """Host a leaves when all have settled; b audits its nodes."""

    def setUp(self):
        super().setUp()
        self.cloud = Cloud('b', 'a', 'c')
        self.settle('b', 'a', 'c')
        self.before = self.audit('b')
        self.theirs = {node for node, owner in self.cloud.owners.items()
                       if owner == 'a'}
        self.share = self.theirs & self.preferred('b', 'b', 'c')

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
        self.assertTrue(self.auditors['b'].still_valid(node))
        self.assertFalse(self.auditors['b'].still_valid(other))

    def test_instances_and_builds_of_the_dead_stay(self):
        for host in 'ac':
            self.cloud.set(host, up=False)
        used, building, leaked = sorted(self.theirs)[:3]
        self.cloud.ironic.update({used: 'i1', leaked: 'i3'})
        self.cloud.placed = {'i1': ownership.InstanceState('a'),
                             'i2': ownership.InstanceState(None),
                             'i3': ownership.InstanceState('a', deleted=True)}
        self.cloud.allocations = {building: frozenset(['i2'])}
        found, mine = self.audit_hosts('b', 'a')
        self.assertEqual(self.theirs - {used, building}, mine)
        self.assertEqual(
            [Reason.INSTANCE_OF_DEAD, Reason.AWAITED, Reason.LEAKED],
            [found.reasons[node] for node in (used, building, leaked)])

    def test_node_that_the_last_audit_meant_to_take_and_has_not_yet(self):
        self.cloud.set('a', up=False)
        found = self.auditors['b'].audit(
            audit.Settings('b', ring_partitions=32))
        building = min(self.share)
        self.assertIn(building, found.nodes)
        self.cloud.placed = {'i1': ownership.InstanceState(None)}
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

    def test_host_that_was_robbed_pulls_nothing_back_at_once(self):
        lost = next(iter(self.before.nodes))
        self.cloud.owners[lost] = 'a'
        self.cloud.set('a', disabled=True)
        self.assertEqual(set(), self.audit_hosts('b', 'a')[1])

    def test_what_is_remembered_between_audits_is_as_before(self):
        # As after an audit in which nothing happened: the one that comes
        # next neither waits anew nor takes itself for robbed.
        self.cloud.set('a', disabled=True)
        self.audit_hosts('b', 'a')
        self.cloud.owners.update(dict.fromkeys(self.share, 'a'))
        self.assertEqual(self.share, {
            node for node, reason in self.audit('b').reasons.items()
            if reason is Reason.PULLED})

    def test_nothing_changes_when_something_cannot_be_known(self):
        self.cloud.set('a', up=False)
        self.cloud.broken = True
        before = self.auditors['b'].last
        self.assertRaises(OSError, self.audit_hosts, 'b', 'a')
        self.assertIs(before, self.auditors['b'].last)
        self.cloud.broken = False
        self.assertEqual(self.share, self.audit_hosts('b', 'a')[1])

    def test_host_that_is_back_keeps_its_nodes(self):
        self.assertEqual(set(), self.audit_hosts('b', 'a')[1])

    def test_disabled_host_is_found_under_its_own_spelling(self):
        self.cloud.set('A', disabled=True)
        del self.cloud.states['a']
        self.cloud.owners.update(dict.fromkeys(self.theirs, 'A'))
        self.assertEqual(self.share, self.audit_hosts('b', 'A')[1])

    def test_few_nodes_of_many_are_asked_for_one_by_one(self):
        self.cloud.set('a', up=False)
        few = sorted(self.share)[:1]
        for node in self.theirs - set(few):
            self.cloud.owners[node] = 'c'
        self.cloud.nodes = None
        gone, = few
        _, mine = self.audit_hosts('b', 'a')
        self.assertEqual(set(few), mine)
        self.assertEqual(few, self.asked('node'))
        self.cloud.owners[gone] = 'a'
        del self.cloud.ironic[gone]
        self.assertEqual(set(), self.audit_hosts('b', 'a')[1])

    def test_nodes_of_another_partition_are_no_business_of_mine(self):
        # One by one they would not tell.
        partition = membership.Partition(shard='rack1', peer_list=('b', 'c'))
        self.audit('b', partition=partition)
        self.cloud.set('a', up=False)
        few = min(self.share)
        for node in self.theirs - {few}:
            self.cloud.owners[node] = 'c'
        self.cloud.hidden = {few}
        self.assertEqual(set(), self.audit_hosts(
            'b', 'a', partition=partition)[1])

    def test_instances_of_a_fenced_host_are_taken_over(self):
        self.options['policy'] = takeover.Policy('forced_down')
        self.cloud.ironic.update({node: f'i-{node}' for node in self.theirs})
        self.cloud.placed = {f'i-{node}': ownership.InstanceState('a')
                             for node in self.theirs}
        self.audit('b')
        self.cloud.set('a', up=False)
        self.assertEqual(set(), self.audit_hosts('b', 'a')[1])
        self.cloud.set('a', up=False, forced_down=True)
        found, mine = self.audit_hosts('b', 'a', takeovers_per_audit=1)
        self.assertEqual({f'i-{node}' for node in mine},
                         found.taken_over.keys())
        self.assertEqual({'b'}, {self.cloud.placed[instance].host
                                 for instance in found.taken_over})
        self.assertEqual({Reason.TAKEN_OVER, Reason.INSTANCE_WAITS},
                         set(self.decided.values()))
        found, more = self.audit_hosts('b', 'a')
        self.assertEqual(self.share, mine | more)
        self.assertEqual({f'i-{node}' for node in more},
                         found.taken_over.keys())

    def test_look_sees_who_is_disabled_too(self):
        auditor, settings = self.auditors['b'], audit.Settings('b')
        self.cloud.set('a', disabled=True)
        self.assertNotIn('a', auditor.read_view(settings)[1].services)
        view = auditor.read_view(settings, ['a'])[1]
        self.assertTrue(view.services['a'].disabled)
        self.assertEqual({'b', 'c'}, view.members)

    def test_who_audits_next_waits_until_it_is_carried_out(self):
        auditor = self.auditors['b']
        settings = audit.Settings('b', ring_partitions=32)
        free = []
        for act in (
                lambda then: auditor.audit(settings, then=then),
                lambda then: auditor.audit_hosts(settings, ['a'], then)):
            act(lambda *facts: free.append(
                auditor._lock.acquire(blocking=False)))
        self.assertEqual([False, False], free)
