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

"""Is every node owned by exactly one compute, and all else in its place?

Pure, and of the standard library alone: from what nova, placement and
Ironic say (an :class:`Observation`) to what is wrong with it (a list of
:class:`Finding`). Who asks the three is somebody else's business.

What holds when nothing is going on, whatever happened before:

- every node has exactly one record, on a host that is up and mapped to a
  cell, and one resource provider;
- no allocation without a server, no server on a host without allocation;
- no node is held by Ironic for a server that does not exist;
- no server waits in a task state for ever;
- a free node of an enabled host is not barred from scheduling.

While servers are built or deleted and while nodes change hands some of this
is untrue for a moment; :func:`wait` gives it time.

Times are seconds since the epoch. Host names are kept as nova spells them
and compared in lower case. What nobody could ask is None, and nothing is
concluded from it.
"""

import collections
import dataclasses
import functools
import time

#: The trait with which nova bars a provider from scheduling.
DISABLED_TRAIT = 'COMPUTE_STATUS_DISABLED'

#: Seconds after which a server that is in one task state is called stuck. A
#: machine needs minutes to deploy; nova and Ironic give up before this.
TASK_LIMIT = 3600.0

_MAP = '"nova-manage cell_v2 discover_hosts --by-service" maps it'


@dataclasses.dataclass(frozen=True)
class Service:
    """One nova-compute service.

    ``up`` is what nova itself answers: the last heartbeat (``seen``) is
    fresh and nobody has forced the service down. ``mapped`` says whether the
    host is mapped to a cell.
    """

    host: str
    up: bool = True
    disabled: bool = False
    forced_down: bool = False
    seen: float | None = None
    mapped: bool | None = True

    @property
    def key(self):
        """The host in lower case."""
        return self.host.lower()


@dataclasses.dataclass(frozen=True)
class Record:
    """A live row of nova's compute_nodes: ``host`` owns ``node``.

    One that was deleted and made anew has another ``id``.
    """

    node: str
    host: str
    created: float | None = None
    updated: float | None = None
    id: int | None = None

    @property
    def key(self):
        """The host in lower case."""
        return self.host.lower()


@dataclasses.dataclass(frozen=True)
class Node:
    """A node as Ironic has it."""

    uuid: str
    name: str = ''
    instance_uuid: str | None = None
    provision_state: str = 'available'
    power_state: str | None = 'power on'
    maintenance: bool = False


@dataclasses.dataclass(frozen=True)
class Provider:
    """A resource provider of placement, its inventories added up.

    One that was deleted and made anew has another ``id``.
    """

    uuid: str
    total: int | None = None
    reserved: int | None = None
    used: int | None = None
    traits: frozenset = frozenset()
    id: int | None = None


@dataclasses.dataclass(frozen=True)
class Allocation:
    """``consumer`` (a server) has resources of ``provider`` (a node)."""

    consumer: str
    provider: str


@dataclasses.dataclass(frozen=True)
class Instance:
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
    def key(self):
        """The host in lower case, None without one."""
        return self.host.lower() if self.host else None


@dataclasses.dataclass(frozen=True)
class Observation:
    """What nova, placement and Ironic say, side by side.

    The three are asked one after the other, so that an observation made
    while something happens may show half of it; whoever needs certainty
    looks again.

    Each field is a tuple of the above. ``instances`` holds all living ones,
    and may hold deleted ones that an Ironic node still names. ``zones``
    holds (host in lower case, explicit availability zone) pairs.
    ``allocations`` and ``zones`` are None when nobody asked for them.

    :ivar task_limit: seconds for which a server may be in one task state
    """

    at: float = 0.0
    services: tuple = ()
    records: tuple = ()
    nodes: tuple = ()
    providers: tuple = ()
    allocations: tuple | None = ()
    instances: tuple = ()
    zones: tuple | None = ()
    task_limit: float = TASK_LIMIT

    @functools.cached_property
    def service_of(self):
        """Host name in lower case -> Service."""
        return {service.key: service for service in self.services}

    @functools.cached_property
    def owner_of(self):
        """Node uuid -> host name in lower case."""
        return {record.node: record.key for record in self.records}

    @functools.cached_property
    def instance_of(self):
        """Instance uuid -> Instance, deleted ones included."""
        return {instance.uuid: instance for instance in self.instances}

    @functools.cached_property
    def node_of(self):
        """Node uuid -> Node."""
        return {node.uuid: node for node in self.nodes}

    @functools.cached_property
    def provider_of(self):
        """Node uuid -> Provider."""
        return {provider.uuid: provider for provider in self.providers}

    @functools.cached_property
    def up_hosts(self):
        """Hosts that nova calls up, in lower case."""
        return frozenset(s.key for s in self.services if s.up)

    @functools.cached_property
    def used_nodes(self):
        """Uuids of nodes that Ironic says have an instance."""
        return frozenset(n.uuid for n in self.nodes if n.instance_uuid)

    def owned_by(self, host):
        """Uuids of the nodes whose record names this host, sorted."""
        host = host.lower()
        return sorted(n for n, owner in self.owner_of.items()
                      if owner == host)

    def free_of(self, host):
        """Uuids of the host's nodes without an instance, sorted."""
        return [n for n in self.owned_by(host) if n not in self.used_nodes]

    def leaked(self):
        """Nodes that Ironic holds for a server that nova has deleted."""
        gone = {i.uuid for i in self.instances if i.deleted}
        return [n for n in self.nodes if n.instance_uuid in gone]

    def owners(self):
        """How many nodes each host owns.

        :returns: {host as nova spells it: number} of hosts that are up or
            own something
        """
        names = {record.key: record.host for record in self.records}
        names.update((s.key, s.host) for s in self.services
                     if s.up or s.key in names)
        counts = collections.Counter(self.owner_of.values())
        return {names[key]: counts[key] for key in sorted(names)}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its kind, whom it concerns, a sentence."""

    kind: str
    subject: str
    sentence: str


#: The kind of finding that lasts for as long as a compute that has servers
#: is away: their nodes stay with it.
STRANDED = 'instance-on-dead-host'


def inconsistencies(seen, now, hosts=()):
    """Everything in an observation that is not as it should be.

    :param seen: an :class:`Observation`
    :param now: seconds since the epoch; tells how long a task state lasts
    :param hosts: names of compute services that must exist and be up
    :returns: a list of :class:`Finding`, empty when consistent
    """
    return [*_expected(seen, hosts), *_records(seen), *_hosts(seen),
            *_providers(seen), *_allocations(seen), *_machines(seen),
            *_tasks(seen, now)]


def _expected(seen, hosts):
    for host in hosts:
        service = seen.service_of.get(host.lower())
        if service is None:
            yield Finding('compute-missing', host,
                          f'nova has no compute service {host}: it never '
                          'started, or has another name in its nova.conf')
        elif not service.up:
            why = ('is forced down' if service.forced_down
                   else 'is down: nova misses its heartbeat')
            yield Finding('compute-not-up', host, f'{service.host} {why}')


def _records(seen):
    # A server names its node before Ironic holds the node for it.
    in_use = {i.node: i.uuid for i in seen.instances
              if i.node and not i.deleted}
    in_use.update((n.uuid, n.instance_uuid) for n in seen.nodes
                  if n.instance_uuid)
    owners = {}
    for record in seen.records:
        owners.setdefault(record.node, []).append(record.host)
    for node in seen.nodes:
        hosts = owners.pop(node.uuid, [])
        if not hosts:
            yield Finding('node-without-record', node.uuid,
                          f'node {node.uuid} has no record: no compute '
                          f'owns it{_unless_hidden(seen)}')
        elif len(hosts) > 1:
            yield Finding('node-with-many-records', node.uuid,
                          f'node {node.uuid} has {len(hosts)} records: '
                          f'{", ".join(sorted(hosts))}')
        for host in hosts:
            if host.lower() not in seen.up_hosts:
                yield _on_dead_host(node, host, in_use.get(node.uuid))
    for uuid, hosts in owners.items():
        yield Finding('record-without-node', uuid,
                      f'{", ".join(sorted(hosts))} has a record of node '
                      f'{uuid}, which Ironic does not show: it is gone, or '
                      'hidden from who asks')


def _unless_hidden(seen):
    """What else may be true when records may exist that are not shown."""
    unknown = sorted(s.host for s in seen.services if s.mapped is None)
    if not unknown:
        return ''
    return (f', or one whose host is not mapped to a cell ({_MAP}; of '
            f'{_some(unknown)} it is not known)')


def _some(names, shown=3):
    more = len(names) - shown
    return ', '.join(names[:shown]) + (f' and {more} more' if more > 0
                                       else '')


def _on_dead_host(node, host, server):
    where = f'is recorded on {host}, which is not up'
    if server:
        return Finding(STRANDED, node.uuid,
                       f'node {node.uuid} of server {server} {where}: '
                       f'nobody manages it until {host} is back')
    return Finding('record-on-dead-host', node.uuid,
                   f'node {node.uuid} {where}')


def _hosts(seen):
    owning = {record.key for record in seen.records}
    for service in seen.services:
        if service.mapped is False and (
                service.up or service.key in owning):
            yield Finding('host-not-mapped', service.host,
                          f'{service.host} is not mapped to a cell: builds '
                          f'sent there fail ({_MAP})')


def _providers(seen):
    for node in seen.nodes:
        if node.uuid not in seen.provider_of:
            yield Finding('node-without-provider', node.uuid,
                          f'node {node.uuid} has no resource provider')
    for provider in seen.providers:
        node = seen.node_of.get(provider.uuid)
        if node is None:
            yield Finding('provider-without-node', provider.uuid,
                          f'resource provider {provider.uuid} stands for a '
                          'node that Ironic does not show: it is gone, or '
                          'hidden from who asks')
            continue
        owner = seen.service_of.get(seen.owner_of.get(provider.uuid))
        if (owner and owner.up and not owner.disabled
                and not node.instance_uuid
                and DISABLED_TRAIT in provider.traits):
            yield Finding('free-node-barred', provider.uuid,
                          f'node {provider.uuid} is free and {owner.host} '
                          'is enabled, yet its provider is marked disabled')


def _allocations(seen):
    if seen.allocations is None:
        return
    has_allocation = set()
    for allocation in seen.allocations:
        has_allocation.add(allocation.consumer)
        instance = seen.instance_of.get(allocation.consumer)
        if instance is None or instance.deleted:
            yield Finding('allocation-without-instance', allocation.provider,
                          f'node {allocation.provider} is allocated to '
                          f'server {allocation.consumer}, which does not '
                          'exist')
    for instance in seen.instances:
        if (instance.host and not instance.deleted
                and instance.uuid not in has_allocation):
            yield Finding('instance-without-allocation', instance.uuid,
                          f'server {_named(instance)} is on {instance.host} '
                          'without an allocation')


def _machines(seen):
    for node in seen.nodes:
        if node.instance_uuid:
            instance = seen.instance_of.get(node.instance_uuid)
            if instance is None or instance.deleted:
                yield Finding('leaked-machine', node.uuid,
                              f'node {node.uuid} ({node.provision_state}) '
                              f'is held for server {node.instance_uuid}, '
                              'which does not exist')
            elif (instance.key and node.uuid in seen.owner_of
                    and seen.owner_of[node.uuid] != instance.key):
                yield Finding('record-elsewhere', node.uuid,
                              f'node {node.uuid} is recorded on '
                              f'{seen.owner_of[node.uuid]}, its server '
                              f'{_named(instance)} is on {instance.host}')
        elif node.provision_state == 'active':
            yield Finding('leaked-machine', node.uuid,
                          f'node {node.uuid} is active for no server')
    held = {node.instance_uuid for node in seen.nodes}
    for instance in seen.instances:
        if (instance.vm_state in ('active', 'stopped')
                and not instance.deleted and instance.uuid not in held):
            yield Finding('instance-without-machine', instance.uuid,
                          f'server {_named(instance)} is '
                          f'{instance.vm_state}, yet no Ironic node is held '
                          'for it')


def _tasks(seen, now):
    for instance in seen.instances:
        if instance.deleted or not instance.task_state:
            continue
        age = now - instance.updated
        if age > seen.task_limit:
            yield Finding('stuck', instance.uuid,
                          f'server {_named(instance)} has been '
                          f'{instance.task_state} for {age:.0f} s')


def _named(instance):
    return f'{instance.name} ({instance.uuid})' if instance.name else (
        instance.uuid)


def busy(seen):
    """Servers that are in the middle of something, as a number."""
    return sum(1 for i in seen.instances if i.task_state and not i.deleted)


def wait(read, seconds, hosts=(), clock=time.time, sleep=time.sleep):
    """Look again and again until all is consistent or the time is over.

    :param read: a function without arguments that returns an Observation
    :param seconds: how long; 0 looks once
    :param hosts: names of compute services that must exist and be up
    :returns: the last Observation and what is wrong in it; nothing is, and
        no server is in the middle of something, unless the time is over
    """
    deadline = clock() + seconds
    while True:
        began = clock()
        seen = read()
        now = clock()
        found = inconsistencies(seen, now, hosts)
        if now >= deadline or not (found or busy(seen)):
            return seen, found
        # A large cloud is not to be asked all the time.
        sleep(max(1, now - began))
