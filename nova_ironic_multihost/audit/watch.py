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


"""The watch: what to do about members that come and go between two audits.

nova audits every ``update_resources_interval`` seconds. The nodes of a
compute service that dies should not wait for that, so every few seconds each
compute service looks who is there, and audits at once the nodes that concern
it, and no others: those of hosts that have just died, or were just disabled
or fenced. Who joins, or is enabled again, takes its nodes by its own audits.

A compute service is silent until its first audit is over. Of those that start
together, as after a power failure, the first to be done takes the others for
dead; so a service that has just started leaves whoever is merely silent to
its full audits for a while.
"""

import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: The most seconds between two looks. A host that died is noticed so long
#: after service_down_time; guarantee G4 leaves 5 s more for its nodes.
PERIOD = 10

#: Looks in a row that audit the nodes of one host, if some of them cannot be
#: taken. What then still fails is left to the full audits.
ATTEMPTS = 3


def period(report_interval):
    """Return the seconds between two looks.

    :param report_interval: seconds between two heartbeats of a service;
        nothing changes faster.
    """
    return max(1, min(report_interval, PERIOD))


def due(before, after):
    """Say of which hosts some nodes may have become mine.

    When somebody leaves the ring, this host may be preferred for nodes of
    hosts that left earlier, too: who left now was to take those and has not.

    :param before: :class:`.membership.View` of the look before, or None.
    :param after: that of this look.
    :returns: frozenset of hosts in lower case, none of them a member.
    """
    if not after.member(after.host):
        return frozenset()
    absent = {host: state for host, state
              in ((host, _down_state(after, host)) for host in after.services)
              if state is not None and host != after.host}
    if (before is None or not before.member(before.host)
            or before.members - after.members):
        return frozenset(absent)
    return frozenset(host for host, state in absent.items()
                     if _down_state(before, host) != state)


def _down_state(view, host):
    """Why others may take nodes of a host; None if they may not."""
    service = view.services.get(host)
    if service is None or (service.up and not service.disabled):
        return None
    return service.up, service.disabled, service.forced_down


class Watch:
    """What the looks so far have found, and what is left to do.

    :param clock: monotonic clock, in seconds.
    :ivar seen: :class:`.membership.View` of the last look whose consequences
        were drawn, or None.
    """

    def __init__(self, clock=time.monotonic):
        self.seen = None
        self._clock = clock
        self._begun = None
        self._attempts = {}
        self._eligible = frozenset()
        self._waiting = frozenset()

    @property
    def hosts(self):
        """The hosts that were there, as nova spells them."""
        if self.seen is None:
            return ()
        return tuple(service.host for service in self.seen.services.values())

    def due(self, view, eligible=frozenset()):
        """Return the hosts whose nodes are to be audited now.

        :param view: :class:`.membership.View` of this look.
        :param eligible: hosts whose instances may be taken over by now.
        """
        again = {host for host in {*self._attempts, *self._waiting}
                 if _down_state(view, host) is not None}
        return due(self.seen, view) | again | (eligible - self._eligible)

    def starting(self, view, due, down_time):
        """Return those of the due hosts that may be about to come up.

        :param view: :class:`.membership.View` of this look.
        :param due: hosts in lower case, none of them a member.
        :param down_time: seconds of silence after which nova takes a service
            for dead; so long after the first look nobody is excused.
        """
        if self._begun is None:
            self._begun = self._clock()
        if self._clock() - self._begun >= down_time:
            return frozenset()
        return frozenset(
            host for host in due if not (view.services[host].up
                                         or view.services[host].forced_down))

    def done(self, view, missed=(), eligible=frozenset(), waiting=()):
        """Note that this was done.

        Without it the next look finds the same to do.

        :param view: :class:`.membership.View` of this look.
        :param missed: hosts of which some nodes could not be taken.
        :param eligible: as for :meth:`due`.
        :param waiting: hosts that are left to the next looks: they may be
            starting, or there are more instances to take over than one audit
            may.
        """
        self.seen = view
        self._eligible = eligible
        self._waiting = frozenset(waiting)
        attempts = {host: self._attempts.get(host, 0) + 1 for host in missed}
        self._attempts = {host: count for host, count in attempts.items()
                          if count < ATTEMPTS}


class Timer:
    """Does something every few seconds, in a thread of its own.

    :param act: function without arguments; what it raises is logged, once
        for each kind of error until it succeeds again.
    :param seconds: function without arguments that returns the pause.
    """

    def __init__(self, act, seconds):
        self._act = act
        self._seconds = seconds
        self._stopped = threading.Event()
        self._failures = set()
        self._thread = None

    def start(self):
        """Begin, if it has not begun."""
        if self._thread is None:
            self._stopped = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stopped,),
                name='ironic-multihost-watch', daemon=True)
            self._thread.start()

    def stop(self):
        """Do not do it again; what is under way is not waited for."""
        self._stopped.set()
        self._thread = None

    def _run(self, stopped):
        while not stopped.wait(self._seconds()):
            self.turn()

    def turn(self):
        """Do it once; raises nothing."""
        try:
            self._act()
        except Exception as exc:
            if type(exc) not in self._failures:
                self._failures.add(type(exc))
                LOG.warning('A look at the compute services failed: %s. It '
                            'is repeated until it succeeds.', exc,
                            exc_info=True)
        else:
            self._failures.clear()
