# SPDX-License-Identifier: Apache-2.0

from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost.rules import aggregates
from nova_ironic_multihost.rules.peers import host_key

NOVAS = [f'nova-{number}' for number in range(4)]
FOREIGN = [f'foreign-{number}' for number in range(3)]
#: Hosts a, b and c run Ironic; nova may spell them in any case.
IRONIC = frozenset({'a', 'b', 'c'})
SPELLINGS = ['a', 'A', 'b', 'B', 'c']
ANYWHERE = [*SPELLINGS, 'libvirt']


@st.composite
def readings(draw):
    """What nova may answer: any of its aggregates with any hosts."""
    return tuple(
        aggregates.Aggregate.of(
            uuid, draw(st.frozensets(st.sampled_from(ANYWHERE))),
            draw(st.sampled_from([None, 'east', 'west'])))
        for uuid in draw(st.lists(st.sampled_from(NOVAS), unique=True)))


@st.composite
def experiences(draw):
    """What is known after some readings, not all of which succeeded."""
    seen = aggregates.KnownAggregates()
    for reading in draw(st.lists(st.none() | readings(), max_size=3)):
        seen = seen.after(reading)
    return seen


FOREIGN_SETS = st.frozensets(st.sampled_from(FOREIGN))
PROVIDERS = st.frozensets(st.sampled_from(NOVAS + FOREIGN))
HOSTS = st.sampled_from(SPELLINGS)


def aggregate(uuid, *hosts, zone=None):
    return aggregates.Aggregate.of(uuid, hosts, zone)


def known(*listed):
    return aggregates.KnownAggregates().after(listed)


def wanted(host, seen, current):
    return aggregates.wanted(host_key(host), seen, current, IRONIC)


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
        seen = aggregates.KnownAggregates().after(None)
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
            aggregates.KnownAggregates(),
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
        self.assertEqual({'a': 'east', 'b': 'west'}, aggregates.zones([
            aggregate('1', 'A', zone='east'), aggregate('2', 'b', zone='west'),
            aggregate('3', 'a', 'c'), aggregate('4', 'd', zone='')]))

    @given(readings(), st.randoms(use_true_random=False))
    def test_the_order_of_the_aggregates_does_not_matter(self, listed, rnd):
        shuffled = list(listed)
        rnd.shuffle(shuffled)
        self.assertEqual(aggregates.zones(listed), aggregates.zones(shuffled))

    def test_without_aggregates_there_are_no_zones(self):
        self.assertEqual(
            {}, aggregates.zones(aggregates.KnownAggregates().aggregates))
