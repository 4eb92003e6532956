# SPDX-License-Identifier: Apache-2.0

import datetime

from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key

ANYWHERE = peers.Partition()


def up(*hosts, **state):
    return [peers.ComputeService(host=host, up=True, **state)
            for host in hosts]


def down(*hosts, **state):
    return [peers.ComputeService(host=host, up=False, **state)
            for host in hosts]


def members(services, host, partition=ANYWHERE, **how):
    return peers.view(services, partition, host, **how).members


class MembersTestCase(base.BaseTestCase):

    def test_alone_when_nova_knows_no_other(self):
        self.assertEqual({'a'}, members([], 'a'))

    def test_new_host_is_a_member_before_nova_lists_it(self):
        self.assertEqual({'a', 'b', 'new'}, members(
            up('a', 'b'), 'new', starting=True))

    def test_host_whose_service_was_deleted_is_no_member(self):
        self.assertEqual({'a', 'b'}, members(up('a', 'b'), 'gone'))

    def test_hosts_that_are_down_or_disabled_are_no_members(self):
        self.assertEqual({'a', 'b'}, members(
            up('a', 'b') + down('c') + up('d', disabled=True), 'a'))

    def test_i_am_judged_as_others_are(self):
        for me in (down('me'), up('me', disabled=True),
                   down('me', forced_down=True)):
            self.assertEqual({'a'}, members(up('a') + me, 'me'))

    def test_heartbeat_is_not_expected_of_a_service_that_starts(self):
        self.assertEqual({'a', 'me'}, members(
            up('a') + down('me'), 'me', starting=True))
        for me in (down('me', disabled=True), down('me', forced_down=True)):
            self.assertEqual({'a'}, members(
                up('a') + me, 'me', starting=True))

    def test_who_was_told_to_end_is_a_member_until_its_time_is_over(self):
        services = up('a') + up('b', 'c', stop_marker='bye')
        self.assertEqual({'a', 'b', 'c'}, members(services, 'a'))
        for over in ({('b', 'bye')}, {('b', 'bye'), ('c', 'see you')}):
            self.assertEqual({'a', 'c'}, members(services, 'a', over=over))
        view = peers.view(services, ANYWHERE, 'a', over={('b', 'bye')})
        self.assertTrue(view.gone('b'))
        self.assertTrue(view.live('b'))
        self.assertFalse(view.gone('a'))
        self.assertFalse(view.gone('unknown'))

    def test_who_came_back_is_a_member_at_once(self):
        self.assertEqual({'a', 'b'}, members(
            up('a', 'b'), 'a', over={('b', 'bye')}))

    def test_service_that_is_not_known_to_run_ironic_is_no_member(self):
        self.assertEqual({'a'}, members(
            up('a') + up('libvirt', ironic=False), 'a'))

    def test_one_host_in_two_spellings_is_one_member(self):
        self.assertEqual({'host1', 'host2'}, members(
            up('Host1', 'HOST2'), 'hOst1'))

    def test_of_two_spellings_the_one_that_is_up_counts(self):
        for services in (up('host2') + down('Host2'),
                         down('Host2') + up('host2')):
            self.assertEqual({'host1', 'host2'}, members(
                up('host1') + services, 'host1'))

    def test_of_two_spellings_the_fenced_one_was_at_work(self):
        """The other one has no heartbeat, or an older one.

        For a while after a start none with a heartbeat is taken for dead.
        """
        moment = datetime.datetime(2026, 1, 1)
        [new] = down('host2', forced_down=True, beat=moment)
        before = moment - datetime.timedelta(1)
        for [old] in (down('Host2'), down('Host2', beat=before),
                      up('Host2', beat=before)):
            for services in (new, old), (old, new):
                self.assertTrue(peers.view(
                    services, ANYWHERE, 'host1').fenced('host2'))

    def test_peer_list_limits_members_of_a_group_or_shard(self):
        for limits in ({'conductor_group': 'rack1'}, {'shard': 's1'},
                       {'conductor_group': ''}):
            partition = peers.Partition(peer_list=('a', 'B'), **limits)
            self.assertEqual({'a', 'b'}, members(
                up('a', 'b', 'c'), 'a', partition))

    def test_group_or_shard_without_peer_list_has_one_member(self):
        for limits in ({'conductor_group': 'rack1'}, {'shard': 's1'}):
            self.assertEqual({'a'}, members(
                up('a', 'b'), 'A', peers.Partition(**limits)))

    def test_peer_list_means_nothing_without_a_group_or_shard(self):
        self.assertEqual({'a', 'b'}, members(
            up('a', 'b'), 'a', peers.Partition(peer_list=('a',))))

    def test_who_serves_another_partition_is_no_member(self):
        view = peers.view(
            up('a', 'b'), ANYWHERE, 'a', other_partition_hosts={'b'})
        self.assertEqual({'a'}, view.members)
        self.assertTrue(view.live('b'))
        self.assertFalse(view.peer('b'))

    @given(st.lists(st.builds(
        peers.ComputeService, host=st.sampled_from('aBcD'),
        up=st.booleans(), disabled=st.booleans()),
        unique_by=lambda service: service.host),
        st.sampled_from(['a', 'B', 'new']), st.sampled_from(['c', 'D']))
    def test_two_hosts_with_one_view_see_the_same_members(
            self, services, one, other):
        both = {one.lower(), other.lower()}
        known = {service.host.lower() for service in services}
        if both <= known:
            self.assertEqual(members(services, one),
                             members(services, other))


class ViewTestCase(base.BaseTestCase):

    def test_live_is_who_is_up_disabled_or_not(self):
        view = peers.view(
            up('a') + up('b', disabled=True) + down('c'), ANYWHERE, 'a')
        self.assertEqual(
            [True, True, False, False],
            [view.live(host) for host in ('a', 'b', 'c', 'gone')])


class PartitionTestCase(base.BaseTestCase):

    partitions = (
        ANYWHERE, peers.Partition(conductor_group=''),
        peers.Partition(conductor_group='a=b&c'),
        peers.Partition(shard='s1'),
        peers.Partition(conductor_group='g', shard='s1'))

    def test_label_says_it_all(self):
        labels = set()
        for partition in self.partitions:
            labels.add(partition.label)
            self.assertEqual(
                partition, peers.Partition.from_label(partition.label))
        self.assertEqual(len(self.partitions), len(labels))
        self.assertEqual('', ANYWHERE.label)

    def test_ironic_has_no_group_in_upper_case(self):
        self.assertEqual(
            peers.Partition(conductor_group='g', shard='S'),
            peers.Partition.from_label('conductor_group=G&shard=S'))
        self.assertEqual('conductor_group=g&shard=S', peers.same_label(
            'conductor_group=G&shard=S'))
        for partition in self.partitions:
            self.assertEqual(
                partition.label, peers.same_label(partition.label))

    def test_peers_are_no_part_of_the_label(self):
        self.assertEqual(
            peers.Partition(shard='s1').label,
            peers.Partition(shard='s1', peer_list=('a',)).label)

    def test_partitions_that_have_no_node_in_common(self):
        group, shard = (peers.Partition(conductor_group='g'),
                        peers.Partition(shard='s1'))
        other = peers.Partition(shard='s2')
        self.assertTrue(shard.excludes(other))
        self.assertTrue(other.excludes(shard))
        for overlapping in (ANYWHERE, group, shard):
            self.assertFalse(shard.excludes(overlapping))
            self.assertFalse(overlapping.excludes(shard))


class SpellingsTestCase(base.BaseTestCase):

    def test_former_names_come_after_the_present_one(self):
        self.assertEqual(('host1', 'HOST1', 'Host1'), peers.spellings(
            up('Host1', 'host1', 'HOST1', 'host2'), 'host1'))

    def test_host_that_nova_does_not_know(self):
        self.assertEqual(('new',), peers.spellings(up('a'), 'new'))


NOVAS = [f'nova-{number}' for number in range(4)]
FOREIGN = [f'foreign-{number}' for number in range(3)]
#: Hosts a, b and c run Ironic; nova may spell them in any case.
IRONIC = frozenset({'a', 'b', 'c'})
SPELLINGS = ['a', 'A', 'b', 'B', 'c']
EVERY_HOST = [*SPELLINGS, 'libvirt']


@st.composite
def readings(draw):
    """What nova may answer: any of its aggregates with any hosts."""
    return tuple(
        peers.Aggregate.of(
            uuid, draw(st.frozensets(st.sampled_from(EVERY_HOST))),
            draw(st.sampled_from([None, 'east', 'west'])))
        for uuid in draw(st.lists(st.sampled_from(NOVAS), unique=True)))


@st.composite
def experiences(draw):
    """What is known after some readings, not all of which succeeded."""
    seen = peers.KnownAggregates()
    for reading in draw(st.lists(st.none() | readings(), max_size=3)):
        seen = seen.after(reading)
    return seen


FOREIGN_SETS = st.frozensets(st.sampled_from(FOREIGN))
PROVIDERS = st.frozensets(st.sampled_from(NOVAS + FOREIGN))
HOSTS = st.sampled_from(SPELLINGS)


def aggregate(uuid, *hosts, zone=None):
    return peers.Aggregate.of(uuid, hosts, zone)


def known(*listed):
    return peers.KnownAggregates().after(listed)


def wanted(host, seen, current):
    return peers.wanted_aggregates(host_key(host), seen, current, IRONIC)


class WantedTestCase(base.BaseTestCase):

    def test_every_aggregate_of_the_host(self):
        self.assertEqual({'rack', 'zone'}, wanted('a', known(
            aggregate('rack', 'a'), aggregate('zone', 'a', 'b', zone='east'),
            aggregate('other', 'b')), []))

    def test_host_names_are_compared_in_lower_case(self):
        seen = known(aggregate('rack', 'Host-A'))
        self.assertEqual({'rack'}, wanted('hOST-a', seen, []))

    def test_one_that_the_host_left_goes(self):
        seen = known(aggregate('rack', 'a')).after((aggregate('rack'),))
        self.assertEqual({'other'}, wanted('a', seen, ['rack', 'other']))

    def test_one_that_another_host_may_have_brought_goes(self):
        seen = known(aggregate('rack', 'B'))
        self.assertEqual({'other'}, wanted('a', seen, ['rack', 'other']))

    def test_one_that_the_former_owner_left_goes(self):
        seen = known(aggregate('rack', 'b')).after((aggregate('rack'),))
        self.assertEqual(frozenset(), wanted('a', seen, ['rack']))

    def test_one_of_this_host_goes_even_if_nova_does_not_list_the_host(self):
        seen = known(aggregate('rack', 'new')).after((aggregate('rack'),))
        self.assertEqual(frozenset(), wanted('new', seen, ['rack']))

    def test_one_that_was_deleted_goes(self):
        seen = known(aggregate('rack', 'a'))
        for reading in ((), (), None):
            seen = seen.after(reading)
            self.assertEqual({'other'}, wanted('a', seen, ['rack', 'other']))

    def test_one_that_was_deleted_and_came_back_is_novas_again(self):
        rack = aggregate('rack', 'a')
        seen = known(rack).after(()).after((rack,))
        self.assertEqual({'rack'}, wanted('a', seen, []))
        self.assertEqual(frozenset(), wanted('b', seen, ['rack']))

    def test_one_that_was_deleted_before_the_start_stays(self):
        self.assertEqual({'rack'}, wanted('a', known(), ['rack']))

    def test_one_that_no_ironic_host_is_in_is_for_operators_to_set(self):
        seen = known(aggregate('east', zone='east'),
                     aggregate('west', 'libvirt', zone='west'))
        self.assertEqual({'east'}, wanted('a', seen, ['east']))
        self.assertEqual({'west'}, wanted('a', seen, ['west']))

    def test_what_could_not_be_read_is_as_it_was(self):
        seen = known(aggregate('rack', 'a'))
        self.assertEqual({'rack'}, wanted('a', seen.after(None), []))

    @given(HOSTS, PROVIDERS)
    def test_nothing_changes_while_nothing_is_known(self, host, provider):
        seen = peers.KnownAggregates().after(None)
        self.assertEqual(provider, wanted(host, seen, provider))

    @given(HOSTS, experiences(), PROVIDERS)
    def test_doing_it_again_changes_nothing(self, host, seen, provider):
        once = wanted(host, seen, provider)
        self.assertEqual(once, wanted(host, seen, once))

    @given(HOSTS, experiences(), PROVIDERS)
    def test_foreign_aggregates_are_never_touched(self, host, seen, provider):
        self.assertEqual(
            provider.intersection(FOREIGN),
            wanted(host, seen, provider).intersection(FOREIGN))

    @given(HOSTS, HOSTS, experiences(), FOREIGN_SETS)
    def test_a_moved_node_has_exactly_what_a_new_one_would_have(
            self, old, new, seen, foreign):
        moved = wanted(new, seen, wanted(old, seen, foreign))
        self.assertEqual(wanted(new, seen, foreign), moved)
        self.assertEqual(
            {listed.uuid for listed in seen.aggregates
             if new.lower() in listed.hosts}, moved - foreign)

    @given(st.lists(st.tuples(HOSTS, st.none() | readings()), max_size=5),
           FOREIGN_SETS)
    def test_only_the_last_owner_and_the_last_reading_count(
            self, audits, foreign):
        seen, current, provider, host = (
            peers.KnownAggregates(),
            (),
            foreign,
            'a',
        )
        for host, reading in audits:
            seen = seen.after(reading)
            current = current if reading is None else reading
            provider = wanted(host, seen, provider)
        self.assertEqual(wanted(host, known(*current), foreign), provider)


class ZonesTestCase(base.BaseTestCase):

    def test_only_hosts_in_an_aggregate_with_a_zone(self):
        self.assertEqual({'a': 'east', 'b': 'west'}, peers.host_zones([
            aggregate('1', 'A', zone='east'), aggregate('2', 'b', zone='west'),
            aggregate('3', 'a', 'c'), aggregate('4', 'd', zone='')]))

    @given(readings(), st.randoms(use_true_random=False))
    def test_the_order_of_the_aggregates_does_not_matter(self, listed, rnd):
        shuffled = list(listed)
        rnd.shuffle(shuffled)
        self.assertEqual(peers.host_zones(listed), peers.host_zones(shuffled))

    def test_without_aggregates_there_are_no_zones(self):
        self.assertEqual(
            {}, peers.host_zones(peers.KnownAggregates().aggregates))
