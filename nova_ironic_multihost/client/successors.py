# SPDX-License-Identifier: Apache-2.0

"""Who takes what a compute service leaves, as far as it shows from outside."""

import dataclasses

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import partitions
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey


def open_for_builds(services: tuple[cloud_state.Service, ...]
                    ) -> list[cloud_state.Service]:
    """Return the compute services that nova sends builds to."""
    return [s for s in services if s.up and not s.disabled]


class Successors:
    """Those that share the nodes when one compute service is gone.

    :param seen: with its zones
    :param host: the one that is gone, whether it is or not
    :param settings: what they have in nova.conf
    """

    def __init__(self, seen: cloud_state.CloudState, host: str,
                 settings: ownership_report.SharedSettings) -> None:
        self.host = host_key(host)
        judged = ownership_report.OwnershipReport(
            dataclasses.replace(seen, services=tuple(
                dataclasses.replace(service, up=False)
                if service.key == self.host else service
                for service in seen.services)), settings)
        self._judged = judged
        self._zones = judged.zones

    def served(self, node: str) -> bool:
        """Whether its conductor group and shard are served by others."""
        part = self._partition(node)
        return part.whole or bool(self._judged.preferences(part).members)

    def of_node(self, node: str) -> HostKey | None:
        """Return who is to have a free node, None for nobody."""
        return self._judged.preferences(self._partition(node)).host_for(
            node, self._zones.get(self.host))

    def of_server(self, node: str) -> HostKey | None:
        """Return who is to have the server on a node, None for nobody."""
        preferences = self._judged.preferences(self._partition(node))
        zone = self._zones.get(self.host)
        owner = self._judged.seen.owner_of.get(node)
        if owner is not None and preferences.may_keep(owner, zone):
            return owner
        return preferences.takeover_target(node, zone)

    def _partition(self, node: str) -> partitions.NodeShare:
        found = self._judged.partitions
        its = self._judged.seen.node_of.get(node)
        part = found.of_node(its) if its else found.of_host(self.host)
        return part or partitions.NodeShare(frozenset(), frozenset())
