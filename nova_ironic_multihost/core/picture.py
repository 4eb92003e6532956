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

"""The picture of a compute service: all that is seen of it from outside.

Immutable, and made of what is known at that moment: nobody is asked for it.
"""

from collections.abc import Mapping
import dataclasses
import types

from nova_ironic_multihost.core.health import Verdict
from nova_ironic_multihost.core import membership
from nova_ironic_multihost.core.ownership import Reason
from nova_ironic_multihost.core.tallies import Pending
from nova_ironic_multihost.core.tallies import Tallies
from nova_ironic_multihost.core.tallies import Work

#: Why nodes are on their way from one compute service to another, or wait to
#: be.
MOVING = (Reason.ADOPTED, Reason.ADOPTION_WAITS, Reason.PULLED,
          Reason.ALLOCATED, Reason.QUEUED, Reason.AWAITED, Reason.UNANSWERED,
          Reason.STARTING, Reason.TAKEN_OVER, Reason.INSTANCE_WAITS,
          Reason.TAKEOVER_FAILED)


@dataclasses.dataclass(frozen=True)
class Picture:
    """A compute service at one moment.

    :param host: its name, as nova spells it.
    :param at: the moment, by the clock of the tallies.
    :param tallies: what it has counted and timed.
    :param verdict: whether it is well.
    :param view: the compute services as it saw them last, None before that.
    :param reasons: node uuid -> why it is its or not, None before it has
        audited all nodes once.
    :param missing: number of nodes that are recorded on it and not listed.
    :param braked: none of these is taken for deleted, as too many are missing.
    :param ending: it was told to end: it looks no more, and asks no more what
        has changed.
    """

    host: str
    at: float
    tallies: Tallies
    verdict: Verdict
    view: membership.View | None = None
    reasons: Mapping[str, Reason] | None = None
    missing: int = 0
    braked: bool = False
    ending: bool = False

    @property
    def pending_seconds(self) -> float:
        """For how long the oldest take-over has been pending; 0 if none is."""
        oldest = self.tallies.oldest_pending
        return 0 if oldest is None else max(0, self.at - oldest)

    def age(self, work: Work) -> float:
        """Return the seconds since some work was done, see ``Tallies``."""
        return self.tallies.age(work, self.at)

    def moving(self) -> Mapping[Reason, str]:
        """Return of each reason for which nodes move the uuid of one node."""
        examples: dict[Reason, str] = {}
        for node, reason in (self.reasons or {}).items():
            if reason in MOVING:
                examples.setdefault(reason, node)
        return types.MappingProxyType(
            {reason: examples[reason] for reason in MOVING
             if reason in examples})

    def waiting(self, kind: Pending) -> list[tuple[str, float]]:
        """Return (uuid, seconds) of what is pending, the oldest first."""
        return sorted(
            ((key, self.at - since) for key, since
             in self.tallies.pending[kind].items()),
            key=lambda one: (-one[1], one[0]))
