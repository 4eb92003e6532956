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


from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost import aggregates

NOVAS = [f'nova-{number}' for number in range(4)]
FOREIGN = [f'foreign-{number}' for number in range(3)]
SPELLINGS = ['a', 'A', 'b', 'B', 'c']


@st.composite
def readings(draw):
    """What nova may answer: any of its aggregates with any hosts."""
    return tuple(
        aggregates.Aggregate(
            uuid, draw(st.frozensets(st.sampled_from(SPELLINGS))),
            draw(st.sampled_from([None, 'east', 'west'])))
        for uuid in draw(st.lists(st.sampled_from(NOVAS), unique=True)))


@st.composite
def experiences(draw):
    """What is known after some readings, not all of which succeeded."""
    known = aggregates.Known()
    for reading in draw(st.lists(st.none() | readings(), max_size=3)):
        known = known.after(reading)
    return known


FOREIGN_SETS = st.frozensets(st.sampled_from(FOREIGN))
PROVIDERS = st.frozensets(st.sampled_from(NOVAS + FOREIGN))
HOSTS = st.sampled_from(SPELLINGS)


def known(*listed):
    return aggregates.Known().after(listed)


class WantedTestCase(base.BaseTestCase):

    def test_every_aggregate_of_the_host(self):
        self.assertEqual({'rack', 'zone'}, aggregates.wanted('a', known(
            aggregates.Aggregate('rack', frozenset({'a'})),
            aggregates.Aggregate('zone', frozenset({'a', 'b'}), 'east'),
            aggregates.Aggregate('other', frozenset({'b'}))), []))

    def test_host_names_are_compared_in_lower_case(self):
        listed = known(aggregates.Aggregate('rack', frozenset({'Host-A'})))
        self.assertEqual({'rack'}, aggregates.wanted('hOST-a', listed, []))

    def test_one_that_the_host_left_goes(self):
        listed = known(aggregates.Aggregate('rack', frozenset({'b'})))
        self.assertEqual({'other'}, aggregates.wanted(
            'a', listed, ['rack', 'other']))

    def test_one_that_was_deleted_goes(self):
        seen = known(aggregates.Aggregate('rack', frozenset({'a'})))
        for reading in ((), (), None):
            seen = seen.after(reading)
            self.assertEqual({'other'}, aggregates.wanted(
                'a', seen, ['rack', 'other']))

    def test_one_that_was_deleted_and_came_back_is_novas_again(self):
        rack = aggregates.Aggregate('rack', frozenset({'a'}))
        seen = known(rack).after(()).after((rack,))
        self.assertEqual({'rack'}, aggregates.wanted('a', seen, []))
        self.assertEqual(frozenset(), aggregates.wanted('b', seen, ['rack']))

    def test_one_that_was_deleted_before_the_start_is_not_known_as_novas(self):
        self.assertEqual({'rack'}, aggregates.wanted('a', known(), ['rack']))

    def test_what_could_not_be_read_is_as_it_was(self):
        seen = known(aggregates.Aggregate('rack', frozenset({'a'})))
        self.assertEqual({'rack'}, aggregates.wanted(
            'a', seen.after(None), []))

    @given(HOSTS, PROVIDERS)
    def test_nothing_changes_while_nothing_is_known(self, host, provider):
        seen = aggregates.Known().after(None)
        self.assertEqual(provider, aggregates.wanted(host, seen, provider))

    @given(HOSTS, experiences(), PROVIDERS)
    def test_doing_it_again_changes_nothing(self, host, seen, provider):
        once = aggregates.wanted(host, seen, provider)
        self.assertEqual(once, aggregates.wanted(host, seen, once))

    @given(HOSTS, experiences(), PROVIDERS)
    def test_foreign_aggregates_are_never_touched(self, host, seen, provider):
        self.assertEqual(
            provider.intersection(FOREIGN),
            aggregates.wanted(host, seen, provider).intersection(FOREIGN))

    @given(HOSTS, HOSTS, experiences(), FOREIGN_SETS)
    def test_a_moved_node_has_exactly_what_a_new_one_would_have(
            self, old, new, seen, foreign):
        fresh = aggregates.wanted(new, seen, foreign)
        moved = aggregates.wanted(
            new, seen, aggregates.wanted(old, seen, foreign))
        self.assertEqual(fresh, moved)
        self.assertEqual(
            {aggregate.uuid for aggregate in seen.aggregates
             if new.lower() in map(str.lower, aggregate.hosts)},
            moved - foreign)

    @given(HOSTS, st.lists(readings(), max_size=4), FOREIGN_SETS)
    def test_whatever_was_set_before_only_the_last_reading_counts(
            self, host, listed, foreign):
        seen = aggregates.Known()
        provider = foreign
        for reading in listed:
            seen = seen.after(reading)
            provider = aggregates.wanted(host, seen, provider)
        self.assertEqual(
            aggregates.wanted(host, known(*(listed or [()])[-1]), foreign),
            provider)


class ZonesTestCase(base.BaseTestCase):

    def test_only_hosts_in_an_aggregate_with_a_zone(self):
        self.assertEqual({'a': 'east', 'b': 'west'}, aggregates.zones([
            aggregates.Aggregate('1', frozenset({'A'}), 'east'),
            aggregates.Aggregate('2', frozenset({'b'}), 'west'),
            aggregates.Aggregate('3', frozenset({'a', 'c'})),
            aggregates.Aggregate('4', frozenset({'d'}), '')]))

    @given(readings(), st.randoms(use_true_random=False))
    def test_the_order_of_the_aggregates_does_not_matter(self, listed, rnd):
        shuffled = list(listed)
        rnd.shuffle(shuffled)
        self.assertEqual(aggregates.zones(listed), aggregates.zones(shuffled))

    def test_without_aggregates_there_are_no_zones(self):
        self.assertEqual({}, aggregates.zones(aggregates.Known().aggregates))
