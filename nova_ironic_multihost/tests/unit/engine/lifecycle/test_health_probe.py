# SPDX-License-Identifier: Apache-2.0

"""Collects what probes and reports show of this compute service."""

import threading
from unittest import mock

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.base import metrics
from nova_ironic_multihost.engine.lifecycle import health_probe
from nova_ironic_multihost.engine.moves import peer_poll
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.ownership import Reason
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
        self.health_probe = health_probe.HealthProbe(
            'A', self.auditors['a'], self.look, self.recorder, lambda: BOUNDS,
            lambda: self.ending, lambda: self.listening, self.clock)

    def look_once(self):
        return self.look.once(audit_state.Settings('a', points=32))

    def counts(self):
        return self.recorder.totals.counts

    def turns(self, work):
        return self.recorder.totals.turns[work]

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
        self.assertTrue(found.verdict.well)

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
            waits, self.recorder.totals.pending[Pending.TURN].keys())
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

    def test_start_takes_its_time(self):
        self.assertTrue(self.verdict(seconds=90000).well)

    def test_well(self):
        self.start()
        self.assertIn('is well', self.verdict(seconds=60).why)

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
            verdict = self.health_probe.picture().verdict
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
