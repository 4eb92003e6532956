# SPDX-License-Identifier: Apache-2.0

"""May a compute service be drained, and which nodes does it still own?

Without I/O. A disabled compute service keeps its nodes with servers. The
audits of the others take its idle nodes (:mod:`.rules.ownership`, rule 9).
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import typing

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import forecast
from nova_ironic_multihost.client import ownership_report

#: The default disabled_reason of a drained compute service.
REASON = 'nova-ironic-multihost: drained'


def refusal(services: tuple[cloud_state.Service, ...],
            service: cloud_state.Service) -> str | None:
    """Return why a compute service may not be drained, None if it may."""
    if any(s != service for s in forecast.open_for_builds(services)):
        return None
    outage = fencing.outage(services)
    if outage:
        return outage
    spare = sorted(s.host for s in services
                   if s.up and s.disabled and s != service)
    remedy = (f'enable another one first ("undrain {spare[0]}")' if spare
              else 'start another one first')
    return (f'Besides {service.host} no compute service is enabled and up: '
            'every build would end in ERROR, and nobody would take its nodes. '
            f'So {remedy}; or say --even-if-last')


def wanted(service: cloud_state.Service,
           reason: str | None) -> dict[str, typing.Any]:
    """Return the request to nova that drains it, {} if it is drained.

    :param reason: new disabled_reason; None keeps the present one, or sets
        :data:`REASON`
    """
    # Its next start removes a stop marker and enables it, and unfence enables
    # it after a fence. Neither counts as drained.
    drained = service.disabled and not (
        service.stop_marker or service.reason.startswith(fencing.REASON))
    if drained and reason in (None, service.reason):
        return {}
    return {'status': 'disabled', 'disabled_reason': reason or REASON}


@dataclasses.dataclass(frozen=True)
class Leftover:
    """The nodes that a drained compute service still owns, as numbers.

    :ivar waits: host, as nova spells it -> free nodes that it will take
    :ivar stays: free nodes that no host may take
    :ivar serving: nodes with servers
    :ivar hidden: nodes that Ironic does not show
    :ivar strays: nodes held for a server that nova does not have
    """

    waits: Mapping[str, int]
    stays: int
    serving: int
    hidden: int
    strays: int

    @property
    def free(self) -> int:
        """The number of free nodes."""
        return sum(self.waits.values()) + self.stays


def left(seen: cloud_state.CloudState, host: str,
         settings: ownership_report.SharedSettings) -> Leftover:
    """Count the nodes that a compute service still owns.

    :param seen: with its zones
    :param settings: of nova.conf on the other hosts
    """
    others = forecast.Successors(seen, host, settings)
    counts: dict[str, int] = collections.Counter()
    stays = serving = hidden = strays = 0
    for node in seen.owned_by(host):
        server = seen.server_of.get(node)
        if server is not None:
            instance = seen.instance_of.get(server)
            if instance is None or instance.deleted:
                strays += 1
            else:
                serving += 1
        elif node not in seen.node_of:
            hidden += 1
        elif (target := others.of_node(node)) is None:
            stays += 1
        else:
            counts[seen.service_of[target].host] += 1
    return Leftover(dict(sorted(counts.items())), stays, serving, hidden,
                    strays)


def sentences(found: Leftover) -> Iterator[str]:
    """Yield a sentence for each kind of node."""
    if found.waits:
        targets = ', '.join(f'{host} {number}'
                            for host, number in found.waits.items())
        yield (f'{_nodes(sum(found.waits.values()))} free and on the way: '
               f'{targets}')
    if found.stays:
        yield (f'{_nodes(found.stays)} free, and nobody may take them: no '
               'other compute service of this availability zone (or of none) '
               'and partition is enabled and up')
    if found.serving:
        yield (f'{_nodes(found.serving)} with servers: they stay until the '
               'servers are deleted')
    if found.strays:
        yield (f'{_nodes(found.strays)} held for servers that nova does not '
               'have: "nova-ironic-multihost leaks" says what becomes of them')
    if found.hidden:
        yield (f'{_nodes(found.hidden)} that Ironic does not show: gone, or '
               'hidden from this account; who owns them lets them go')


#: Why a free node may still wait; no API shows these causes.
HIDDEN_CAUSES = (
    'Others take free nodes with their audits, every minute as a rule, '
    'when they have been up for two of them; a node that a build is on its '
    'way to after that; none with [ironic_multihost]pulls_per_audit = 0')


def _nodes(number: int) -> str:
    return '1 node is' if number == 1 else f'{number} nodes are'
