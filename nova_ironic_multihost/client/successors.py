# SPDX-License-Identifier: Apache-2.0

"""Find the hosts that take the nodes and servers of a compute service."""

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
    """The hosts that share the nodes when one compute service is down.

    :param seen: with its zones
    :param host: counts as down, even if it is up
    :param settings: of nova.conf on the other hosts
    """

    def __init__(self, seen: cloud_state.CloudState, host: str,
                 settings: ownership_report.SharedSettings) -> None:
        self.host = host_key(host)
        report = ownership_report.OwnershipReport(
            dataclasses.replace(seen, services=tuple(
                dataclasses.replace(service, up=False)
                if service.key == self.host else service
                for service in seen.services)), settings)
        self._report = report
        self._zones = report.zones

    def served(self, node: str) -> bool:
        """Return whether others serve the partition of a node."""
        part = self._partition(node)
        return part.whole or bool(self._report.preferences(part).members)

    def of_node(self, node: str) -> HostKey | None:
        """Return the next owner of a free node, None if there is none."""
        return self._report.preferences(self._partition(node)).host_for(
            node, self._zones.get(self.host))

    def of_server(self, node: str) -> HostKey | None:
        """Return the next host of the server on a node, or None."""
        preferences = self._report.preferences(self._partition(node))
        zone = self._zones.get(self.host)
        owner = self._report.seen.owner_of.get(node)
        if owner is not None and preferences.may_keep(owner, zone):
            return owner
        return preferences.takeover_target(node, zone)

    def _partition(self, node: str) -> partitions.NodeShare:
        found = self._report.partitions
        its = self._report.seen.node_of.get(node)
        part = found.of_node(its) if its else found.of_host(self.host)
        return part or partitions.NodeShare(frozenset(), frozenset())
