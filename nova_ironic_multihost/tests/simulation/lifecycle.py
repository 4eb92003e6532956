# SPDX-License-Identifier: Apache-2.0

"""How one nova-compute of the simulation starts, stops and shows itself.

The parts are those of :mod:`nova_ironic_multihost.engine.lifecycle`, wired as
service.py does; nova's services table, placement and systemd are modelled.
"""

import datetime
from unittest import mock

from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine import lifecycle
from nova_ironic_multihost.engine.nodes import due_nodes
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.tests.simulation import threads
from nova_ironic_multihost.tests.simulation.threads import pause
from nova_ironic_multihost.tests.simulation import world as worlds

#: Ticks without progress after which a compute service is unhealthy.
LIMIT = 3 * worlds.DOWN_TIME

#: Ticks without a sign of life after which systemd kills.
WATCHDOG = 2

TERMS = health.LeaseTiming(worlds.INTERVAL, worlds.DOWN_TIME)

#: Ticks after which others may take over what a silent host has.
CERTAIN = TERMS.over_after(WATCHDOG)


class Registration:
    """The port of that name: this service in nova's services table."""

    def __init__(self, world, host, sources):
        self._world = world
        self._host = host
        self._sources = sources

    def _write(self, act):
        return self._sources.writes.write(
            lambda: act(self._world.services[self._host]))

    def say(self, words):
        return self._write(lambda service: service.say(words))

    def close(self, words):
        asked = self._sources.asked
        return self._write(
            lambda service: self._world.close(service, words, asked))

    def take_back(self):
        pause()
        return bool(self._world.services[self._host].stop_marker) and (
            self._write(lambda service: service.take_back()))


class Systemd:
    """The watchdog of one process, and what it was told.

    :ivar sign: when it was given the last sign of life.
    """

    seconds = WATCHDOG

    def __init__(self, clock):
        self._clock = clock
        self.sign = None

    def tell(self, *words):
        self.sign = self._clock()

    def kills(self):
        return (self.sign is not None
                and self._clock() - self.sign > self.seconds)


class Lifecycle:
    """What of a process is there from its start to its end.

    :param process: :class:`.host.Process`, with its parts of audits.
    """

    def __init__(self, world, process, clock):
        self._world = world
        self._process = process
        self._clock = clock
        self.threads = threads.Threads(clock)
        self.shutdown = lifecycle.Shutdown(
            Registration(world, process.host, process.sources),
            process.may_close, self._now, lambda seconds: pause())
        self.systemd = Systemd(clock) if world.watched else None
        with mock.patch.object(periodic, 'threading', self.threads):
            self.lease = lifecycle.LeaseRenewer(
                lambda: process.sources.service(process.host), lambda: TERMS,
                lambda: worlds.INTERVAL, self.systemd, self.shutdown.begun,
                clock)
        for one in self.lease._timers:
            one._clock = clock
            one.start = self.threads.Thread(one.run).start

    def _now(self):
        """Return another second for each stop marker."""
        self._world.serials['second'] += 1
        return worlds.START + datetime.timedelta(
            seconds=self._world.serials['second'])

    def watch(self, auditor, poller, due, recorder):
        """Make the parts that need those of audits."""
        process = self._process
        self.provider_changes = due_nodes.ProviderChanges(
            process.host, auditor, due.note_provider_changes,
            process.generations,
            # Each tick is longer than what it waits for.
            lambda: self._clock() * due_nodes.LISTING)
        self.probe = lifecycle.HealthProbe(
            process.host, auditor, poller, recorder,
            lambda: health.HealthLimits(LIMIT, LIMIT, LIMIT),
            self.shutdown.begun, lambda: process.listening, self._clock)

    def prepare(self):
        """service.prepare."""
        if self.systemd:
            self.lease.start()

    def begin(self):
        """service.begin; systemd had its first sign of life long before."""
        self.probe.note_start()
        if self.systemd:
            self.systemd.tell()

    def end(self):
        """service.end, at SIGTERM."""
        with mock.patch.object(periodic, 'threading', self.threads):
            self.shutdown.begin()

    def killed(self):
        """Return whether systemd kills it now."""
        return self.systemd is not None and self.systemd.kills()

    def judge(self):
        """Say what is wrong with its verdict on its own health, if it is."""
        process, now = self._process, self._clock()
        if process.ending or not process.listening:
            well = process.ending
        else:
            quiet = [now - max(process.began, moment)
                     for moment in process.turned.values()]
            silent = now - max(process.began, process.sources.answered)
            if max(*quiet, silent) <= LIMIT:
                well = True
            elif process.sources.asking:
                return ''
            elif any(now - max(process.began, moment) > LIMIT
                     for moment in process.went_on.values()):
                well = False
            else:
                return ''
        verdict = self.probe.verdict()
        return ('' if verdict.well is well
                else f'{process.host}: {verdict.why}')
