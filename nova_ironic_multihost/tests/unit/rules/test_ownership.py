# SPDX-License-Identifier: Apache-2.0

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

HOSTS = ('host-a', 'host-b', 'host-c')
NODE = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
PREFERRED = ring.Ring(HOSTS, 32).host_for(NODE)
OTHER, THIRD = (host for host in HOSTS if host != PREFERRED)


def services(*hosts, **states):
    """Return services that are up, and others in a state by name."""
    known = [peers.ComputeService(host, up=True) for host in hosts]
    for host, state in states.items():
        known.append(peers.ComputeService(
            host.replace('_', '-'), up=state == 'disabled',
            disabled=state == 'disabled', forced_down=state == 'fenced'))
    return known


def facts(host, known=None, zones=None, partition=None,
          other_partition_hosts=(), cross_zones=False, **rest):
    """Return the facts of a host; all hosts are up unless told."""
    known = services(*HOSTS) if known is None else known
    partition = partition or peers.Partition()
    view = peers.view(known, partition, host, other_partition_hosts)
    zones = zones or {}
    preferences = ring.Preferences(
        {member: zones.get(member) for member in view.members}, 32,
        cross_zones)
    return Facts(
        **{'nodes': {NODE: None}, 'my_instances': frozenset(),
           'my_nodes': frozenset(), 'view': view, 'zones': zones,
           'preferences': preferences, 'partition': partition, **rest})


def reason(host, **how):
    return ownership.decide(facts(host, **how))[NODE]


def recorded(host, partition=''):
    return {NODE: Record(NODE, host, partition)}


class FreeNodeTestCase(base.BaseTestCase):
    """Rules 6 to 10 of the decision."""

    def test_my_node_stays_mine_whoever_is_preferred(self):
        for host in HOSTS:
            self.assertIs(Reason.KEPT, reason(host, my_nodes={NODE}))

    def test_my_node_stays_mine_while_i_am_disabled(self):
        self.assertIs(Reason.KEPT, reason(
            PREFERRED, my_nodes={NODE},
            known=services(OTHER, **{PREFERRED: 'disabled'})))

    def test_node_without_a_record_is_created_by_the_preferred(self):
        self.assertIs(Reason.CREATED, reason(PREFERRED))
        for host in (OTHER, THIRD):
            self.assertIs(Reason.OTHER_PREFERRED, reason(host))

    def test_first_audit_creates(self):
        self.assertIs(Reason.CREATED, reason(
            PREFERRED, settled=False))

    def test_node_of_a_dead_host_is_adopted_by_the_preferred(self):
        for dead in (services(PREFERRED, OTHER, **{THIRD: 'down'}),
                     services(PREFERRED, OTHER, **{THIRD: 'fenced'}),
                     services(PREFERRED, OTHER)):
            host = facts(OTHER, known=dead).preferences.host_for(NODE)
            self.assertIs(Reason.ADOPTED, reason(
                host, known=dead, records=recorded(THIRD)))

    def test_nothing_is_taken_that_the_database_refuses(self):
        down = services(PREFERRED, THIRD, **{OTHER: 'down'})
        for known in None, down:
            for records in {}, recorded(OTHER):
                self.assertIs(Reason.BARRED, reason(
                    PREFERRED, known=known, records=records, barred={NODE}))

    def test_adopting_waits_for_the_start_and_the_mapping(self):
        known = services(PREFERRED, **{OTHER: 'down'})
        for missing, expected in (
                ('settled', Reason.STARTING),
                ('mapped', Reason.UNMAPPED),
                ('member_long_enough', Reason.ADOPTED)):
            self.assertIs(expected, reason(
                PREFERRED, known=known, records=recorded(OTHER),
                **{missing: False}))

    def test_node_of_a_live_peer_is_pulled_by_the_preferred(self):
        self.assertIs(Reason.PULLED, reason(
            PREFERRED, records=recorded(OTHER)))
        self.assertIs(Reason.OTHER_PREFERRED, reason(
            THIRD, records=recorded(OTHER)))

    def test_node_of_a_disabled_peer_is_pulled(self):
        known = services(PREFERRED, THIRD, **{OTHER: 'disabled'})
        self.assertIs(Reason.PULLED, reason(
            PREFERRED, known=known, records=recorded(OTHER)))

    def test_pulling_waits_for_start_mapping_and_test(self):
        for missing, expected in (
                ('settled', Reason.STARTING),
                ('mapped', Reason.UNMAPPED),
                ('member_long_enough', Reason.UNTESTED)):
            self.assertIs(expected, reason(
                PREFERRED, records=recorded(OTHER), **{missing: False}))

    def test_who_is_no_member_takes_nothing(self):
        for state in ('disabled', 'down', 'fenced'):
            known = services(OTHER, **{PREFERRED: state})
            for records in ({}, recorded(OTHER), recorded(THIRD)):
                self.assertFalse(reason(
                    PREFERRED, known=known, records=records).mine)

    def test_node_of_another_partition_is_left_there(self):
        for records, more in (
                (recorded(OTHER, 'shard=s1'), {}),
                (recorded(OTHER), {'partition': peers.Partition(
                    shard='s1', peer_list=HOSTS)}),
                (recorded(OTHER, 'shard=s1'), {
                    'partition': peers.Partition(
                        shard='s1', peer_list=(PREFERRED,))})):
            self.assertIs(Reason.OTHER_PARTITION, reason(
                PREFERRED, records=records, **more))

    def test_node_that_left_the_partition_of_its_owner_is_pulled(self):
        self.assertIs(Reason.PULLED, reason(
            PREFERRED, records=recorded(OTHER, 'shard=s1'),
            partition=peers.Partition(shard='s2', peer_list=HOSTS)))

    def test_case_of_host_names_means_nothing(self):
        self.assertIs(Reason.PULLED, reason(
            PREFERRED, records=recorded(OTHER.upper())))
        known = services(PREFERRED, **{OTHER: 'down'})
        self.assertIs(Reason.ADOPTED, reason(
            PREFERRED, known=known, records=recorded(OTHER.title())))

    def test_nodes_do_not_cross_zones(self):
        zones = {PREFERRED: 'z1', OTHER: 'z2', THIRD: 'z2'}
        self.assertIs(Reason.OTHER_ZONE, reason(
            PREFERRED, zones=zones, records=recorded(OTHER)))
        # Within the zone somebody is preferred, and it may be a host
        # without a zone.
        inside = facts(THIRD, zones=zones).preferences.host_for(NODE, 'z2')
        self.assertIn(inside, (OTHER, THIRD))
        self.assertIs(Reason.PULLED, reason(
            PREFERRED, zones={OTHER: 'z2'}, records=recorded(OTHER)))

    def test_nodes_cross_zones_when_they_may(self):
        self.assertIs(Reason.PULLED, reason(
            PREFERRED, zones={PREFERRED: 'z1', OTHER: 'z2'},
            records=recorded(OTHER), cross_zones=True))

    def test_dead_hosts_nodes_stay_in_their_zone(self):
        known = services(PREFERRED, THIRD, **{OTHER: 'down'})
        zones = {PREFERRED: 'z1', OTHER: 'z2', THIRD: 'z2'}
        self.assertFalse(reason(
            PREFERRED, known=known, zones=zones,
            records=recorded(OTHER)).mine)
        self.assertIs(Reason.ADOPTED, reason(
            THIRD, known=known, zones=zones, records=recorded(OTHER)))


class NodeWithInstanceTestCase(base.BaseTestCase):
    """Rules 1 to 5 of the decision."""

    def reason(self, host, state=None, **how):
        return reason(host, nodes={NODE: 'i1'},
                      instance_states={'i1': state} if state else {}, **how)

    def test_node_with_my_instance_is_mine_whoever_is_preferred(self):
        for host in HOSTS:
            for records in ({}, recorded(OTHER)):
                self.assertIs(Reason.INSTANCE_HERE, self.reason(
                    host, my_instances={'i1'}, records=records))

    def test_instance_claimed_since_the_instances_were_read_is_mine(self):
        self.assertIs(Reason.INSTANCE_HERE, self.reason(
            PREFERRED, InstanceState(PREFERRED.upper())))

    def test_node_with_an_instance_of_a_live_host_is_not_mine(self):
        for mine in ((), {NODE}):
            self.assertIs(Reason.INSTANCE_ELSEWHERE, self.reason(
                PREFERRED, InstanceState(OTHER), my_nodes=mine))

    def test_node_with_an_instance_of_a_dead_host_is_not_mine(self):
        known = services(PREFERRED, **{OTHER: 'down'})
        self.assertIs(Reason.INSTANCE_OF_DEAD, self.reason(
            PREFERRED, InstanceState(OTHER), known=known,
            records=recorded(OTHER)))

    def test_node_of_a_build_that_is_nowhere_stays_with_its_owner(self):
        nowhere = InstanceState(None)
        self.assertIs(Reason.BUILDING, self.reason(
            OTHER, nowhere, my_nodes={NODE}))
        self.assertIs(Reason.INSTANCE_ELSEWHERE, self.reason(
            PREFERRED, nowhere))

    def test_leaked_and_unknown_stay_with_their_owner(self):
        for state, expected in ((None, Reason.UNKNOWN), (
                InstanceState(OTHER, deleted=True), Reason.LEAKED)):
            for host in HOSTS:
                self.assertIs(expected, self.reason(
                    host, state, my_nodes={NODE}))
            self.assertFalse(self.reason(
                PREFERRED, state, records=recorded(OTHER)).mine)

    def test_leaked_and_unknown_go_to_the_preferred_without_live_owner(self):
        known = services(PREFERRED, THIRD, **{OTHER: 'down'})
        for state, expected in ((None, Reason.UNKNOWN), (
                InstanceState(OTHER, deleted=True), Reason.LEAKED)):
            for records in ({}, recorded(OTHER)):
                self.assertIs(expected, self.reason(
                    PREFERRED, state, known=known, records=records))
                self.assertFalse(self.reason(
                    THIRD, state, known=known, records=records).mine)

    def test_leaked_machine_waits_for_the_start(self):
        known = services(PREFERRED, **{OTHER: 'down'})
        self.assertIs(Reason.STARTING, self.reason(
            PREFERRED, InstanceState(OTHER, deleted=True), known=known,
            records=recorded(OTHER),
            settled=False))


class TakeoverTestCase(base.BaseTestCase):
    """Rule 3, where the policy says so."""

    DEAD = services(PREFERRED, THIRD, **{OTHER: 'fenced'})

    def reason(self, host, state=None, **how):
        how = {'known': self.DEAD, 'eligible': {OTHER},
               'records': recorded(OTHER), **how}
        return reason(host, nodes={NODE: 'i1'}, instance_states={
            'i1': state or InstanceState(OTHER, node=NODE)}, **how)

    def test_the_preferred_takes_it(self):
        self.assertIs(Reason.TAKEN_OVER, self.reason(PREFERRED))
        self.assertTrue(Reason.TAKEN_OVER.mine)
        self.assertFalse(self.reason(THIRD).mine)

    def test_also_without_a_record_or_from_another_dead_host(self):
        self.assertIs(Reason.TAKEN_OVER, self.reason(PREFERRED, records={}))
        known = services(PREFERRED, **{OTHER: 'fenced', THIRD: 'down'})
        self.assertIs(Reason.TAKEN_OVER, self.reason(
            PREFERRED, known=known, records=recorded(THIRD)))

    def test_not_if_the_policy_says_nothing_of_the_host(self):
        self.assertIs(Reason.INSTANCE_OF_DEAD, self.reason(
            PREFERRED, eligible=frozenset()))

    def test_not_if_nova_has_it_on_another_node(self):
        self.assertIs(Reason.INSTANCE_OF_DEAD, self.reason(
            PREFERRED, InstanceState(OTHER, node='another')))

    def test_a_live_owner_of_the_node_takes_it_instead(self):
        for owner, other in ((THIRD, PREFERRED), (PREFERRED, THIRD)):
            self.assertIs(Reason.TAKEN_OVER, self.reason(
                owner, my_nodes={NODE}, records={}))
            self.assertFalse(self.reason(
                other, records=recorded(owner)).mine)

    def test_it_waits_for_the_start_and_the_mapping(self):
        for missing, expected in (
                ('settled', Reason.STARTING),
                ('mapped', Reason.UNMAPPED),
                ('member_long_enough', Reason.TAKEN_OVER)):
            self.assertIs(expected, self.reason(
                PREFERRED, **{missing: False}))

    def test_who_serves_the_node_now_takes_it_as_a_free_one(self):
        """Its node, or its host, was of another partition when it died."""
        mine = peers.Partition(shard='x', peer_list=(PREFERRED, THIRD))
        cases = (
            # The node has changed its shard, or its group.
            (mine, recorded(OTHER, 'shard=y'), ()),
            (peers.Partition('g', peer_list=(PREFERRED, THIRD)),
             recorded(OTHER, 'conductor_group=h'), ()),
            # The dead one was taken out of the peer_list.
            (mine, recorded(OTHER, 'shard=x'), ()),
            # One has a partition, the other has none.
            (mine, recorded(OTHER), ()),
            (None, recorded(OTHER, 'shard=y'), (OTHER,)))
        for partition, records, others in cases:
            for host in PREFERRED, THIRD:
                how = {'partition': partition, 'records': records,
                       'other_partition_hosts': others}
                self.assertIs(host == PREFERRED,
                              self.reason(host, **how).mine, how)
                self.assertIs(host == PREFERRED, reason(
                    host, known=self.DEAD, **how).mine, how)

    def test_a_live_owner_of_another_partition_does_not_take_it(self):
        known = services(*HOSTS, dead='fenced')
        mine = peers.Partition(shard='x', peer_list=(PREFERRED, THIRD))
        for partition, label, others in (
                (mine, 'shard=y', ()), (mine, '', ()),
                (None, 'shard=y', (OTHER,))):
            self.assertEqual([True, False], [
                self.reason(
                    host, InstanceState('dead', node=NODE), known=known,
                    eligible={'dead'}, records=recorded(OTHER, label),
                    partition=partition, other_partition_hosts=others).mine
                for host in (PREFERRED, THIRD)])

    def test_not_before_its_record_can_follow(self):
        for how in {}, {'my_nodes': frozenset(), 'records': {}}:
            self.assertIs(Reason.BARRED, self.reason(
                PREFERRED, barred={NODE}, **how))

    def test_it_stays_in_its_zone(self):
        for zones, taker in (
                ({PREFERRED: 'z1', OTHER: 'z2', THIRD: 'z2'}, THIRD),
                # A host without a zone is another place, too.
                ({OTHER: 'z2', THIRD: 'z2'}, THIRD),
                ({PREFERRED: 'z1', THIRD: 'z1'}, None),
                ({PREFERRED: 'z1'}, THIRD)):
            for host in (PREFERRED, THIRD):
                self.assertIs(host == taker,
                              self.reason(host, zones=zones).mine)

    def test_an_owner_of_the_node_in_another_zone_leaves_it(self):
        self.assertIs(Reason.INSTANCE_OF_DEAD, self.reason(
            PREFERRED, zones={PREFERRED: 'z1'}, my_nodes={NODE}, records={}))
        self.assertIs(Reason.TAKEN_OVER, self.reason(
            THIRD, zones={PREFERRED: 'z1'}, records=recorded(PREFERRED)))

    def test_an_owner_of_the_node_that_takes_nothing_leaves_it(self):
        for owner, takeover_target in ((THIRD, PREFERRED), (PREFERRED, THIRD)):
            known = services(
                takeover_target, **{OTHER: 'fenced', owner: 'disabled'})
            self.assertIs(Reason.TAKEN_OVER, self.reason(
                takeover_target, known=known, records=recorded(owner)))
            self.assertIs(Reason.INSTANCE_OF_DEAD, self.reason(
                owner, known=known, my_nodes={NODE}, records={}))

    def test_it_crosses_zones_when_it_may(self):
        self.assertIs(Reason.TAKEN_OVER, self.reason(
            PREFERRED, zones={PREFERRED: 'z1', OTHER: 'z2', THIRD: 'z2'},
            cross_zones=True))

    def test_its_record_is_asked_for(self):
        states = {'i1': InstanceState(OTHER, node=NODE)}
        for known, wanted in ((services(*HOSTS), []), (self.DEAD, [NODE])):
            self.assertEqual(wanted, ownership.candidates(facts(
                PREFERRED, known=known, nodes={NODE: 'i1'},
                instance_states=states)))

    def test_only_so_many_at_once(self):
        reasons = dict.fromkeys(('n1', 'n2', 'n3'), Reason.TAKEN_OVER)
        self.assertEqual(
            {'n1': Reason.TAKEN_OVER, 'n2': Reason.TAKEOVER_FAILED,
             'n3': Reason.INSTANCE_WAITS},
            ownership.confirmed(reasons, {}, {'n1'}, {'n1', 'n2'}))

    def test_a_build_that_could_not_be_taken_is_not_waited_for(self):
        reasons = dict.fromkeys(('n1', 'n2'), Reason.ADOPTED)
        self.assertEqual(
            {'n1': Reason.TAKEOVER_FAILED, 'n2': Reason.AWAITED},
            ownership.confirmed(
                reasons, {'n1': True, 'n2': True}, (), {'n1'}))


@st.composite
def clouds(draw):
    """Nodes, records, instances and services of one moment."""
    hosts = draw(st.permutations(HOSTS + ('host-d',)))
    known = [peers.ComputeService(
        host, up=draw(st.booleans()), disabled=draw(st.booleans()))
        for host in hosts]
    nodes = draw(st.lists(st.uuids(version=4).map(str), unique=True,
                          min_size=1, max_size=12))
    instances = {node: f'i-{node}' if draw(st.booleans()) else None
                 for node in nodes}
    instance_states = {instance: InstanceState(
        draw(st.sampled_from((*hosts, None))), deleted=draw(st.booleans()))
        for instance in instances.values()
        if instance and draw(st.booleans())}
    records = {node: Record(node, draw(st.sampled_from(hosts)))
               for node in nodes if draw(st.booleans())}
    return known, instances, instance_states, records


def cloud_facts(host, cloud, **how):
    known, nodes, instance_states, records = cloud
    return facts(
        host, known=known, nodes=nodes, instance_states=instance_states,
        my_instances={instance for instance, state in instance_states.items()
                      if state.host_key == host and not state.deleted},
        my_nodes={node for node, record in records.items()
                  if record.owner == host},
        records={node: record for node, record in records.items()
                 if record.owner != host},
        eligible={service.host for service in known if not service.up},
        **how)


class DecideTestCase(base.BaseTestCase):

    @given(clouds())
    def test_one_view_gives_each_node_one_taker(self, cloud):
        known, nodes, instance_states, records = cloud
        decisions = {service.host: ownership.decide(
            cloud_facts(service.host, cloud)) for service in known}
        live = {service.host for service in known if service.up}
        for node in nodes:
            # What a host that is down takes for its own is its no more when
            # another has written itself into the instance.
            takers = [host for host, reasons in decisions.items()
                      if reasons[node].mine and (
                          node not in records
                          or records[node].owner != host)
                      and (host in live or reasons[node]
                           is not Reason.INSTANCE_HERE)]
            self.assertLessEqual(len(takers), 1, node)

    @given(clouds())
    def test_only_idle_nodes_leave_a_live_owner(self, cloud):
        # Unless their instances come from a dead one, and it takes nothing.
        known, nodes, instance_states, records = cloud
        live = {service.host for service in known if service.up}
        members = {service.host for service in known
                   if service.up and not service.disabled}
        for service in known:
            decided = cloud_facts(service.host, cloud)
            for node, reason in ownership.decide(decided).items():
                if (reason.mine and nodes[node]
                        and node in decided.records
                        and decided.records[node].owner in live):
                    self.assertIs(
                        Reason.INSTANCE_HERE
                        if decided.records[node].owner in members
                        or reason is not Reason.TAKEN_OVER
                        else Reason.TAKEN_OVER, reason)

    @given(clouds())
    def test_every_node_that_may_be_has_a_member_for_its_owner(self, cloud):
        # After the takers have taken, each free node is on a member, if
        # there is one.
        known, nodes, instance_states, records = cloud
        members = {service.host for service in known
                   if service.up and not service.disabled}
        decisions = {host: ownership.decide(cloud_facts(host, cloud))
                     for host in members}
        for node, instance in nodes.items():
            owner = records[node].owner if node in records else None
            if instance is None and members and owner not in members:
                self.assertEqual(1, sum(
                    reasons[node].mine for reasons in decisions.values()))

    @given(clouds())
    def test_what_is_not_asked_for_is_not_needed(self, cloud):
        for service in cloud[0]:
            whole = cloud_facts(service.host, cloud)
            wanted = set(ownership.foreign_instances(dataclasses.replace(
                whole, instance_states={}, records={})))
            asked = dataclasses.replace(
                whole, records={}, instance_states={
                    instance: state for instance, state
                    in whole.instance_states.items() if instance in wanted})
            candidates = set(ownership.candidates(asked))
            asked = dataclasses.replace(asked, records={
                node: record for node, record in whole.records.items()
                if node in candidates})
            self.assertEqual(ownership.decide(whole),
                             ownership.decide(asked))

    @given(clouds(), st.randoms(use_true_random=False))
    def test_the_order_of_the_listing_does_not_matter(self, cloud, rnd):
        known, nodes, instance_states, records = cloud
        shuffled = list(nodes.items())
        rnd.shuffle(shuffled)
        for service in known:
            self.assertEqual(
                ownership.decide(cloud_facts(service.host, cloud)),
                ownership.decide(cloud_facts(
                    service.host,
                    (known, dict(shuffled), instance_states, records))))


class PullsTestCase(base.BaseTestCase):

    reasons = {'n1': Reason.PULLED, 'n2': Reason.KEPT, 'n3': Reason.PULLED,
               'n4': Reason.PULLED}

    def test_no_more_than_the_limit(self):
        pulled = {'n1', 'n3', 'n4'}
        for limit, count in (0, 0), (2, 2), (9, 3), (None, 3):
            some = ownership.some_of(self.reasons, Reason.PULLED, limit)
            self.assertEqual(count, len(some))
            self.assertLessEqual(set(some), pulled)

    def test_each_gets_its_turn(self):
        self.assertEqual({'n1', 'n3', 'n4'}, {
            node for _ in range(200)
            for node in ownership.some_of(self.reasons, Reason.PULLED, 1)})

    def test_only_idle_nodes_are_pulled(self):
        self.assertEqual(
            {'n1': Reason.ALLOCATED, 'n2': Reason.KEPT,
             'n3': Reason.PULLED, 'n4': Reason.QUEUED},
            ownership.confirmed(
                self.reasons, {'n1': True, 'n3': False}, (), ()))


class AwaitedTestCase(base.BaseTestCase):

    def test_those_are_adopted_whose_builds_were_looked_at(self):
        reasons = {'n1': Reason.ADOPTED, 'n2': Reason.ADOPTED,
                   'n3': Reason.LEAKED}
        self.assertEqual(
            {'n1': Reason.ADOPTED, 'n2': Reason.ADOPTION_WAITS,
             'n3': Reason.LEAKED},
            ownership.confirmed(reasons, {'n1': False}, (), ()))

    def test_node_of_a_dead_host_with_a_build_is_not_adopted(self):
        reasons = {'n1': Reason.ADOPTED, 'n2': Reason.ADOPTED,
                   'n3': Reason.CREATED}
        self.assertEqual(
            {'n1': Reason.AWAITED, 'n2': Reason.ADOPTED,
             'n3': Reason.CREATED},
            ownership.confirmed(
                reasons, {'n1': True, 'n2': False, 'n3': True}, (), ()))

    def test_node_of_which_placement_does_not_say_waits_for_that(self):
        reasons = {'n1': Reason.ADOPTED, 'n2': Reason.PULLED,
                   'n3': Reason.CREATED, 'n4': Reason.PULLED}
        self.assertEqual(
            {'n1': Reason.UNANSWERED, 'n2': Reason.UNANSWERED,
             'n3': Reason.CREATED, 'n4': Reason.QUEUED},
            ownership.confirmed(
                reasons, dict.fromkeys(('n1', 'n2', 'n3')), (), ()))

    def test_builds_keep_it_waiting_until_they_are_mine(self):
        builds = {'i1': InstanceState(OTHER), 'i2': InstanceState(None)}
        self.assertFalse(ownership.awaited({}, {}, PREFERRED))
        self.assertTrue(ownership.awaited(builds, {'i1'}, PREFERRED))
        self.assertFalse(ownership.awaited(builds, {'i1', 'i2'}, PREFERRED))
        builds['i2'] = InstanceState(PREFERRED.upper())
        self.assertFalse(ownership.awaited(builds, {'i1'}, PREFERRED))

    def test_build_that_was_given_up_keeps_nothing_waiting(self):
        for host, awaited in ((None, False), (OTHER, True)):
            self.assertIs(awaited, ownership.awaited(
                {'i1': InstanceState(host, vm_state='error')}, {}, PREFERRED))


class AbandonedBuildsTestCase(base.BaseTestCase):
    """OTHER has died over a build that it had claimed."""

    def setUp(self):
        super().setUp()
        self.state = InstanceState(
            OTHER.upper(), node=NODE, vm_state='building')

    def abandoned(self, host=PREFERRED, eligible=(OTHER,), zones=None,
                  **changes):
        known = services(PREFERRED, THIRD, **{
            OTHER.replace('-', '_'): 'fenced'})
        return ownership.abandoned_builds(
            NODE, {'i1': dataclasses.replace(self.state, **changes)},
            facts(host, known=known, zones=zones, eligible=eligible))

    def test_a_claimed_build_of_a_fenced_host(self):
        self.assertEqual(['i1'], self.abandoned())
        # It claims first and says where afterwards.
        self.assertEqual(['i1'], self.abandoned(node=None))

    def test_a_delete_that_was_nearly_done(self):
        """Ironic has let the machine go, nova has not deleted the server."""
        for changes in ({'vm_state': 'active', 'task_state': 'deleting'},
                        {'vm_state': 'active', 'task_state': takeover.taken(
                            'deleting', THIRD)},
                        {'vm_state': 'deleted'}):
            self.assertEqual(['i1'], self.abandoned(**changes))

    def test_one_that_waits_in_its_queue_is_not(self):
        self.state = InstanceState(None, vm_state='building')
        self.assertEqual([], self.abandoned())

    def test_not_without_leave(self):
        self.assertEqual([], self.abandoned(eligible=()))

    def test_not_what_is_no_build_or_elsewhere(self):
        self.assertEqual([], self.abandoned(vm_state='active'))
        self.assertEqual([], self.abandoned(node='another'))

    def test_who_adopts_the_node_takes_it_whatever_its_zone(self):
        for zones in ({OTHER: 'z1'}, {PREFERRED: 'z1'},
                      {OTHER: 'z1', THIRD: 'z1'}):
            self.assertEqual(['i1'], self.abandoned(zones=zones))


class MayCreateTestCase(base.BaseTestCase):

    def test_what_is_mine_as_i_am_preferred_if_i_still_am(self):
        for reason in (Reason.CREATED, Reason.ADOPTED, Reason.LEAKED,
                       Reason.UNKNOWN, Reason.PULLED):
            for preferred in (True, False):
                self.assertIs(preferred, ownership.may_create(
                    reason, lambda: preferred))

    def test_what_is_mine_whoever_is_preferred(self):
        for reason in (Reason.KEPT, Reason.INSTANCE_HERE, Reason.TAKEN_OVER,
                       Reason.BUILDING, Reason.UNLISTED):
            self.assertTrue(ownership.may_create(reason, self.fail))

    def test_not_what_is_not_mine(self):
        for reason in Reason:
            if not reason.mine:
                self.assertFalse(ownership.may_create(reason, self.fail))


class WasRobbedTestCase(base.BaseTestCase):

    def lost_nodes_to_peers(self, host, owned=(NODE,), known=None, **more):
        return ownership.lost_nodes_to_peers(facts(
            host, known=known, records=recorded(OTHER), **more), set(owned))

    def test_nodes_that_others_took_from_me_are_noticed(self):
        self.assertTrue(self.lost_nodes_to_peers(PREFERRED))

    def test_what_was_not_mine_is_no_loss(self):
        self.assertFalse(self.lost_nodes_to_peers(PREFERRED, owned=()))

    def test_what_i_am_not_preferred_for_is_no_loss(self):
        self.assertFalse(self.lost_nodes_to_peers(THIRD))

    def test_who_follows_its_instance_is_no_robber(self):
        for deleted in (False, True):
            self.assertIs(deleted, self.lost_nodes_to_peers(
                PREFERRED, nodes={NODE: 'i1'},
                instance_states={'i1': InstanceState(OTHER, deleted)}))

    def test_a_dead_robber_is_none(self):
        self.assertFalse(self.lost_nodes_to_peers(
            PREFERRED, known=services(PREFERRED, **{OTHER: 'down'})))


class StillValidTestCase(base.BaseTestCase):

    def still_valid(self, reason, before, now, live=False, state=None):
        return ownership.still_valid(
            reason, before, now, 'me', lambda: live, lambda: state)

    def test_nobodys_and_my_own_node_may_be_mine(self):
        for reason in Reason:
            for now in (None, 'me'):
                self.assertTrue(self.still_valid(reason, 'a', now))

    def test_another_that_came_first_keeps_the_node(self):
        for reason in (Reason.CREATED, Reason.ADOPTED, Reason.PULLED,
                       Reason.LEAKED, Reason.KEPT, Reason.UNLISTED):
            for before in (None, 'me', 'a'):
                for live in (True, False):
                    self.assertFalse(
                        self.still_valid(reason, before, 'b', live))

    def test_owner_that_came_back_keeps_the_node(self):
        for reason in (Reason.ADOPTED, Reason.LEAKED, Reason.UNKNOWN):
            self.assertTrue(self.still_valid(reason, 'a', 'a', live=False))
            self.assertFalse(self.still_valid(reason, 'a', 'a', live=True))

    def test_live_owner_may_be_relieved(self):
        self.assertTrue(self.still_valid(Reason.PULLED, 'a', 'a', live=True))

    def test_node_follows_my_instance_as_long_as_it_is_mine(self):
        for state, expected in (
                (InstanceState('ME'), True),
                (InstanceState('me', deleted=True), False),
                (InstanceState('a'), False), (None, False)):
            for reason in Reason.INSTANCE_HERE, Reason.TAKEN_OVER:
                self.assertEqual(expected, self.still_valid(
                    reason, 'a', 'a', True, state))


class TallyTestCase(base.BaseTestCase):

    def test_every_reason_is_counted(self):
        recorder = ownership.count_reasons({
            'n1': Reason.KEPT, 'n2': Reason.INSTANCE_HERE,
            'n3': Reason.KEPT})
        self.assertEqual(set(Reason), set(recorder))
        self.assertEqual({Reason.KEPT: 2, Reason.INSTANCE_HERE: 1},
                         {r: n for r, n in recorder.items() if n})


#: Reason -> the rules that it comes from, as "nova-ironic-multihost node" and
#: the documentation show them: of nodes that are mine, and of all others.
MINE = {
    'INSTANCE_HERE': (1,), 'TAKEN_OVER': (3,), 'BUILDING': (6,),
    'LEAKED': (4,), 'UNKNOWN': (5,), 'KEPT': (6,), 'CREATED': (7,),
    'ADOPTED': (8,), 'PULLED': (9,), 'UNLISTED': (6,)}
NOT_MINE = {
    'INSTANCE_ELSEWHERE': (2,), 'INSTANCE_OF_DEAD': (3,),
    'INSTANCE_WAITS': (3,), 'TAKEOVER_FAILED': (3, 8), 'ADOPTION_WAITS': (8,),
    'OTHER_PREFERRED': (11,), 'AWAITED': (8,), 'UNANSWERED': (8, 9),
    'STARTING': (3, 4, 5, 8, 9), 'BARRED': (3, 4, 5, 7, 8, 9),
    'UNMAPPED': (3, 4, 5, 8, 9), 'UNTESTED': (9,), 'ALLOCATED': (9,),
    'QUEUED': (9,), 'OTHER_ZONE': (8, 9), 'OTHER_PARTITION': (10,)}


class RulesTestCase(base.BaseTestCase):

    def test_reasons(self):
        for mine, expected in (True, MINE), (False, NOT_MINE):
            self.assertEqual(expected, {
                reason.name: reason.rules for reason in Reason
                if reason.mine is mine})

    def test_numbers_follow_each_other(self):
        self.assertEqual(list(range(1, len(ownership.RULES) + 1)),
                         list(ownership.RULES))

    def test_every_rule_has_a_reason_that_does_what_it_says(self):
        for number, rule in ownership.RULES.items():
            outcomes = {reason.mine for reason in Reason
                        if number in reason.rules}
            self.assertIn(rule.outcome.startswith('mine'), outcomes)

    def test_a_rule_that_takes_nothing_has_no_reason_that_does(self):
        for number, rule in ownership.RULES.items():
            if rule.outcome.startswith('not mine'):
                self.assertEqual({False}, {
                    reason.mine for reason in Reason
                    if number in reason.rules})
