# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime
import random

from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.rules.views import view

HEARTBEATS = liveness.Heartbeats(interval=10, down_time=60)
START = datetime.datetime(2026, 1, 1)


class Looker:
    """The host "me" looks again and again."""

    def __init__(self, heartbeats=HEARTBEATS):
        self.heartbeats = heartbeats
        self.found = liveness.Outages()

    def look(self, services, now):
        """Return the others that are dead."""
        self.found = self.found.read(services, 'me', now, self.heartbeats)
        seen = self.judge(services)
        self.found = self.found.after(seen, now, self.heartbeats)
        return {host for host in seen.services
                if host != 'me' and not seen.live(host)}

    def judge(self, services):
        """Return the view of an audit, or a late check."""
        return peers.view(self.found.judged(services, 'me'),
                          peers.Partition(), 'me')


class OutagesTestCase(base.BaseTestCase):
    """For how long hosts are dead."""

    def lengths(self, *looks, now):
        """Return for how long hosts are down after some looks.

        :param looks: (time, what was seen)
        """
        found = liveness.Outages()
        for moment, seen in looks:
            found = found.after(seen, moment, HEARTBEATS)
        return found.lengths(now, HEARTBEATS)

    def test_from_the_first_of_looks_one_after_the_other(self):
        down = view(['me', 'a'], dead=['b'])
        self.assertEqual({'b': 100}, self.lengths(
            (0, view(['me', 'a', 'b'])), (10, down), (60, down), (110, down),
            now=110))

    def test_who_was_up_meanwhile_is_counted_anew(self):
        down = view(['me', 'a'], dead=['b'])
        self.assertEqual({'b': 10}, self.lengths(
            (0, down), (10, view(['me', 'a', 'b'])), (20, down), now=30))

    def test_one_that_nova_does_not_list_for_a_moment_is_still_down(self):
        down = view(['me', 'a'], dead=['b'])
        self.assertEqual({'b': 20}, self.lengths(
            (0, down), (10, view(['me', 'a'])), (20, down), now=20))

    def test_time_without_looks_counts_for_nothing(self):
        down = view(['me', 'a'], dead=['b'])
        looks = [(0, down), (10, down), *(
            (moment, down) for moment in range(1000, 1061, 10))]
        self.assertEqual({'b': 10 + HEARTBEATS.gap + 60}, self.lengths(
            *looks, now=1060))
        # Nor was anybody seen to be dead when the time comes to its end.
        self.assertEqual({}, self.lengths(*looks[:2], now=1000))
        self.assertEqual({}, self.lengths(now=1000))

    def test_nor_does_the_time_of_a_long_look(self):
        down = view(['me', 'a'], dead=['b'])
        found = liveness.Outages().after(down, 0, HEARTBEATS)
        self.assertFalse(found.overdue(50, HEARTBEATS))
        self.assertTrue(found.overdue(400, HEARTBEATS))
        found = found.polled(400, HEARTBEATS).after(down, 410, HEARTBEATS)
        self.assertEqual({'b': HEARTBEATS.gap + 10},
                         found.lengths(410, HEARTBEATS))
        self.assertEqual(liveness.Outages(), liveness.Outages().polled(
            5, HEARTBEATS))

    def test_who_is_down_on_purpose_does_not_count(self):
        seen = view(['me', 'a'], dead=['b', 'c'])
        off = dataclasses.replace(seen.services['c'], disabled=True)
        for service, expected in ((seen.services['c'], {}),
                                  (off, {'b': 10, 'c': 10})):
            looks = dataclasses.replace(
                seen, services={**seen.services, 'c': service})
            self.assertEqual(expected, self.lengths(
                (0, looks), (10, looks), now=10))

    def test_who_has_never_sent_a_heartbeat_does_not_count(self):
        """It is registered, and about to start or will never run."""
        for up, down, new, believed in (
                ('a', 'b', {'c': False, 'd': False}, True),
                ('', 'b', {'c': True}, False)):
            services = [service(host, 0, up=True) for host in ('me', *up)]
            services += [service(host, 0, up=False) for host in down]
            services += [service(host, None, up=state)
                         for host, state in new.items()]
            for stamped in True, False:
                seen = peers.view([
                    one if stamped else dataclasses.replace(one, beat=None)
                    for one in services], peers.Partition(), 'me')
                self.assertIs(believed is stamped,
                              liveness.may_trust_view(seen))

    def test_an_outage_of_all_counts_for_nothing(self):
        # Heartbeats cannot be written; then they come back one by one.
        nobody = view([], dead=['me', 'a', 'b', 'c'])
        me_only = view(['me'], dead=['a', 'b', 'c'])
        most = view(['me', 'a', 'b'], dead=['c'])
        looks = [(moment, nobody) for moment in range(0, 600, 10)]
        self.assertEqual({'c': 10}, self.lengths(
            (-10, view(['me', 'a', 'b', 'c'])), *looks, (600, me_only),
            (650, most), (660, most), now=660))


class World:
    """Hosts with heartbeats of their own; me looks every ten seconds or so.

    :ivar wrong: seconds by which the clock of me is wrong.
    :ivar wrote: (time, host) -> the heartbeat that has been written by then.
    """

    def __init__(self, seed):
        self.some = random.Random(seed)
        self.phases = {'me': self.some.uniform(0, 10), **{
            f'h{index}': self.some.uniform(0, 10)
            for index in range(self.some.randint(1, 7))}}
        self.event = self.some.uniform(200, 230)
        self.wrong = 0

    def sent(self, now, host):
        """Return the last heartbeat that a host has sent by then."""
        phase = self.phases[host]
        return phase + 10 * ((now - phase) // 10)

    def services(self, now, wrote):
        mine = now + self.wrong
        return [peers.ComputeService(
            host, up=abs(mine - beat) <= 60,
            beat=START + datetime.timedelta(seconds=beat))
            for host in self.phases for beat in [wrote(now, host)]]

    def looks(self, wrote, seconds=1000):
        """Look, and yield (time, the hosts that are dead)."""
        looker = Looker()
        for number in range(3, seconds // 10):
            now = number * 10 + self.some.uniform(0, 2)
            yield now, looker.look(
                self.services(now, wrote), now)


class DeadTestCase(base.BaseTestCase):
    """Who lives is not dead, whatever the clocks say; who dies is, in time."""

    EXAMPLES = 60

    def assertNobodyIsDead(self, world, wrote):
        for now, dead in world.looks(wrote):
            self.assertEqual(set(), dead, f'{now - world.event} s after')

    def test_who_dies_is_dead_as_soon_as_nova_calls_it_down(self):
        for seed in range(self.EXAMPLES):
            world = World(seed)

            def wrote(now, host, world=world):
                return world.sent(
                    min(now, world.event) if host == 'h0' else now, host)

            last = wrote(world.event, 'h0')
            for now, dead in world.looks(wrote):
                self.assertEqual({'h0'} if now - last > 60 else set(), dead)

    def test_clock_of_this_host_is_wrong(self):
        for seed in range(self.EXAMPLES):
            world = World(seed)
            world.wrong = world.some.choice([-58, -55, -51, 51, 55, 58, 600])
            self.assertNobodyIsDead(world, world.sent)

    def test_machine_of_this_host_was_paused(self):
        """Its clock is behind then, and its own heartbeat of before."""
        for seed in range(self.EXAMPLES):
            world = World(seed)
            pause = world.some.uniform(20, 1200)

            def wrote(now, host, world=world, pause=pause):
                sent = world.sent(
                    now + pause if host != 'me' and now > world.event
                    else now, host)
                return (sent + pause if host == 'me' and sent > world.event
                        else sent)

            self.assertNobodyIsDead(world, wrote)

    def test_nobody_can_write_a_heartbeat_for_a_while(self):
        for seed in range(self.EXAMPLES):
            world = World(seed)
            back = world.event + world.some.choice([
                world.some.uniform(30, 70), world.some.uniform(60, 600)])

            def wrote(now, host, world=world, back=back):
                sent = world.sent(now, host)
                return (world.sent(world.event, host)
                        if world.event < sent < back else sent)

            self.assertNobodyIsDead(world, wrote)

    def test_two_outages_one_after_the_other(self):
        """Some can write between them and after, and others cannot."""
        for seed in range(self.EXAMPLES):
            world = World(seed)
            outages_ = []
            begin = world.event
            for _ in range(2):
                end = begin + world.some.uniform(5, 42)
                outages_.append((begin, end))
                begin = end + world.some.uniform(1, 9)

            def wrote(now, host, world=world, outages_=outages_):
                sent = world.sent(now, host)
                while any(begin < sent < end for begin, end in outages_):
                    sent -= 10
                return sent

            self.assertNobodyIsDead(world, wrote)

    def test_two_outages_in_which_a_poll_is_missed_or_late(self):
        """The own heartbeats of the time without a poll are not known."""
        def beat(now, phase):
            sent = phase + 10 * ((now - phase) // 10)
            while 9 < sent < 33 or 36 < sent < 61:
                sent -= 10
            return sent

        polls = [10 * number + 5.5 for number in range(-8, 12)]
        for index, missed in enumerate(polls):
            for late in None, 3, 9:
                times = sorted([*polls[:index], *polls[index + 1:], *(
                    () if late is None else [missed + late])])
                looker = Looker()
                for now in times:
                    self.assertEqual(set(), looker.look([
                        service('me', beat(now, 5), now=now),
                        service('h0', beat(now, 0), now=now)], now),
                        f'poll {missed} is {late} s late')

    def test_clock_of_the_conductor_steps(self):
        for seed in range(self.EXAMPLES):
            world = World(seed)
            step = world.some.choice([-600, -90, -61, 30, 61, 90, 600])

            def wrote(now, host, world=world, step=step):
                sent = world.sent(now, host)
                return sent + step if sent > world.event else sent

            self.assertNobodyIsDead(world, wrote)

    def test_clocks_of_conductors_differ(self):
        """Each heartbeat goes to any of them, some late."""
        for seed in range(self.EXAMPLES):
            world = World(seed)
            some = random.Random(seed)
            clocks, sent = [-55, 0, 30], {}

            def wrote(now, host, world=world, some=some, clocks=clocks,
                      sent=sent):
                beat = world.sent(now, host)
                late, ahead = sent.setdefault(
                    (host, beat), (some.uniform(0, 9), some.choice(clocks)))
                if beat + late > now:
                    beat -= 10
                    _, ahead = sent.setdefault(
                        (host, beat), (0, some.choice(clocks)))
                return beat + ahead

            self.assertNobodyIsDead(world, wrote)


def service(host, beat, up=None, now=None, **state):
    """Return a service with a heartbeat of that second, None if it has none.

    :param now: what the clock of this host says.
    """
    return peers.ComputeService(
        host, up=now - beat <= 60 if up is None else up,
        beat=None if beat is None
        else START + datetime.timedelta(seconds=beat), **state)


class EvidenceTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.looker = Looker()

    def look(self, now, mine=None, **beats):
        """Look; return the others that are dead.

        :param mine: my last heartbeat, if it is not of this moment.
        """
        self.services = [
            service('me', now if mine is None else mine, now=now),
            *(service(host, beat, now=now) for host, beat in beats.items())]
        return self.looker.look(self.services, now)

    def judge(self, now, **beats):
        return {host for host in beats if not self.looker.judge([
            service('me', now, now=now),
            *(service(host, beat, now=now) for host, beat in beats.items())
        ]).live(host)}

    def die(self, until=70):
        """a dies."""
        for now in range(0, until, 10):
            self.look(now, a=0, b=now)

    def test_who_is_silent_when_this_host_starts_may_be_starting(self):
        for now in range(1000, 1060, 10):
            self.assertEqual(set(), self.look(now, a=0))
        self.assertEqual({'a'}, self.look(1060, a=0))

    def test_audits_and_late_checks_go_by_what_looks_have_seen(self):
        self.die()
        self.assertEqual(set(), self.judge(69, a=0, b=60))
        self.look(70, a=0, b=70)
        self.assertEqual({'a'}, self.judge(75, a=0, b=70))
        # It has sent one meanwhile.
        self.assertEqual(set(), self.judge(400, a=72))

    def test_who_is_dead_stays_dead_in_an_outage(self):
        self.die(until=80)
        for now, mine in (150, 70), (400, 70), (410, 410):
            self.assertLessEqual({'a'}, self.look(now, mine=mine, a=0, b=70))
        self.assertEqual({'a'}, self.look(420, a=0, b=415))
        self.assertEqual(set(), self.look(430, a=425, b=425))

    def test_nobody_is_dead_right_after_a_pause_of_this_host(self):
        self.die(until=30)
        for now in range(90, 150, 10):
            self.assertEqual(set(), self.look(now, a=0, b=now))
        self.assertEqual({'a'}, self.look(150, a=0, b=150))

    def test_stamps_of_conductors_with_other_clocks(self):
        """Those of me go ahead, and the last one of a was behind."""
        for now in range(0, 60, 10):
            self.look(now, a=now)
        self.assertEqual(set(), self.look(60, a=58 - 55))
        for now, mine in (70, 100), (80, 110), (90, 90):
            self.assertEqual(set(), self.look(now, mine=mine, a=58 - 55))
        self.look(100, a=98)
        self.assertEqual(set(), self.judge(100, a=98))

    def test_pause_is_told(self):
        self.look(0, a=0)
        self.look(10, a=0)
        self.assertFalse(self.looker.found.paused)
        self.look(60, a=60)
        self.assertTrue(self.looker.found.paused)
        self.look(70, a=60)
        self.assertFalse(self.looker.found.paused)
        self.look(140, mine=70, a=140)
        self.assertTrue(self.looker.found.paused)

    def test_the_first_heartbeat_ends_no_pause(self):
        self.looker.look([], 0)
        self.look(70, mine=0, a=60)
        self.assertFalse(self.looker.found.paused)
        self.look(80, a=60)
        self.assertFalse(self.looker.found.paused)

    def test_the_word_of_an_operator_counts_at_once(self):
        self.assertEqual({'a'}, self.looker.look([
            service('me', 5, now=5),
            service('a', 5, up=False, forced_down=True)], 5))

    def test_this_host_goes_by_novas_word(self):
        self.assertFalse(self.looker.judge(
            [service('me', 0, up=False)]).member('me'))

    def test_who_has_sent_a_heartbeat_between_two_looks_is_alive(self):
        """It was up while nobody looked; or a clock is wrong."""
        self.die(until=80)
        self.assertEqual({'a': 0}, self.lengths(70))
        self.assertEqual(set(), self.look(80, a=1, b=80))
        self.assertEqual({}, self.lengths(80))

    def lengths(self, now):
        return self.looker.found.lengths(now, HEARTBEATS)


class WithoutStampsTestCase(base.BaseTestCase):
    """servicegroup_driver = mc: nova's word counts."""

    def setUp(self):
        super().setUp()
        self.looker = Looker()

    def look(self, now, me=True, **up):
        return self.looker.look(
            [service(host, None, up=state)
             for host, state in {'me': me, **up}.items()], now)

    def test_who_was_up_is_dead_as_soon_as_nova_says_so(self):
        self.assertEqual(set(), self.look(0, a=True))
        self.assertEqual({'a'}, self.look(10, a=False))
        self.assertEqual(set(), self.look(20, a=True))
        # As long as nobody looks.
        self.looker = Looker()
        self.assertFalse(self.looker.judge(
            [service('a', None, up=False)]).live('a'))

    def test_the_first_one_back_waits_for_the_others(self):
        self.look(0, a=True)
        for now in 10, 20:
            self.look(now, me=False, a=False)
        for now in range(30, 90, 10):
            self.assertEqual(set(), self.look(now, a=False))
        self.assertEqual({'a'}, self.look(90, a=False))

    def test_the_same_if_nobody_could_look(self):
        self.look(0, a=True)
        for now in range(500, 560, 10):
            self.assertEqual(set(), self.look(now, a=False))
        self.assertEqual({'a'}, self.look(560, a=False))


class HeartbeatsTestCase(base.BaseTestCase):

    def test_looks_may_be_as_far_apart_as_they_are(self):
        for interval, down_time, gap in (
                (10, 60, 50), (9, 10, 18), (3, 15, 12), (30, 60, 30),
                (120, 300, 180)):
            self.assertEqual(gap, liveness.Heartbeats(interval, down_time).gap)

    def test_looks_are_as_often_as_heartbeats_within_bounds(self):
        self.assertEqual([1, 3, 10, 10], [
            liveness.Heartbeats(interval).period
            for interval in (0, 3, 10, 60)])

    def test_time_without_a_new_heartbeat(self):
        """A death is not noticed later for it."""
        for interval, down_time, quiet in (
                (10, 60, 40), (2, 8, 4), (60, 300, 180),
                # Longer than from one heartbeat that a look sees to the next.
                (30, 60, 40), (60, 150, 70),
                # Not longer than until nova calls it down.
                (10, 11, 1), (600, 601, 591)):
            self.assertEqual(
                quiet, liveness.Heartbeats(interval, down_time).quiet)

    def test_pause_of_heartbeats_that_is_no_outage(self):
        """Looks see every second one at least."""
        for interval, down_time, pause in (
                (10, 60, 40), (2, 8, 5), (30, 60, 75)):
            self.assertEqual(
                pause, liveness.Heartbeats(interval, down_time).pause)


MOMENT = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
WORDS = liveness.stop_marker_text(MOMENT)
LATER = liveness.stop_marker_text(MOMENT + datetime.timedelta(seconds=1))


def marked_view(host='me', over=(), **services):
    """Return what a host sees of others.

    :param services: host -> its stop marker; None for one that is down.
    """
    return peers.view(
        [peers.ComputeService(name, words is not None,
                              stop_marker=words or '')
         for name, words in services.items()],
        peers.Partition(), host, over=over)


class WordsTestCase(base.BaseTestCase):

    def test_an_operator_reads_since_when_and_what_to_do(self):
        self.assertIn('2026-05-04T03:02:01Z', WORDS)
        self.assertIn('start enables it again', WORDS)
        self.assertIn('reason of your own', WORDS)
        # The column of nova.
        self.assertLessEqual(len(WORDS), 255)

    @given(st.datetimes(datetime.datetime(1970, 1, 1),
                        datetime.datetime(9999, 1, 1)))
    def test_it_is_known_again(self, moment):
        moment = moment.replace(microsecond=0, tzinfo=datetime.UTC)
        words = liveness.stop_marker_text(moment)
        self.assertEqual(words, liveness.find_stop_marker(words))
        self.assertEqual(moment, liveness.stop_marker_time(words))

    def test_what_an_operator_says_is_none(self):
        for reason in (None, '', 'broken fan', f'was: {WORDS}',
                       'nova-ironic-multihost'):
            self.assertEqual('', liveness.find_stop_marker(reason))

    def test_words_of_another_release(self):
        words = WORDS.replace('Its next start', 'Whoever starts it')
        self.assertEqual(words, liveness.find_stop_marker(words))
        self.assertIsNone(liveness.stop_marker_time(words))


class MayCloseTestCase(base.BaseTestCase):

    def may_close(self, zones=None, **services):
        seen = marked_view(**{'me': '', **services})
        return liveness.may_close(
            seen, {**dict.fromkeys(seen.services), **(zones or {})})

    def test_not_without_a_known_zone(self):
        seen = marked_view(me='', a='', b='')
        for known in ('a', 'b'), ('me',), ():
            self.assertFalse(liveness.may_close(seen, dict.fromkeys(known)))

    def test_one_of_several(self):
        self.assertTrue(self.may_close(a=''))
        self.assertTrue(self.may_close(a='', b='', c=''))

    def test_not_the_only_one(self):
        self.assertFalse(self.may_close())
        self.assertFalse(self.may_close(a=None, b=None))

    def test_not_when_all_are_restarted_together(self):
        self.assertFalse(self.may_close(a=WORDS, b=WORDS))
        self.assertFalse(self.may_close(a=WORDS, b=''))
        self.assertTrue(self.may_close(a=WORDS, b='', c=''))

    def test_not_the_only_one_of_a_zone(self):
        self.assertFalse(self.may_close({'me': 'east'}, a='', b=''))
        self.assertFalse(self.may_close({'a': 'east', 'b': 'east'}, a='',
                                        b=''))
        self.assertTrue(self.may_close({'me': 'east', 'b': 'east'}, a='',
                                       b=''))

    @given(st.lists(st.sampled_from(range(8)), unique=True), st.data())
    def test_half_stay_open_in_whatever_order_they_say_it(self, order, data):
        """Each writes, then reads; a write and a read are moments."""
        said, closed = set(), set()
        moments = [host for host in order for _ in range(2)]
        for host in data.draw(st.permutations(moments)):
            if host not in said:
                said.add(host)
                closed.add(host)
                continue
            seen = marked_view(f'h{host}', **{
                f'h{other}': WORDS if other in said else ''
                for other in range(8)})
            if not liveness.may_close(seen, dict.fromkeys(seen.services)):
                closed.discard(host)
        self.assertLessEqual(len(closed), 4)


class FarewellsTestCase(base.BaseTestCase):

    def after(self, *looks):
        """Return the stop markers after some looks: (time, what was seen)."""
        found = liveness.StopMarkers()
        for moment, seen in looks:
            found = found.after(seen, moment)
        return found

    def test_from_the_first_look_that_hears_it(self):
        found = self.after((0, marked_view(a='')), (10, marked_view(a=WORDS)),
                           (20, marked_view(a=WORDS)))
        self.assertEqual(set(), found.over(69, 60))
        self.assertEqual({('a', WORDS)}, found.over(70, 60))

    def test_who_came_back_and_goes_again_has_its_time_anew(self):
        back = (marked_view(a=''), marked_view(a=None), marked_view())
        for between in back:
            found = self.after((0, marked_view(a=WORDS)), (10, between),
                               (20, marked_view(a=LATER)))
            self.assertEqual(set(), found.over(79, 60))
            self.assertEqual({('a', LATER)}, found.over(80, 60))
        # Nobody has looked meanwhile.
        found = self.after(
            (0, marked_view(a=WORDS)), (20, marked_view(a=LATER)))
        self.assertEqual({('a', LATER)}, found.over(80, 60))
        self.assertEqual(set(), found.over(79, 60))

    def test_my_own_is_no_news(self):
        self.assertEqual(
            set(), self.after((0, marked_view(me=WORDS))).over(100, 60))

    def test_when_the_next_one_is_over(self):
        found = self.after((0, marked_view(a=WORDS)),
                           (30, marked_view(a=WORDS, b=WORDS)))
        self.assertEqual([20, 30, None], [
            found.next_over(now, 60) for now in (40, 60, 90)])
