# SPDX-License-Identifier: Apache-2.0

"""What every experiment works with, and the waits they share."""

import collections.abc
import dataclasses
import time
import typing

from lab import configuration
from lab import errors
from lab import fencing
from lab import preference
from lab import settings as places
from lab import state
from lab import timeline

# Who has not moved for two audits stays.
AUDITS_AT_REST = 2.1
# Never-ending moves are a finding; they are watched this long.
PATIENCE = 90.0
# Seconds after which a look has seen what was done before.
SEEN = 2.0
COME_UP = 90.0
NOTICED_DOWN = 60.0
ARRIVE = 120.0


@dataclasses.dataclass(frozen=True)
class Rest:
    """How moves came to their end.

    :ivar at: when each free node was where the ring wants it, in seconds
        since the recording began; None when that never came to pass
    :ivar late: how many moves there were in the two audits after that, or
        after the patience was over
    """

    at: float | None
    late: int

    @property
    def quiet(self):
        """Whether each free node found its place and stayed there."""
        return self.at is not None and not self.late


@dataclasses.dataclass(frozen=True)
class Bench:
    """The lab under test and the instruments.

    :ivar settings: :class:`lab.settings.Settings`
    :ivar computes: :class:`lab.computes.Computes`
    :ivar cloud: :class:`lab.cloud.Cloud`
    :ivar tell: called with a line of text when something happens
    :ivar prefer: :class:`lab.preference.Preference` of the lab's driver
    :ivar audit: seconds from one audit of a compute to the next
    :ivar down_time: seconds after which nova calls a silent compute down
    :ivar takeover_after: seconds for which a compute must have been down
        before others take its servers over without a fence
    :ivar clock: the time of day, in seconds since the epoch
    """

    settings: typing.Any
    tell: collections.abc.Callable
    recorder: timeline.Recorder
    computes: typing.Any
    cloud: typing.Any
    prefer: collections.abc.Callable
    audit: float
    down_time: float
    takeover_after: float = 0.0
    clock: collections.abc.Callable = time.time

    def for_driver(self, driver):
        """This with the ring of another driver than the lab began with.

        :param driver: 'ours' or 'stock'
        """
        options = state.State(self.settings).read().get('options', ())
        return dataclasses.replace(self, prefer=preference.Preference(
            preference.partitions(driver, options)))

    @property
    def busiest(self):
        """Name of the compute that owns most nodes, with those nodes.

        :returns: (name, list of node uuids)
        """
        seen = self.recorder.view
        names = [name for name in self.computes.names()
                 if name.lower() in seen.up_hosts]
        if not names:
            raise errors.LabError(
                'No compute is up, so there is none to experiment with. '
                'Start afresh with: tools/lab down; tools/lab up')
        name = max(names, key=lambda n: len(seen.owned_by(n)))
        return name, seen.owned_by(name)

    def note(self, event):
        """Mark an event in the timeline and tell about it; its time."""
        self.recorder.mark(event)
        return self.say(event)

    def say(self, text):
        """Tell about something that the timeline shows anyway."""
        at = self.recorder.now()
        self.tell(f'{at:8.1f} s  {text}')
        return at

    def kill(self, name):
        """SIGKILL a compute; returns the time."""
        at = self.note(f'kill {name}')
        self.computes.kill(name)
        return at

    def end(self, name):
        """SIGTERM a compute and wait for its end; returns when it was told."""
        at = self.note(f'stop {name}')
        self.computes.stop(name)
        self.say(f'{name} has ended')
        return at

    def start(self, name):
        """Start a compute and wait until it is up; returns both times."""
        at = self.note(f'start {name}')
        self.computes.start(name)
        return at, self.await_up(name)

    def watcher(self):
        """A :class:`lab.fencing.Watcher` of this lab's computes."""
        def is_dead(name):
            return self.computes.process_state(name) == 'stopped'

        def act(name, action):
            self.say(f'{action} {name}')
            getattr(self.computes, action)(name)

        return fencing.Watcher(is_dead, act)

    def await_up(self, name):
        """Wait until nova calls a compute up; returns the time.

        One whose process has ended looks up for a while after, so it has to
        give a sign of life from now on. And it gets no builds before it has
        taken its stop marker back.
        """
        since = self.clock()

        def is_back(seen):
            service = seen.service_of.get(name.lower())
            return (service is not None and service.up
                    and service.seen > since
                    and not (service.disabled and service.stop_marker))

        self.recorder.wait_for(is_back, COME_UP, f'{name} coming up')
        return self.say(f'{name} is up')

    def await_down(self, name):
        """Wait until nova calls a compute down; returns the time."""
        self.recorder.wait_for(
            lambda seen: name.lower() not in seen.up_hosts,
            NOTICED_DOWN, f'nova noticing that {name} is down')
        return self.say(f'nova calls {name} down')

    def await_arrival(self, name, nodes):
        """Wait until nodes have left a compute and are on live ones.

        :returns: the time
        """
        def arrived(seen):
            owners = [seen.owner_of.get(node) for node in nodes]
            return all(owner in seen.up_hosts and owner != name.lower()
                       for owner in owners)

        self.recorder.wait_for(
            arrived, ARRIVE, f'free nodes of {name} arriving on live '
            'computes')
        return self.note('free nodes have live owners')

    def in_place(self, seen):
        """Whether each free node is where the ring wants it."""
        return (len(seen.owner_of) == len(seen.nodes)
                and not timeline.Sample.of(seen, 0).misplaced(self.prefer))

    def await_places(self):
        """Wait until each free node is where the ring wants it.

        :returns: the time, None when that takes longer than anybody waits
        """
        self.recorder.watch(SEEN)
        try:
            return self.recorder.wait_for(
                self.in_place, PATIENCE, 'free nodes finding their places')
        except timeline.NeverHappened:
            return None

    def settle(self):
        """Wait until nodes have found their places, see whether they stay.

        :returns: a :class:`Rest`
        """
        at = self.await_places()
        since = self.recorder.now() if at is None else at
        self.recorder.watch(AUDITS_AT_REST * self.audit)
        late = len(self.recorder.timeline.moves(since))
        self.say(f'{late} moves since' if at is None or late else 'at rest')
        return Rest(at, late)

    def await_quiet(self):
        """Wait until nodes stop moving; tells whether they did."""
        return self.settle().quiet

    def moved(self, since, until=float('inf')):
        """The figures of moves that experiments have in common.

        moves; moved_nodes, how many different ones; most_moves of one node;
        most_moves_per_change, the most moves of one node from one change of
        members (a compute goes or comes back, is disabled, ...) to the next
        one; needless, moves from a live compute to one that the ring does
        not prefer; unschedulable, nodes that moved to a compute while nova
        sent no builds to it (down, disabled, not mapped).
        """
        seen = self.recorder.timeline
        moves = seen.moves(since, until)
        return {
            'moves': len(moves),
            'moved_nodes': timeline.moved_nodes(moves),
            'most_moves': timeline.most_moves(moves),
            'most_moves_per_change': seen.most_moves_per_change(since, until),
            'needless': len(seen.needless(self.prefer, since, until)),
            'unschedulable': len(seen.unschedulable(since, until))}

    def phase(self, action, name):
        """Do something to a compute and watch until nodes are at rest.

        :param action: of :class:`lab.computes.Computes`, such as 'disable'
        :returns: figures: those of :meth:`moved`, left (free nodes of that
                  compute at the end), settled_after (seconds), quiet, and
                  moves_after_quiet, in the two audits after that
        """
        since = self.note(f'{action} {name}')
        getattr(self.computes, action)(name)
        rest = self.settle()
        return {
            **self.moved(since),
            'left': len(self.recorder.view.free_of(name)),
            'settled_after': (
                None if rest.at is None else round(rest.at - since, 1)),
            'quiet': rest.quiet,
            'moves_after_quiet': rest.late}

    def remove(self, name):
        """Take a compute out of the lab: drain it, stop it, forget it."""
        self.note(f'drain {name}')
        self.computes.disable(name)
        try:
            self.recorder.wait_for(
                lambda seen: not seen.owned_by(name), ARRIVE,
                f'nodes leaving {name}')
        except timeline.NeverHappened:
            self.say(f'{name} was never without nodes')
        self.note(f'stop {name}')
        self.computes.stop(name)
        if left := self.recorder.view.owned_by(name):
            self.await_down(name)
            self.await_arrival(name, left)
        self.computes.forget(name)
        self.note(f'{name} is gone')


def of_lab(settings, tell, recorder, driver, options=()):
    """The Bench of a lab that is up.

    :param settings: :class:`lab.settings.Settings`
    :param tell: called with a line of text when something happens
    :param recorder: :class:`lab.timeline.Recorder` that records
    :param driver: 'ours' or 'stock'
    :param options: 'SECTION.OPTION=VALUE' strings that nova was given
    """
    from lab import cloud
    from lab import computes

    def number(section, option, default):
        return configuration.number(options, section, option, default)

    return Bench(
        settings, tell, recorder, computes.Computes(settings),
        cloud.Cloud(settings),
        preference.Preference(preference.partitions(driver, options)),
        audit=number('DEFAULT', 'update_resources_interval', places.AUDIT),
        down_time=number('DEFAULT', 'service_down_time',
                         places.SERVICE_DOWN_TIME),
        takeover_after=number('ironic_multihost', 'takeover_after', 0))
