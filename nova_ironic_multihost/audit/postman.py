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

"""The postman: hands on what waits for compute services that are dead.

Every few seconds, in a thread of its own: a broker that does not answer holds
up nothing else. Of the members one reads the mailbox of a dead host, the one
that a ring of them names; two that see different members do no harm, as each
message goes to one of them.

What is not handed on is held for as long as that is allowed, and looked at
again each time: taking and giving back is counted, see
:func:`.core.forwarding.pause`. Nothing depends on this process: what it holds
goes back when it ends.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.audit import auditor as auditors
from nova_ironic_multihost.audit import look
from nova_ironic_multihost.audit import lost
from nova_ironic_multihost.audit.model import Audit
from nova_ironic_multihost.audit.sources import Mailbox
from nova_ironic_multihost.audit.sources import Mailboxes
from nova_ironic_multihost.core import aggregates
from nova_ironic_multihost.core import forwarding
from nova_ironic_multihost.core.forwarding import Fate
from nova_ironic_multihost.core.forwarding import Kind
from nova_ironic_multihost.core.forwarding import Letter
from nova_ironic_multihost.core.forwarding import Verdict
from nova_ironic_multihost.core.host import host_key
from nova_ironic_multihost.core.host import HostKey
from nova_ironic_multihost.core import membership

LOG = logging.getLogger(__name__)

#: The most messages of one mailbox that are held at a time.
HELD = 1000

#: Messages that are taken until it is asked again who is there.
STRETCH = 20

#: Seconds until it is looked again whether there is a mailbox that was not
#: there: RabbitMQ logs that as an error.
ABSENT = 60


@dataclasses.dataclass
class Reading:
    """A mailbox that is being read. Only the postman's thread uses it.

    :ivar mailbox: the mailbox, open.
    :ivar opened: when it was opened.
    :ivar absent: when there was no such mailbox, None if there is.
    :ivar held: what was taken and neither handed on nor dropped.
    :ivar ended: since when each turn has come to its end; None if the last
        one did not.
    :ivar counts: what was done with messages in this turn.
    """

    mailbox: Mailbox
    opened: float
    absent: float | None = None
    held: list[Letter] = dataclasses.field(default_factory=list)
    ended: float | None = None
    counts: collections.Counter[Fate] = dataclasses.field(
        default_factory=collections.Counter)


class SilentError(Exception):
    """nova does not say what a message is about."""


class Postman:
    """Reads the mailboxes of dead hosts, again and again, from one thread.

    :param host: this host.
    :param mailboxes: the mailboxes of all hosts.
    :param auditor: what the last audit has found.
    :param looks: who is there, and who is dead.
    :param lost_builds: gives up builds that are found nowhere.
    :param clock: monotonic clock, in seconds.
    """

    def __init__(self, host: str, mailboxes: Mailboxes,
                 auditor: auditors.Auditor, looks: look.Look,
                 lost_builds: lost.Lost,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host_key(host)
        self._mailboxes = mailboxes
        self._auditor = auditor
        self._looks = looks
        self._lost = lost_builds
        self._clock = clock
        self._ending = threading.Event()
        self._said = False
        self._readings: dict[HostKey, Reading] = {}
        #: Host -> when its mailbox may be read again.
        self._pauses: dict[HostKey, float] = {}
        #: Builds that were handed on -> to which host.
        self._handed_on: dict[str, HostKey] = {}

    def end(self) -> None:
        """Take no more messages: the service is told to end."""
        self._ending.set()

    def once(self) -> None:
        """Read what there is in the mailboxes that are this host's to read.

        :raises Exception: one of them cannot be read, the last that was
            tried; the others have been.
        """
        mine = self._mine()
        for host in [*self._readings]:
            if host not in mine:
                self._close(host)
        if mine and not self._mailboxes.readable:
            self._say_unreadable()
            return
        failure = None
        for host in sorted(mine):
            try:
                self._read(host, mine[host])
            except SilentError:
                # What was taken is held. It is the same for all of them.
                raise
            except Exception as exc:  # noqa: BLE001
                self._close(host)
                failure = exc
        self._give_up_lost()
        if failure is not None:
            raise failure

    def _give_up_lost(self) -> None:
        """Give up builds whose messages are in none of the mailboxes."""
        view = self._looks.view
        handed_on = {uuid: host for uuid, host in self._handed_on.items()
                     if view is not None and view.live(host)}
        held = {letter.instance for reading in self._readings.values()
                for letter in reading.held if letter.instance is not None}
        waiting = self._lost.once({
            host: reading.ended for host, reading in self._readings.items()
            if reading.ended is not None}, held | handed_on.keys())
        self._handed_on = {uuid: host for uuid, host in handed_on.items()
                           if uuid in waiting}

    def _say_unreadable(self) -> None:
        if not self._said:
            self._said = True
            LOG.info('Builds that wait for a compute service that is dead '
                     'wait until it is back: only queues of RabbitMQ are '
                     'read by others.')

    def _mine(self) -> dict[HostKey, str]:
        """Return whose mailboxes are this host's to read: {host: name}."""
        view, last = self._looks.view, self._auditor.last
        preferences = self._auditor.preferences
        if (view is None or last is None or preferences is None
                or self._ending.is_set()):
            return {}
        return {host: view.services[host].host for host in self._looks.eligible
                if host in view.services and not view.live(host)
                and forwarding.reader(preferences, host) == self._host}

    def _read(self, host: HostKey, name: str) -> None:
        """Read a mailbox to its end.

        :param name: the host as nova spells it.
        :raises SilentError: nova does not answer.
        :raises Exception: the mailbox cannot be read.
        """
        now = self._clock()
        reading = self._readings.get(host)
        if reading is None:
            if now < self._pauses.get(host, now):
                return
            reading = self._readings[host] = Reading(
                self._mailboxes.open(name), now)
        elif reading.held and now - reading.opened >= forwarding.HOLDING:
            self._close(host)
            return
        reading.counts.clear()
        try:
            if not self._read_on(host, reading):
                self._close(host)
        finally:
            self._tell(name, reading)

    def _read_on(self, host: HostKey, reading: Reading) -> bool:
        """Read until nothing is left.

        :returns: whether it is still this host's to read.
        """
        box = reading.mailbox
        now = self._clock()
        if reading.absent is not None and now - reading.absent < ABSENT:
            return True
        ended, reading.ended = reading.ended, None
        consumers = box.consumers()
        if consumers is None:
            # Nobody has ever listened there, or it was deleted.
            reading.held.clear()
            reading.absent = now
            reading.ended = now if ended is None else ended
            return True
        reading.absent = None
        if forwarding.returned(consumers, len(reading.held)):
            return False
        for letter in [*reading.held]:
            if self._deal(host, reading, letter):
                reading.held.remove(letter)
        taken = 0
        while len(reading.held) < HELD:
            found = box.take()
            if found is None:
                reading.ended = now if ended is None else ended
                return True
            reading.held.append(found)
            if self._deal(host, reading, found):
                reading.held.pop()
            taken += 1
            if taken % STRETCH == 0 and (
                    host not in self._mine() or forwarding.returned(
                        box.consumers() or 0, len(reading.held))):
                return False
        return True

    def _deal(self, host: HostKey, reading: Reading, letter: Letter) -> bool:
        """Do with a message what is to be done; return whether it is gone.

        :raises SilentError: what that is cannot be known.
        """
        try:
            verdict = self._judge(host, letter)
        except Exception as exc:
            raise SilentError(f'it is not known what becomes of a message: '
                              f'{exc}') from exc
        if verdict.fate is Fate.KEEP:
            return False
        if verdict.fate is Fate.DROP:
            reading.mailbox.drop(letter)
        elif not self._hand_on(reading.mailbox, letter, verdict):
            return False
        reading.counts[verdict.fate] += 1
        return True

    def _hand_on(self, mailbox: Mailbox, letter: Letter, verdict: Verdict
                 ) -> bool:
        view = self._looks.view
        service = view.services.get(verdict.host) if (
            view is not None and verdict.host is not None) else None
        if service is None or not mailbox.hand_on(letter, service.host):
            return False
        if letter.instance is not None:
            self._handed_on[letter.instance] = service.key
        return True

    def _judge(self, host: HostKey, letter: Letter) -> Verdict:
        last, view = self._auditor.last, self._looks.view
        if (letter.kind is Kind.OTHER or letter.instance is None
                or last is None or view is None):
            return Verdict(Fate.KEEP)
        sources = self._auditor.sources
        state = sources.instance_states([letter.instance]).get(letter.instance)
        situation = forwarding.Situation(state)
        if letter.kind is Kind.BUILD and letter.node is not None:
            record = next(iter(sources.records([letter.node])), None)
            owner = record.owner if record is not None else None
            situation = forwarding.Situation(
                state, owner, view.live(owner), owner in self._looks.eligible,
                self._choice(letter.node, owner, last, view))
        return forwarding.judge(letter, host, situation)

    def _choice(self, node: str, owner: HostKey | None, last: Audit,
                view: membership.View) -> HostKey | None:
        """Return who is to have a node of a dead host, as ownership says."""
        preferences = self._auditor.preferences
        if preferences is None:
            return None
        zones: Mapping[HostKey, str] = aggregates.zones(
            last.host_aggregates.aggregates)
        choice = preferences.host_for(
            node, zones.get(owner) if owner is not None else None)
        return choice if view.live(choice) else None

    def _tell(self, name: str, reading: Reading) -> None:
        if reading.counts:
            LOG.info('Compute service %(host)s is dead. Of what waited for '
                     'it %(builds)d builds were handed on, and %(dropped)d '
                     'messages dropped that nobody wants any more; %(held)d '
                     'wait on.', {
                         'host': name,
                         'builds': reading.counts[Fate.HAND_ON],
                         'dropped': reading.counts[Fate.DROP],
                         'held': len(reading.held)})

    def _close(self, host: HostKey) -> None:
        """Give back what is held, and leave it alone for some time."""
        reading = self._readings.pop(host, None)
        if reading is None:
            return
        reading.mailbox.close()
        self._pauses[host] = self._clock() + forwarding.pause(reading.held)
