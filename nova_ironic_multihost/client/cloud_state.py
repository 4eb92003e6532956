# SPDX-License-Identifier: Apache-2.0

"""What nova, placement and Ironic say, side by side.

:mod:`survey` makes an :class:`CloudState` by the APIs, the lab by SQL;
:mod:`findings` judges it. Nothing here asks anybody.

Times are seconds since the epoch. Host names are kept as nova spells them
and compared by their :data:`~nova_ironic_multihost.rules.peers.HostKey`. None
stands for what could not be asked; nobody concludes anything from it.
"""

import collections
import dataclasses
import functools

from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

#: The trait with which nova bars a provider from scheduling.
DISABLED_TRAIT = 'COMPUTE_STATUS_DISABLED'

#: Seconds after which a server that is in one task state is called stuck. A
#: machine needs minutes to deploy; nova and Ironic give up before this.
TASK_LIMIT = 3600.0


class CloudError(Exception):
    """The cloud cannot be asked; one sentence or two, with the remedy."""


class Unanswered(CloudError):
    """Nobody answers, or only that it fails: later it may."""


@dataclasses.dataclass(frozen=True)
class Service:
    """One nova-compute service.

    ``up`` is what nova itself answers: the last heartbeat (``seen``) is
    fresh and nobody has forced the service down. ``mapped`` says whether the
    host is mapped to a cell. ``stop marker`` is what it has said when it was
    told to end (:mod:`.rules.stop_marker`), '' if nothing, and ``over`` says
    whether that is longer ago than its nodes wait for it; False if that is not
    known. ``reason`` is that for which it is disabled, '' without one. ``id``
    is a uuid, '' if nobody asked for it. ``reached`` says whether nova reaches
    the database of its cell; if not, only its host is known.
    """

    host: str
    up: bool = True
    disabled: bool = False
    forced_down: bool = False
    seen: float | None = None
    mapped: bool | None = True
    stop_marker: str = ''
    over: bool = False
    reason: str = ''
    id: str = ''
    reached: bool = True

    @property
    def key(self) -> HostKey:
        """The host in lower case."""
        return host_key(self.host)

    @property
    def at_work(self) -> tuple[bool, float]:
        """Greater for the one that is at work, of two spellings of a host."""
        return self.up, self.seen or 0


@dataclasses.dataclass(frozen=True)
class CloudRecord:
    """A live row of nova's compute_nodes: ``host`` owns ``node``.

    nova gives a row that is deleted and made anew another ``id``. ``name`` is
    the node that the row names, '' if nobody asked; ``node`` is its uuid.
    """

    node: str
    host: str
    created: float | None = None
    updated: float | None = None
    id: int | None = None
    name: str = ''

    @property
    def key(self) -> HostKey:
        """The host in lower case."""
        return host_key(self.host)

    @property
    def second(self) -> bool:
        """Whether it is a record of a node that has another one."""
        return self.name not in ('', self.node)


@dataclasses.dataclass(frozen=True)
class Node:
    """A node as Ironic has it.

    ``since`` is when it got its provision state. ``shard`` is '' for none,
    and where Ironic has no shards.
    """

    uuid: str
    name: str = ''
    instance_uuid: str | None = None
    provision_state: str = 'available'
    power_state: str | None = 'power on'
    maintenance: bool = False
    conductor_group: str = ''
    shard: str = ''
    since: float | None = None


@dataclasses.dataclass(frozen=True)
class Provider:
    """A resource provider of placement, its inventories added up.

    placement gives one that is deleted and made anew another ``id``.
    """

    uuid: str
    total: int | None = None
    reserved: int | None = None
    used: int | None = None
    traits: frozenset[str] = frozenset()
    id: int | None = None


@dataclasses.dataclass(frozen=True)
class Allocation:
    """``consumer`` (a server) has resources of ``provider`` (a node)."""

    consumer: str
    provider: str


@dataclasses.dataclass(frozen=True)
class CloudServer:
    """A server, living or deleted, as nova has it."""

    uuid: str
    name: str = ''
    host: str | None = None
    node: str | None = None
    vm_state: str = 'active'
    task_state: str | None = None
    deleted: bool = False
    updated: float = 0.0

    @property
    def key(self) -> HostKey | None:
        """The host in lower case, None without one."""
        return host_key(self.host) if self.host else None


@dataclasses.dataclass(frozen=True)
class CloudState:
    """What nova, placement and Ironic say, side by side.

    The three are asked one after the other. An observation may show half of
    what happens meanwhile; whoever needs certainty looks again.

    ``instances`` holds all living ones, and may hold deleted ones that an
    Ironic node still names. ``zones`` holds pairs of a host and its explicit
    availability zone. ``allocations`` and ``zones`` are None when nobody
    asked for them.

    :ivar at: when nova was asked for the services
    :ivar task_limit: seconds for which a server may be in one task state
    """

    at: float = 0.0
    services: tuple[Service, ...] = ()
    records: tuple[CloudRecord, ...] = ()
    nodes: tuple[Node, ...] = ()
    providers: tuple[Provider, ...] = ()
    allocations: tuple[Allocation, ...] | None = ()
    instances: tuple[CloudServer, ...] = ()
    zones: tuple[tuple[HostKey, str], ...] | None = ()
    task_limit: float = TASK_LIMIT

    @functools.cached_property
    def service_of(self) -> dict[HostKey, Service]:
        """Host -> Service; of two spellings the one that is at work."""
        found: dict[HostKey, Service] = {}
        for service in self.services:
            before = found.get(service.key)
            if before is None or service.at_work > before.at_work:
                found[service.key] = service
        return found

    @functools.cached_property
    def owner_of(self) -> dict[str, HostKey]:
        """Node uuid -> host."""
        return {record.node: record.key for record in self.records}

    @functools.cached_property
    def instance_of(self) -> dict[str, CloudServer]:
        """Instance uuid -> Instance, deleted ones included."""
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
        """Hosts that nova calls up."""
        return frozenset(s.key for s in self.services if s.up)

    @functools.cached_property
    def used_nodes(self) -> frozenset[str]:
        """Uuids of nodes that Ironic says have an instance."""
        return frozenset(n.uuid for n in self.nodes if n.instance_uuid)

    @functools.cached_property
    def server_of(self) -> dict[str, str]:
        """Node uuid -> uuid of the server that has it, or is to have it."""
        # A server names its node before Ironic holds the node for it.
        servers = {i.node: i.uuid for i in self.instances
                   if i.node and not i.deleted}
        servers.update((n.uuid, n.instance_uuid) for n in self.nodes
                       if n.instance_uuid)
        return servers

    @functools.cached_property
    def names(self) -> dict[HostKey, str]:
        """Host -> its name, of all services and owners, sorted.

        As nova's services spell it, or the record of one that has none.
        """
        names = {record.key: record.host for record in self.records}
        names.update((s.key, s.host) for s in self.services)
        return dict(sorted(names.items()))

    def owned_by(self, host: str) -> list[str]:
        """Uuids of the nodes whose record names this host, sorted."""
        key = host_key(host)
        return sorted(n for n, owner in self.owner_of.items() if owner == key)

    def free_of(self, host: str) -> list[str]:
        """Uuids of the host's nodes without an instance, sorted."""
        return [n for n in self.owned_by(host) if n not in self.used_nodes]

    def leaked(self) -> list[Node]:
        """Nodes that Ironic holds for a server that nova has deleted."""
        gone = {i.uuid for i in self.instances if i.deleted}
        return [n for n in self.nodes if n.instance_uuid in gone]

    def owners(self) -> dict[str, int]:
        """How many nodes each host owns.

        :returns: {host as nova spells it: number} of hosts that are up or
            own something
        """
        owning = {record.key for record in self.records}
        counts = collections.Counter(self.owner_of.values())
        return {name: counts[key] for key, name in self.names.items()
                if key in self.up_hosts or key in owning}
