# SPDX-License-Identifier: Apache-2.0

"""Who owned which node when, and what that adds up to.

A :class:`Recorder` looks at the lab once a second while something happens
and notes events by name; what it saw is a :class:`Timeline`, and the
figures of an experiment are functions of it. Two changes of owner between
two looks are seen as one: figures of moves are lower bounds, which matters
only to a driver that shuffles faster than it audits.

Times are seconds since the recording began.

Three figures judge moves against what nova said of the computes. A *member*
is a compute that is up and enabled, or was told to end a short time ago; a
*change of members* is what moves are made for. A compute decides with what
nova said a moment ago, and a look may come in between, so what held within the
last :data:`LAG` seconds excuses a move.
"""

import bisect
import collections
import contextlib
import dataclasses
import itertools
import json
import threading
import time

from lab import errors
from lab import reasons
from lab import view


# An audit of a few dozen nodes that change hands, and a look.
LAG = 3.0


class NeverHappened(errors.LabError):
    """What was waited for did not come; the message says what."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """What one look showed; hosts are in lower case.

    :ivar disabled: hosts that nova sends no builds to
    :ivar members: hosts that share the nodes
    """

    t: float
    owner: dict
    used: frozenset = frozenset()
    up: frozenset = frozenset()
    disabled: frozenset = frozenset()
    mapped: frozenset = frozenset()
    members: frozenset = frozenset()

    @classmethod
    def of(cls, seen, t):
        """The part of an Observation that a timeline keeps."""
        return cls(t, dict(seen.owner_of), seen.used_nodes, seen.up_hosts,
                   frozenset(s.key for s in seen.services if s.disabled),
                   frozenset(s.key for s in seen.services if s.mapped),
                   reasons.members(seen))

    @property
    def schedulable(self):
        """Hosts that nova sends builds to."""
        return (self.up - self.disabled) & self.mapped

    def misplaced(self, prefer):
        """Free nodes that are not where the ring wants them.

        :param prefer: function of members and node that returns a host
        """
        return {n for n, owner in self.owner.items()
                if n not in self.used and owner != prefer(self.members, n)}

    def count(self, host):
        """How many nodes a host owns: (free, with a server)."""
        mine = [n for n, owner in self.owner.items() if owner == host]
        used = sum(1 for n in mine if n in self.used)
        return len(mine) - used, used

    def on_dead_hosts(self, free=False):
        """Nodes recorded on a host that is not up.

        :param free: only those without a server
        """
        return {n for n, owner in self.owner.items()
                if owner not in self.up and not (free and n in self.used)}


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that was done, or came to pass, at a moment."""

    t: float
    name: str


@dataclasses.dataclass(frozen=True)
class Move:
    """A node that changed owner; ``mapped`` tells of the new owner."""

    t: float
    node: str
    old: str
    new: str
    mapped: bool = True


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Samples and events in the order of time."""

    samples: tuple = ()
    events: tuple = ()

    @property
    def hosts(self):
        """Every host that was seen as a service or an owner, sorted.

        "compute-10" comes after "compute-9".
        """
        found = set()
        for sample in self.samples:
            found |= sample.up | sample.mapped | set(sample.owner.values())
        return sorted(found, key=lambda name: (len(name), name))

    def since(self, t):
        """The part from a time on, counted from that time."""
        return Timeline(
            tuple(dataclasses.replace(s, t=s.t - t)
                  for s in self.samples if s.t >= t),
            tuple(dataclasses.replace(e, t=round(e.t - t, 3))
                  for e in self.events if e.t >= t))

    def moves(self, since=0.0, until=float('inf')):
        """Changes of owner in (since, until], in the order of time.

        A record that vanished and came back on another host is a move; a
        node that is seen for the first time is none.
        """
        found = []
        owner = {}
        for sample in self.samples:
            for node, new in sample.owner.items():
                old = owner.get(node, new)
                if old != new and since < sample.t <= until:
                    found.append(Move(sample.t, node, old, new,
                                      new in sample.mapped))
            owner.update(sample.owner)
        return found

    def changes(self):
        """Times at which others were members than the moment before."""
        return [late.t for early, late
                in itertools.pairwise(self.samples)
                if early.members != late.members]

    def most_moves_per_change(self, since=0.0, until=float('inf')):
        """The most moves of one node between two changes of members.

        A move right after a change may be one for the change before it.
        """
        changes = self.changes()
        counts = collections.Counter()
        for move in self.moves(since, until):
            stages = range(bisect.bisect(changes, move.t - LAG),
                           bisect.bisect(changes, move.t) + 1)
            counts[min(((move.node, stage) for stage in stages),
                       key=lambda key: (counts[key], key[1]))] += 1
        return max(counts.values(), default=0)

    def needless(self, prefer, since=0.0, until=float('inf')):
        """Moves from a live owner to one that the ring does not prefer.

        :param prefer: function of members and node that returns a host
        """
        return [
            move for move in self.moves(since, until)
            if all(move.old in s.up and move.new != prefer(
                s.members, move.node) for s in self._lately(move.t))]

    def unschedulable(self, since=0.0, until=float('inf')):
        """Nodes that moved to a host which nova did not send builds to.

        Down, disabled or not mapped to a cell; a node that was there when
        its host became so does not count.
        """
        return {
            move.node for move in self.moves(since, until)
            if not any(move.new in s.schedulable
                       for s in self._lately(move.t))}

    def created(self, since=0.0, until=float('inf')):
        """How many records came into being in (since, until]."""
        before = frozenset()
        count = 0
        for sample in self.samples:
            if since < sample.t <= until:
                count += len(sample.owner.keys() - before)
            before = sample.owner.keys()
        return count

    def _lately(self, t):
        return [s for s in self.samples if t - LAG <= s.t <= t]

    def arrived(self, nodes, away_from, since):
        """Seconds from ``since`` until all nodes are on live hosts.

        :param nodes: node uuids
        :param away_from: the host that they leave
        :returns: None when that did not come to pass
        """
        for sample in self.samples:
            if sample.t < since:
                continue
            owners = [sample.owner.get(node) for node in nodes]
            if all(o in sample.up and o != away_from for o in owners):
                return round(sample.t - since, 1)
        return None

    def on_dead_hosts(self, since=0.0, until=float('inf'), free=False):
        """The most nodes recorded on hosts not up in any one sample.

        :param free: count only those without a server
        """
        return max((len(s.on_dead_hosts(free)) for s in self.samples
                    if since < s.t <= until), default=0)

    def split(self):
        """Nodes of each live host at the end, fewest first."""
        if not self.samples:
            return []
        last = self.samples[-1]
        return sorted(sum(last.count(host)) for host in last.up)

    def to_json(self):
        """Plain data; the inverse of :meth:`from_json`."""
        nodes = sorted({n for s in self.samples for n in s.owner})
        return {
            'nodes': nodes,
            'events': [dataclasses.asdict(event) for event in self.events],
            'samples': [{
                't': round(s.t, 3),
                'owners': [s.owner.get(node) for node in nodes],
                'used': sorted(s.used),
                'up': sorted(s.up),
                'disabled': sorted(s.disabled),
                'mapped': sorted(s.mapped),
                'members': sorted(s.members),
            } for s in self.samples],
        }

    @classmethod
    def from_json(cls, data):
        """The timeline that :meth:`to_json` described."""
        return cls(
            tuple(Sample(
                s['t'],
                {node: owner for node, owner
                 in zip(data['nodes'], s['owners'], strict=True) if owner},
                *(frozenset(s[field])
                  for field in ('used', 'up', 'disabled', 'mapped',
                                'members')))
                for s in data['samples']),
            tuple(Event(**event) for event in data['events']))


def moved_nodes(moves):
    """How many different nodes are among these moves."""
    return len({move.node for move in moves})


def most_moves(moves):
    """How often the node that moved most did so."""
    counts = collections.Counter(move.node for move in moves)
    return max(counts.values(), default=0)


class Recorder:
    """Looks at the lab every second in a thread of its own.

    Use as a context manager. A look that fails ends the recording; the
    next wait, or the end, raises its error.

    :param read: a function without arguments that returns an Observation
    """

    def __init__(self, read, period=1.0, clock=time.monotonic):
        self._read = read
        self._period = period
        self._clock = clock
        self._listeners = ()
        self._tolerant = False
        self._started = clock()
        self._samples = []
        self._events = []
        self._view = None
        self._error = None
        self._news = threading.Condition()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)

    def __enter__(self):
        self._thread.start()
        self.wait_for(lambda seen: True, 30, 'a first look at the lab')
        return self

    def __exit__(self, kind, value, traceback):
        self._over.set()
        self._thread.join()
        if kind is None and self._error:
            raise self._error

    def _record(self):
        due = self._clock()
        while not self._over.is_set():
            tolerant = self._tolerant
            try:
                seen = self._read()
                sample = Sample.of(seen, self.now())
                with self._news:
                    self._view = seen
                    self._samples.append(sample)
                    self._news.notify_all()
                for listener in self._listeners:
                    listener(seen)
            except Exception as error:  # noqa: BLE001 - for who waits
                # Begun or ended while nothing need be seen.
                tolerant = tolerant or self._tolerant
                if not (tolerant and isinstance(error, view.ViewError)):
                    with self._news:
                        self._error = error
                        self._news.notify_all()
                    return
            due += self._period
            # A look that took long must not be followed by a burst.
            due = max(due, self._clock())
            self._over.wait(due - self._clock())

    def listen(self, listener):
        """Call a function with each Observation, in the recorder's thread."""
        self._listeners += (listener,)

    @contextlib.contextmanager
    def gaps(self):
        """Go on after looks that fail, for as long as this lasts.

        For an experiment that takes away what is read from.
        """
        self._tolerant = True
        try:
            yield
        finally:
            self._tolerant = False

    def now(self):
        """Seconds since the recording began."""
        return self._clock() - self._started

    def mark(self, name):
        """Note an event; returns its time."""
        event = Event(round(self.now(), 3), name)
        with self._news:
            self._events.append(event)
        return event.t

    @property
    def view(self):
        """The latest Observation."""
        with self._news:
            return self._view

    @property
    def timeline(self):
        """What has been recorded so far."""
        with self._news:
            return Timeline(tuple(self._samples), tuple(self._events))

    def wait_for(self, condition, timeout, what):
        """Wait until a condition holds for the latest view.

        :param condition: a function of an Observation
        :param timeout: seconds
        :param what: what is waited for, for the error message
        :returns: seconds since the recording began, when it held
        :raises NeverHappened: when the time is over
        :raises lab.view.ViewError: when the lab cannot be read
        """
        deadline = self._clock() + timeout
        looked = 0
        with self._news:
            while True:
                if self._error:
                    raise self._error
                if len(self._samples) > looked:
                    looked = len(self._samples)
                    if condition(self._view):
                        return self._samples[-1].t
                left = deadline - self._clock()
                if left <= 0:
                    raise NeverHappened(
                        f'{what} did not happen within {timeout:.0f} s')
                self._news.wait(left)

    def watch(self, seconds):
        """Record for this long; returns the time at the end."""
        end = self.now() + seconds
        try:
            return self.wait_for(lambda seen: self.now() >= end,
                                 seconds + self._period, 'a look')
        except NeverHappened:
            return self.now()


def save(timeline, path, **conditions):
    """Write a timeline as JSON, with what it was recorded under."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(
        {'conditions': conditions, **timeline.to_json()}) + '\n')
    return path


def load(path):
    """The timeline in a file that :func:`save` wrote."""
    return Timeline.from_json(json.loads(path.read_text()))


def recorder(settings):
    """A Recorder of the lab that these settings describe."""
    return Recorder(lambda: view.read(settings))
