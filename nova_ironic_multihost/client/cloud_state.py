# SPDX-License-Identifier: Apache-2.0

"""The state of a cloud as nova, placement and Ironic report it.

:mod:`.cloud_client` fills a :class:`CloudState` through the APIs, the lab by
SQL; :mod:`.findings` checks it.

Times are seconds since the epoch. Host names keep nova's spelling and are
compared by :data:`~nova_ironic_multihost.rules.peers.HostKey`. None means
unknown.
"""

import collections
from collections import abc
import dataclasses
import enum
import functools
import typing

from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

_Value = typing.TypeVar('_Value')

#: The trait with which nova bars a provider from scheduling.
DISABLED_TRAIT = 'COMPUTE_STATUS_DISABLED'

#: Seconds in one task state after which a server counts as stuck. A deploy
#: needs minutes, and nova and Ironic give up earlier than this.
TASK_LIMIT = 3600.0


class CloudError(Exception):
    """An answer cannot be had; the message names the remedy."""


class Unanswered(CloudError):
    """A service gave no answer, or a server error; a retry may succeed."""


@dataclasses.dataclass(frozen=True)
class Service(peers.ComputeService):
    """One nova-compute service.

    :param up: as nova reports it: fresh heartbeat, and not forced down.
    :param disabled: also by a stop marker, other than in the driver.
    :param seen: time of the last heartbeat.
    :param mapped: the host is mapped to a cell.
    :param over: the stop marker is so old that its nodes wait no longer.
    :param reason: why it is disabled, '' without a reason.
    :param id: a uuid, '' if it was not read.
    :param alive: it is forced down and sends heartbeats, as
        :func:`.services.with_heartbeats` finds out.
    :param reached: nova reaches its cell's database; if not, only ``host``
        is known.
    """

    up: bool = True
    seen: float | None = None
    mapped: bool | None = True
    over: bool = False
    reason: str = ''
    id: str = ''
    alive: bool = False
    reached: bool = True

    @property
    def state(self) -> str:
        """Its state in a word."""
        if not self.reached:
            return 'unknown'
        if self.forced_down:
            return 'fenced, alive' if self.alive else 'fenced'
        return 'up' if self.up else 'down'

    @property
    def status(self) -> str:
        """Its status in a word, '' if that is not known."""
        if self.stop_marker:
            return 'ending' if self.up else 'ended'
        return 'disabled' if self.disabled else 'enabled' * self.reached

    @property
    def words(self) -> str:
        """Its status and state: "enabled and up", "disabled and fenced"."""
        return f'{self.status} and {self.state}'


def by_host(services: abc.Iterable[Service]) -> dict[HostKey, Service]:
    """Return host -> Service; of two spellings of a host the running one."""
    return {one.key: one for one in sorted(
        services, key=lambda one: (one.up, one.seen or 0))}


@dataclasses.dataclass(frozen=True)
class Node:
    """A node of Ironic.

    :param shard: '' for none.
    :param since: when it got its provision state.
    """

    uuid: str
    name: str = ''
    instance_uuid: str | None = None
    provision_state: str = 'available'
    maintenance: bool = False
    conductor_group: str = ''
    shard: str = ''
    since: float | None = None


@dataclasses.dataclass(frozen=True)
class Provider:
    """A resource provider of placement, with the sums of its inventories.

    :param id: changes when it is deleted and created again.
    :param name: '' if it was not read.
    """

    uuid: str
    total: int | None = None
    reserved: int | None = None
    used: int | None = None
    traits: frozenset[str] = frozenset()
    id: int | None = None
    name: str = ''


@dataclasses.dataclass(frozen=True)
class Allocation:
    """An allocation of ``provider`` (a node) to ``consumer`` (a server)."""

    consumer: str
    provider: str


@dataclasses.dataclass(frozen=True)
class CloudServer(model.InstanceState):
    """A server of nova, deleted or not."""

    host: str | None = None
    vm_state: str | None = 'active'
    uuid: str = dataclasses.field(kw_only=True)
    name: str = ''
    updated: float = 0.0
    project: str = ''
    user: str = ''


class Usage(enum.Enum):
    """The use of a node; the value is for people.

    :cvar USED: by a server, which may still be in a build.
    :cvar LEAKED: held for a server that nova has deleted.
    :cvar UNKNOWN: held for a server that nova does not know.
    :cvar NO_SERVER: active, but held for no server.
    """

    FREE = 'free'
    USED = 'used'
    LEAKED = 'leaked'
    UNKNOWN = 'unknown server'
    NO_SERVER = 'no server'

    @property
    def stray(self) -> bool:
        """Whether the node is in use without a server."""
        return self not in (Usage.FREE, Usage.USED)


@dataclasses.dataclass(frozen=True)
class CloudState:
    """The answers of nova, placement and Ironic.

    The services are read one after the other, so a change in between may show
    only in part. To be certain, read twice.

    :ivar at: when the compute services were read
    :ivar second: records with another uuid than their node, beside its own
    :ivar others: hosts with hypervisors that are not Ironic's
    :ivar allocations: None if they were not read
    :ivar instances: all servers that are not deleted, and deleted ones that an
        Ironic node still names
    :ivar zones: host -> its explicit availability zone
    :ivar task_limit: seconds that a server may stay in one task state
    """

    at: float = 0.0
    services: tuple[Service, ...] = ()
    records: tuple[model.Record, ...] = ()
    second: tuple[model.Record, ...] = ()
    others: frozenset[HostKey] = frozenset()
    nodes: tuple[Node, ...] = ()
    providers: tuple[Provider, ...] = ()
    allocations: tuple[Allocation, ...] | None = ()
    instances: tuple[CloudServer, ...] = ()
    zones: abc.Mapping[HostKey, str] = dataclasses.field(default_factory=dict)
    task_limit: float = TASK_LIMIT

    @functools.cached_property
    def service_of(self) -> dict[HostKey, Service]:
        """Host -> Service."""
        return by_host(self.services)

    @functools.cached_property
    def owner_of(self) -> dict[str, HostKey]:
        """Node uuid -> host."""
        return {record.node: record.owner for record in self.records}

    @functools.cached_property
    def instance_of(self) -> dict[str, CloudServer]:
        """Server uuid -> CloudServer, also of deleted servers."""
        return {instance.uuid: instance for instance in self.instances}

    @functools.cached_property
    def node_of(self) -> dict[str, Node]:
        """Node uuid -> Node."""
        return {node.uuid: node for node in self.nodes}

    @functools.cached_property
    def provider_of(self) -> dict[str, Provider]:
        """Node uuid -> Provider."""
        return {provider.uuid: provider for provider in self.providers}

    @functools.cached_property
    def up_hosts(self) -> frozenset[HostKey]:
        """Hosts that nova reports as up."""
        return frozenset(s.key for s in self.services if s.up)

    @functools.cached_property
    def used_nodes(self) -> frozenset[str]:
        """Uuids of the nodes with an ``instance_uuid`` in Ironic."""
        return frozenset(n.uuid for n in self.nodes if n.instance_uuid)

    @functools.cached_property
    def server_of(self) -> dict[str, str]:
        """Node uuid -> uuid of its server, or of the server being built."""
        # A new server names its node before Ironic does the reverse.
        servers = {i.node: i.uuid for i in self.instances
                   if i.node and not i.deleted}
        servers.update((n.uuid, n.instance_uuid) for n in self.nodes
                       if n.instance_uuid)
        return servers

    @functools.cached_property
    def server_on(self) -> dict[str, CloudServer]:
        """Node uuid -> the server that Ironic holds it for, if nova has it."""
        return {node.uuid: server for node in self.nodes if (
            server := self.instance_of.get(node.instance_uuid or ''))
            and not server.deleted}

    @functools.cached_property
    def names(self) -> dict[HostKey, str]:
        """Host -> its name, of all compute services and owners, sorted.

        The compute service's spelling; the record's if there is no service.
        """
        names = {record.owner: record.host for record in self.records}
        names.update((s.key, s.host) for s in self.services)
        return dict(sorted(names.items()))

    def with_fenced(self, hosts: abc.Set[HostKey]) -> 'CloudState':
        """Return this state with hosts that count as fenced."""
        return dataclasses.replace(self, services=tuple(
            dataclasses.replace(service, up=False, forced_down=True)
            if service.key in hosts else service
            for service in self.services))

    @functools.cached_property
    def _owned(self) -> dict[HostKey, list[str]]:
        return _grouped((owner, node) for node, owner
                        in sorted(self.owner_of.items()))

    @functools.cached_property
    def _servers(self) -> dict[HostKey, list[CloudServer]]:
        return _grouped((one.host_key, one) for one in self.instances
                        if one.host_key is not None and not one.deleted)

    def owned_by(self, host: str) -> list[str]:
        """Return the uuids of the nodes that a host owns, sorted."""
        return self._owned.get(host_key(host), [])

    def servers_of(self, host: str) -> list[CloudServer]:
        """Return the servers of a host that are not deleted."""
        return self._servers.get(host_key(host), [])

    def free_of(self, host: str) -> list[str]:
        """Return the uuids of the host's nodes without server, sorted."""
        return [n for n in self.owned_by(host) if n not in self.used_nodes]

    def leaked(self) -> list[Node]:
        """Return the nodes that Ironic holds for a deleted server."""
        return [n for n in self.nodes if self.usage(n) is Usage.LEAKED]

    def usage(self, node: Node) -> Usage:
        """Return the use of a node."""
        if node.instance_uuid is None:
            return (Usage.NO_SERVER if node.provision_state == 'active'
                    else Usage.FREE)
        instance = self.instance_of.get(node.instance_uuid)
        if instance is None:
            return Usage.UNKNOWN
        return Usage.LEAKED if instance.deleted else Usage.USED

    def task(self, instance: CloudServer) -> str:
        """Return the task state of a server in words, '' for none.

        A takeover mark has only a hash of its host; it is compared with the
        hosts of nova's compute services.
        """
        doing = instance.task_state
        if not takeover.is_mark(doing):
            return doing or ''
        hosts = [service.host for service in self.services
                 if not takeover.is_anothers(doing, service.key)]
        before = takeover.before_mark(doing)
        return (f'taken over by {hosts[0] if hosts else "somebody"}'
                + (f', was {before}' if before else ''))


def _grouped(pairs: abc.Iterable[tuple[HostKey, _Value]]
             ) -> dict[HostKey, list[_Value]]:
    found = collections.defaultdict[HostKey, list[_Value]](list)
    for host, value in pairs:
        found[host].append(value)
    return found
