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

"""The trait of nodes of a disabled compute service, in placement.

What ComputeVirtAPI.update_compute_provider_status does for one node: in two
requests instead of three, as the trait is one that placement brings along,
and also for a provider that nova's client does not know yet, for which that
raises ValueError (SchedulerReportClient.set_traits_for_provider).

One request at a time, as nova does: claims of builds ask placement, too, and
each of their requests would wait for all of these. A claim waits for the
writes of a few nodes, at most.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import itertools
import typing

from nova.compute import resource_tracker
import os_traits

from nova_ironic_multihost.contract import calls
from nova_ironic_multihost.contract import names
from nova_ironic_multihost.contract import reads

#: The first microversion of placement that has generations with traits.
VERSION = '1.6'

#: Nodes that are written while claims wait. One by one each would wait for a
#: claim in turn.
TOGETHER = 5

_Result = typing.TypeVar('_Result')


class ProviderTraits(typing.NamedTuple):
    """The traits of a resource provider, with its generation."""

    traits: frozenset[str]
    generation: int


class Traits:
    """The marks of nodes of disabled compute services.

    Implements the port :class:`.audit.sources.Traits`. Each method raises
    VirtDriverNotReady when placement answers with another error than those
    that are named there, and keystoneauth1.exceptions.ClientException when it
    does not answer.

    :param tracker: its :class:`.calls.Tracker` gives nova's client.
    """

    def __init__(self, tracker: calls.Tracker) -> None:
        self._tracker = tracker

    def disabled(self) -> frozenset[str]:
        """Return the uuids of all nodes that are marked."""
        return frozenset(reads.generations(
            names.admin_context(), self._tracker.report_client,
            os_traits.COMPUTE_STATUS_DISABLED))

    def read(self, nodes: Sequence[str]) -> dict[str, ProviderTraits]:
        """Return {node: its traits}; no entry for one without a provider."""
        return _each(self._read, nodes)

    def write(self, found: Mapping[str, ProviderTraits], disabled: bool
              ) -> dict[str, int]:
        """Mark nodes, or take that from them.

        :returns: {node: the generation of its provider now}; no entry for one
            that placement does not take, as when it is another by now.
        """
        written: dict[str, int] = {}
        nodes = iter(found)
        while some := list(itertools.islice(nodes, TOGETHER)):
            written.update(self._write_some(
                {node: found[node] for node in some}, disabled))
        return written

    def _read(self, node):
        answer = self._tracker.report_client.get(
            _url(node), version=VERSION,
            global_request_id=names.admin_context().global_id)
        if answer.status_code == 404:
            return None
        body = _body(answer)
        return ProviderTraits(frozenset(body['traits']),
                              body['resource_provider_generation'])

    # nova writes of a node under this lock. placement answers with 500 to one
    # of two that write of the same provider in the same moment, and a claim
    # fails then.
    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _write_some(self, found, disabled):
        return _each(
            lambda node: self._write(node, found[node], disabled), found)

    def _write(self, node, found, disabled):
        mark = {os_traits.COMPUTE_STATUS_DISABLED}
        traits = found.traits | mark if disabled else found.traits - mark
        if traits == found.traits:
            return found.generation
        answer = self._tracker.report_client.put(
            _url(node), {'resource_provider_generation': found.generation,
                         'traits': sorted(traits)}, version=VERSION,
            global_request_id=names.admin_context().global_id)
        if answer.status_code > 500:
            # placement is away. Each question may take a minute, and claims
            # wait for the lock.
            _body(answer)
        if not answer:
            # It is another by now, or two write at the same time; or there is
            # something about this one, which is not to keep others waiting.
            return None
        generation = answer.json()['resource_provider_generation']
        self._let_nova_know(node, traits, found.generation, generation)
        return generation

    def _let_nova_know(self, node, traits, before, after):
        """Let its client know what was written, or it would be refused next.

        If it knows another generation than that before, something else has
        changed, which it finds out when it is refused.
        """
        tree = self._tracker.report_client._provider_tree
        # The node may not have been audited yet.
        with contextlib.suppress(ValueError):
            if tree.data(node).generation == before:
                tree.update_traits(node, traits, generation=after)


def _url(node):
    return f'/resource_providers/{node}/traits'


def _body(answer):
    if not answer:
        raise names.VirtDriverNotReady(
            f'Placement does not say or take the traits of a node: '
            f'{answer.text}')
    return answer.json()


def _each(ask: Callable[[str], _Result | None], nodes: Iterable[str]
          ) -> dict[str, _Result]:
    """Return {node: answer} of those for which there is one."""
    return {node: answer for node in nodes
            if (answer := ask(node)) is not None}
