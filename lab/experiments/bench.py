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

"""What every experiment works with, and the waits they share."""

import collections.abc
import dataclasses
import random
import typing

from lab import errors
from lab import timeline

# Longer than two audits: who has not moved by then stays.
QUIET = 21.0
# Never-ending moves are a finding; they are watched this long.
PATIENCE = 90.0
COME_UP = 90.0
NOTICED_DOWN = 60.0
ARRIVE = 120.0


@dataclasses.dataclass(frozen=True)
class Bench:
    """The lab under test and the instruments.

    :ivar settings: :class:`lab.settings.Settings`
    :ivar computes: :class:`lab.computes.Computes`
    :ivar cloud: :class:`lab.cloud.Cloud`
    :ivar tell: called with a line of text when something happens
    :ivar cycles: how many times ``churn`` kills and restarts
    :ivar seed: where its choices come from
    """

    settings: typing.Any
    tell: collections.abc.Callable
    recorder: timeline.Recorder
    computes: typing.Any
    cloud: typing.Any
    cycles: int = 10
    seed: int = 0

    @property
    def chance(self):
        """A new source of choices, the same for the same seed."""
        return random.Random(self.seed)

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

    def start(self, name):
        """Start a compute and wait until it is up; returns both times."""
        at = self.note(f'start {name}')
        self.computes.start(name)
        return at, self.await_up(name)

    def await_up(self, name):
        """Wait until nova calls a compute up; returns the time."""
        self.recorder.wait_for(lambda seen: name.lower() in seen.up_hosts,
                               COME_UP, f'{name} coming up')
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

    def await_quiet(self):
        """Wait until nodes stop moving; tells whether they did."""
        return self.recorder.wait_quiet(QUIET, PATIENCE)
