# SPDX-License-Identifier: Apache-2.0

"""Collects what probes and reports show of this compute service."""

import pathlib
import threading
from unittest import mock

from oslotest import base

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.base import metrics
from nova_ironic_multihost.engine import lifecycle
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine import cloud

NODES = cloud.NODES

BOUNDS = health.bounds(60, 10, 60)


def in_thread(act):
    """Have something done in another thread, and wait for that."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


class WitnessTestCase(cloud.AuditTestCase):
    """a and b share the nodes; a is seen from outside."""

    ending, listening = False, True

    def setUp(self):
        super().setUp()
        self.recorder = metrics.Metrics(self.clock)
        self.auditors['a'] = self.new_auditor()
        self.auditors['a']._recorder = self.recorder
        self.auditors['a']._reader._recorder = self.recorder
        self.look = peer_poll.PeerPoller(
            self.auditors['a'], cloud.Tracker(), lambda audit, mine: None,
            self.clock, recorder=self.recorder)
        self.health_probe = lifecycle.HealthProbe(
            'A', self.auditors['a'], self.look, self.recorder, lambda: BOUNDS,
            lambda: self.ending, lambda: self.listening, self.clock)

    def look_once(self):
        return self.look.once(audit_state.Settings('a', points=32))

    def counts(self):
        return self.recorder.counts

    def turns(self, work):
        return self.recorder.turns[work]

    def start(self):
        self.audit()
        self.look_once()
        self.health_probe.note_start()

    def verdict(self, **later):
        self.clock.now += later.get('seconds', 0)
        return self.health_probe.verdict()

    def test_nothing_is_known_before_the_first_audit(self):
        found = self.health_probe.picture()
        self.assertIsNone(found.view)
        self.assertIsNone(found.reasons)
        self.assertFalse(found.braked)
        self.assertTrue(self.verdict().well)

    def test_picture_is_of_the_last_audit_and_the_last_look(self):
        self.start()
        self.assertEqual({'a', 'b'}, self.health_probe.picture().view.members)
        self.cloud.set('b', up=False)
        self.look_once()
        found = self.health_probe.picture()
        self.assertEqual('A', found.host)
        self.assertEqual({'a'}, found.view.members)
        self.assertEqual(set(NODES), set(found.reasons))
        self.assertEqual(self.clock.now, found.at)

    def test_brake(self):
        self.settle('a')
        for node in NODES[1:]:
            self.cloud.owners[node] = 'a'
            del self.cloud.ironic[node]
        self.audit()
        self.audit()
        found = self.health_probe.picture()
        self.assertTrue(found.braked)
        self.assertEqual(len(NODES) - 1, found.missing)

    def test_audits_are_timed_with_what_they_ask_ironic(self):
        self.audit()
        for work in Work.AUDIT, Work.LISTING:
            self.assertIsNotNone(self.turns(work).succeeded)
        before = self.turns(Work.AUDIT).succeeded
        self.clock.now += 100
        with mock.patch.object(self.cloud, 'services', side_effect=OSError):
            self.assertRaises(OSError, self.audit)
        self.assertEqual(before, self.turns(Work.AUDIT).succeeded)
        self.assertEqual(self.clock.now, self.turns(Work.AUDIT).ended)

    def test_what_a_look_reads_of_ironic_is_no_listing(self):
        self.audit()
        before = self.turns(Work.LISTING)
        self.clock.now += 10
        self.auditors['a'].read(audit_state.Settings('a'), brief=True)
        self.assertEqual(before, self.turns(Work.LISTING))

    def test_looks_that_fail_are_counted(self):
        self.audit()
        self.look_once()
        self.assertEqual(0, self.counts()[Event.PEER_POLL_FAILED])
        with mock.patch.object(self.cloud, 'services', side_effect=OSError):
            self.assertRaises(OSError, self.look_once)
        self.assertEqual(1, self.counts()[Event.PEER_POLL_FAILED])

    def test_instances_that_wait_to_be_taken_over_are_pending(self):
        self.options['policy'] = takeover.Policy(takeover.FORCED_DOWN)
        for node in NODES[:3]:
            self.cloud.ironic[node] = f'i of {node}'
            self.cloud.placed[f'i of {node}'] = cloud.instance('b', node)
            self.cloud.owners[node] = 'b'
        self.settle('a')
        self.cloud.set('b', up=False, forced_down=True)
        self.audit(takeovers_per_audit=1)
        waits = {node for node, reason
                 in self.auditors['a'].last.reasons.items()
                 if reason is Reason.INSTANCE_WAITS}
        self.assertEqual(2, len(waits))
        self.assertEqual(
            waits, self.recorder.pending[Pending.TURN].keys())
        self.clock.now += 7
        self.assertEqual(7, self.health_probe.picture().pending_seconds)
        self.audit(takeovers_per_audit=1)
        self.audit_hosts('a', 'b')
        self.assertEqual(0, self.health_probe.picture().pending_seconds)

    def test_instance_that_cannot_be_taken_over_is_pending(self):
        self.options['policy'] = takeover.Policy(takeover.FORCED_DOWN)
        node = NODES[0]
        self.cloud.ironic[node] = 'i'
        self.cloud.placed['i'] = cloud.instance('b', node)
        self.cloud.owners[node] = 'b'
        self.settle('a')
        self.cloud.set('b', up=False, forced_down=True)
        with mock.patch.object(self.cloud, 'take_one', return_value=False):
            self.audit()
            self.clock.now += 7
            self.audit_hosts('a', 'b')
            self.audit()
        self.assertEqual(7, self.health_probe.picture().pending_seconds)
        self.audit()
        self.assertEqual(0, self.health_probe.picture().pending_seconds)

    def test_start_is_noted_once(self):
        self.start()
        self.clock.now += 2000
        self.health_probe.note_start()
        self.assertFalse(self.verdict().well)

    def test_audit_that_hangs(self):
        self.start()
        hangs, goes_on = threading.Event(), threading.Event()
        self.addCleanup(goes_on.set)

        def wait(nodes):
            hangs.set()
            goes_on.wait(60)
            return []

        self.cloud.set('b', up=False)
        with mock.patch.object(self.cloud, 'mapped', wait), \
                mock.patch.object(self.cloud, 'aggregates',
                                  lambda: wait(())):
            thread = threading.Thread(target=self.audit)
            thread.start()
            self.assertTrue(hangs.wait(60))
            # It holds the auditor's lock, which nobody here waits for.
            self.clock.now += BOUNDS.audit + 1
            self.recorder.sign(Work.PEER_POLL)
            with self.recorder.turn(Work.SERVICES):
                pass
            verdict = self.verdict()
            goes_on.set()
            thread.join(60)
        self.assertFalse(verdict.well)
        self.assertIn('no audit', verdict.why)
        self.assertTrue(self.verdict().well)

    def test_peer_polls_that_are_dead(self):
        self.start()
        self.clock.now += BOUNDS.peer_poll + 1
        self.audit()
        self.assertIn('no peer poll', self.verdict().why)
        self.look_once()
        self.assertTrue(self.verdict().well)

    def test_conductor_that_is_silent(self):
        self.start()
        with mock.patch.object(self.cloud, 'services', side_effect=OSError):
            for _ in range(31):
                self.clock.now += 10
                self.assertRaises(OSError, self.look_once)
        self.assertIn('nova-conductor', self.verdict().why)
        self.look_once()
        self.assertTrue(self.verdict().well)

    def test_ironic_that_does_not_answer(self):
        self.start()
        with self.recorder.asking():
            self.clock.now += BOUNDS.audit + 1
            self.assertIn('Ironic has not answered', self.verdict().why)
            self.assertTrue(self.verdict().well)
            self.clock.now += BOUNDS.audit + 1
        # Whoever has waited goes on.
        self.assertTrue(self.verdict().well)
        self.assertFalse(self.verdict(seconds=BOUNDS.audit + 1).well)

    def test_answer_that_never_comes(self):
        """Ironic answers others, whose requests are younger."""
        self.start()
        with self.recorder.asking():
            self.clock.now += BOUNDS.audit + 1
            in_thread(self.look_once)
            self.assertTrue(self.verdict().well)
            in_thread(self.ask)
            self.assertIn('no audit', self.verdict().why)
            # By now Ironic is away.
            with self.recorder.asking():
                self.clock.now += health.UNANSWERED + 1
                self.assertTrue(self.verdict().well)

    def test_audit_that_waits_while_machines_are_torn_down(self):
        """nova's tasks have one thread, and one of them deletes fifty."""
        self.start()
        for _ in range(50):
            self.clock.now += BOUNDS.audit / 3
            with self.recorder.asking():
                pass
            in_thread(self.look_once)
            self.assertTrue(self.verdict().well)

    def test_what_others_ask_is_no_step_of_an_audit(self):
        self.start()
        for _ in range(4):
            self.clock.now += BOUNDS.audit / 3
            in_thread(self.ask)
            in_thread(self.look_once)
        self.assertIn('no audit', self.verdict().why)

    def ask(self):
        with self.recorder.asking():
            pass

    def test_bounds_that_cannot_be_read_are_as_they_were(self):
        """nova.conf was read anew with an error in it."""
        self.start()
        self.assertTrue(self.verdict().well)
        with mock.patch.object(
                self.health_probe, '_bounds', side_effect=ValueError):
            self.assertTrue(self.verdict().well)
            self.assertFalse(self.verdict(seconds=BOUNDS.audit + 1).well)

    def test_bounds_that_could_never_be_read(self):
        self.start()
        with mock.patch.object(
                self.health_probe, '_bounds', side_effect=ValueError):
            self.assertTrue(self.verdict(seconds=90000).well)

    def test_messages_and_the_end(self):
        self.start()
        self.listening = False
        self.assertFalse(self.verdict().well)
        self.assertFalse(self.health_probe.picture().ending)
        self.ending = True
        self.assertTrue(self.verdict().well)
        self.assertTrue(self.health_probe.picture().ending)


UP = peers.ComputeService('me', up=True)
FENCED = peers.ComputeService('me', up=False, forced_down=True)

ALIVE = ('READY=1', 'WATCHDOG=1')


class Systemd:
    """What is told to it; whoever wants to wait for that may.

    :ivar deaf: whether it does not hear.
    """

    seconds = 30
    deaf = False

    def __init__(self):
        self.told = []
        self.heard = threading.Semaphore(0)

    def tell(self, *words):
        if self.deaf:
            raise OSError('nobody there')
        self.told.append(words)
        self.heard.release()


class HolderTestCase(base.BaseTestCase):

    service = UP
    takes = 0
    ending = False
    terms = health.LeaseTiming(60, 60)

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.systemd = Systemd()
        self.holder = self.made(self.systemd)

    def made(self, watchdog):
        one = lifecycle.LeaseRenewer(
            self.ask, lambda: self.terms, lambda: 10, watchdog,
            lambda: self.ending, lambda: self.now)
        for timer in one._timers:
            self.addCleanup(timer.stop)
        return one

    def ask(self):
        self.now += self.takes
        if isinstance(self.service, Exception):
            raise self.service
        return self.service

    def signs(self):
        """Return the signs of life that are given now."""
        self.systemd.told.clear()
        self.holder.show()
        return self.systemd.told

    def test_sign_of_life_while_nova_says_that_it_is_up(self):
        self.holder.renew()
        self.now += 120
        self.assertEqual([ALIVE], self.signs())
        self.assertTrue(self.holder.verdict().well)

    def test_settings_that_cannot_be_read_any_more_end_nobody(self):
        self.holder.renew()
        self.assertEqual([ALIVE], self.signs())
        self.terms = None
        self.now += 120
        self.assertEqual([ALIVE], self.signs())
        self.assertEqual(270, self.holder.dead_after)

    def test_no_sign_of_life_when_nova_is_silent(self):
        self.holder.renew()
        self.service = TimeoutError('no answer')
        self.now += 121
        self.assertRaises(TimeoutError, self.holder.renew)
        with self.assertLogs(lifecycle.__name__, 'ERROR') as logs:
            self.assertEqual([], self.signs())
            self.assertEqual([], self.signs())
        [line] = logs.output
        self.assertIn('kills it within 30 s', line)
        self.assertIn('nova-conductor does not answer', line)
        self.assertFalse(self.holder.verdict().well)

    def test_no_sign_of_life_when_it_is_forced_down(self):
        self.holder.renew()
        self.service = FENCED
        for _ in range(13):
            self.now += 10
            self.holder.renew()
        with self.assertLogs(lifecycle.__name__, 'ERROR') as logs:
            self.assertEqual([], self.signs())
        self.assertIn('forced down', logs.output[0])

    def test_one_that_was_forced_down_before_it_started_lives(self):
        self.service = FENCED
        for _ in range(50):
            self.now += 10
            self.holder.renew()
            self.assertEqual([ALIVE], self.signs())

    def test_signs_of_life_again_when_nova_answers_again(self):
        self.holder.renew()
        self.now += 121
        with self.assertLogs(lifecycle.__name__, 'INFO') as logs:
            self.assertEqual([], self.signs())
            self.holder.renew()
            self.assertEqual([ALIVE], self.signs())
            self.assertEqual([ALIVE], self.signs())
        self.assertEqual(2, len(logs.output))
        self.assertIn('valid again', logs.output[1])

    def test_an_answer_counts_from_when_it_was_asked_for(self):
        self.takes = 100
        self.holder.renew()
        self.takes = 0
        self.now += 21
        self.assertEqual([], self.signs())

    def test_while_it_ends_it_asks_for_more_time_as_well(self):
        self.ending = True
        self.holder.renew()
        self.assertEqual(
            [(*ALIVE, 'EXTEND_TIMEOUT_USEC=30000000')], self.signs())

    def test_systemd_does_not_hear(self):
        self.systemd.deaf = True
        self.assertRaises(OSError, self.holder.show)

    def test_dead_after(self):
        self.assertEqual(270, self.holder.dead_after)
        self.assertIsNone(self.made(None).dead_after)

    def test_signs_of_life_while_nova_lets_it_wait(self):
        """It hangs in a question; the lease of the start is valid."""
        asked, answered = threading.Event(), threading.Event()
        self.addCleanup(answered.set)

        def ask():
            asked.set()
            answered.wait(60)
            return UP

        self.systemd.seconds = 0.004
        one = lifecycle.LeaseRenewer(
            ask,
            lambda: health.LeaseTiming(60, 60),
            lambda: 0.001,
            self.systemd,
            clock=lambda: self.now,
        )
        for timer in one._timers:
            self.addCleanup(timer.stop)
        one.start()
        self.assertTrue(asked.wait(60))
        for _ in range(3):
            self.assertTrue(self.systemd.heard.acquire(timeout=60))

    def test_at_its_end_it_asks_no_more_and_lives_on_for_the_lease(self):
        self.holder.start()
        asking, _ = self.holder._timers
        self.holder.end()
        asking.join(60)
        self.assertFalse(asking.is_alive())
        self.assertTrue(self.systemd.heard.acquire(timeout=60))

    def test_the_lease_begins_with_the_start(self):
        self.now += 90000
        self.service = TimeoutError('no answer')
        self.holder.start()
        self.assertTrue(self.holder.verdict().well)

    def test_without_a_watchdog_it_only_knows(self):
        self.holder = self.made(None)
        self.holder.renew()
        self.holder.show()
        self.now += 121
        self.holder.show()
        self.assertFalse(self.holder.verdict().well)

    def test_the_clock_goes_on_while_the_machine_sleeps(self):
        uptime = float(pathlib.Path('/proc/uptime').read_text().split()[0])
        self.assertGreaterEqual(lifecycle.clock(), uptime - 1)
        self.assertLess(lifecycle.clock(), uptime + 3600)
