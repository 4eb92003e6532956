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

"""Reservations: placement offers nothing of a node while its record moves.

What nova's tracker and the driver do for a node that is pulled, in four
requests for it instead of thirteen. A build that is sent to the old owner
either makes the generation of the provider another, and the node stays; or it
finds nothing to allocate, and the scheduler sends it elsewhere. Of two hosts
that pull a node one makes the reservation.
"""

from __future__ import annotations

from collections.abc import Mapping
import typing

from keystoneauth1 import exceptions as ks_exception
from nova.scheduler.client import report

from nova_ironic_multihost.contract import names
from nova_ironic_multihost.contract import reads

#: The first microversion of placement in which all of a provider may be
#: reserved.
VERSION = '1.26'


class Reservation:
    """The reservation of one node. One thread at a time uses it.

    :param client: nova's client of placement.
    :param node: uuid of the node, which is that of its provider.
    :param inventories: what placement offers of it.
    :param generation: of its provider, as they were read.
    """

    def __init__(self, client: report.SchedulerReportClient, node: str,
                 inventories: Mapping[str, Mapping[str, typing.Any]],
                 generation: int) -> None:
        self.node = node
        self._client = client
        self._inventories = inventories
        self._generation = generation

    def make(self) -> bool:
        """Let nothing be offered, if nothing has changed since it was read.

        :returns: whether that is so; if not, it is not known.
        """
        return self._write({name: {**item, 'reserved': item['total']}
                            for name, item in self._inventories.items()})

    def end(self) -> bool:
        """Let it be offered as before; returns as :meth:`make`."""
        return self._write(self._inventories)

    def _write(self, inventories):
        try:
            answer = self._client.put(
                _url(self.node),
                {'resource_provider_generation': self._generation,
                 'inventories': inventories}, version=VERSION,
                global_request_id=names.admin_context().global_id)
            if not answer:
                return False
            self._generation = answer.json()['resource_provider_generation']
        except (ks_exception.ClientException, ValueError, LookupError,
                TypeError):
            # Placement is away, or a proxy has answered in its place.
            return False
        return True


def of_idle(client: report.SchedulerReportClient, node: str
            ) -> Reservation | None:
    """Return what can reserve a node, None if it is not known to be idle.

    One of which nothing is offered is not taken for idle: what is to be
    offered of it, placement does not know.
    """
    context = names.admin_context()
    try:
        answer = client.get(_url(node), global_request_id=context.global_id)
    except ks_exception.ClientException:
        return None
    if not answer:
        return None
    body = answer.json()
    inventories = body['inventories']
    if not inventories or any(item['reserved'] for item
                              in inventories.values()):
        return None
    # After that: whatever is allocated from here on changes the generation.
    if reads.consumers(context, client, node) != frozenset():
        return None
    return Reservation(client, node, inventories,
                       body['resource_provider_generation'])


def _url(node):
    return f'/resource_providers/{node}/inventories'
