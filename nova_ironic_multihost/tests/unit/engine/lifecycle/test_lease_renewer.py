# SPDX-License-Identifier: Apache-2.0

"""The holder of the lease, with nova and systemd answering by value."""

import pathlib
import threading

from oslotest import base

from nova_ironic_multihost.engine.lifecycle import lease_renewer
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import peers

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
        one = lease_renewer.LeaseRenewer(
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
        with self.assertLogs(lease_renewer.__name__, 'ERROR') as logs:
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
        with self.assertLogs(lease_renewer.__name__, 'ERROR') as logs:
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
        with self.assertLogs(lease_renewer.__name__, 'INFO') as logs:
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
        one = lease_renewer.LeaseRenewer(
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
        asking, _ = [timer._thread for timer in self.holder._timers]
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
        self.assertGreaterEqual(lease_renewer.clock(), uptime - 1)
        self.assertLess(lease_renewer.clock(), uptime + 3600)
