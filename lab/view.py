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

"""What nova, placement and Ironic say at one moment, side by side.

A :class:`View` is a snapshot that nobody changes; whatever else the lab
observes (status, check, timeline) is computed from views alone.

Views are read by SQL rather than through the APIs: a lab owns its
databases, and three cheap reads can be repeated every second without
loading the services that are being watched. The three databases are read
one after the other, so a view taken while something happens may show half
of it; whoever needs certainty looks again.

Times are seconds since the epoch, by the clock of this machine. Host names
are kept as nova spells them and compared in lower case.
"""

import dataclasses
import datetime
import functools
import time

from lab import configuration
from lab import errors
from lab import settings as places
from lab import state

DISABLED_TRAIT = 'COMPUTE_STATUS_DISABLED'


class ViewError(errors.LabError):
    """A database of the lab cannot be read; says which and the remedy."""


@dataclasses.dataclass(frozen=True)
class Service:
    """One nova-compute service.

    ``up`` is what nova itself would answer: the last heartbeat (``seen``)
    is fresh and nobody has forced the service down.
    """

    host: str
    up: bool = True
    disabled: bool = False
    forced_down: bool = False
    seen: float = 0.0
    mapped: bool = True

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
    created: float = 0.0
    updated: float = 0.0
    id: int = 0

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
    total: int = 1
    reserved: int = 0
    used: int = 0
    traits: frozenset = frozenset()
    id: int = 0


@dataclasses.dataclass(frozen=True)
class Allocation:
    """``consumer`` (a server) has resources of ``provider`` (a node)."""

    consumer: str
    provider: str


@dataclasses.dataclass(frozen=True)
class Instance:
    """A server, living or deleted, as the cell database has it."""

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
class View:
    """Everything at one moment; each field is a tuple of the above.

    ``instances`` holds all living ones, and of the deleted ones those that
    an Ironic node still names. ``zones`` holds (host in lower case, explicit
    availability zone) pairs.
    """

    at: float = 0.0
    services: tuple = ()
    records: tuple = ()
    nodes: tuple = ()
    providers: tuple = ()
    allocations: tuple = ()
    instances: tuple = ()
    zones: tuple = ()

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


def _epoch(moment):
    if moment is None:
        return 0.0
    return moment.replace(tzinfo=datetime.UTC).timestamp()


def _fetch(settings, name, *queries):
    """Rows of each query, all read in one transaction of one database."""
    import pymysql

    try:
        connection = pymysql.connect(
            **settings.database(name), read_timeout=10)
    except pymysql.MySQLError as error:
        raise ViewError(
            f'The database {name} does not answer ({error.args[-1]}). Is '
            'the lab up? Start it with: tools/lab up') from error
    try:
        with connection.cursor() as cursor:
            answers = []
            for query in queries:
                cursor.execute(*query)
                answers.append(cursor.fetchall())
            return answers
    except pymysql.MySQLError as error:
        raise ViewError(
            f'The database {name} cannot be read ({error.args[-1]}). Start '
            'the lab afresh with: tools/lab down; tools/lab up') from error
    finally:
        connection.close()


def _read_ironic(settings):
    [rows] = _fetch(settings, 'ironic', (
        'SELECT uuid, name, instance_uuid, provision_state, power_state,'
        ' maintenance FROM nodes ORDER BY uuid',))
    return tuple(Node(uuid, name or '', instance or None, state or '',
                      power, bool(maintenance))
                 for uuid, name, instance, state, power, maintenance in rows)


def _read_placement(settings):
    inventories, traits, allocations = _fetch(
        settings, 'placement',
        ('SELECT p.uuid, COALESCE(SUM(i.total), 0),'
         ' COALESCE(SUM(i.reserved), 0), p.id'
         ' FROM resource_providers p LEFT JOIN inventories i'
         ' ON i.resource_provider_id = p.id'
         ' GROUP BY p.id, p.uuid ORDER BY p.uuid',),
        ('SELECT p.uuid, t.name FROM resource_providers p'
         ' JOIN resource_provider_traits x ON x.resource_provider_id = p.id'
         ' JOIN traits t ON t.id = x.trait_id',),
        ('SELECT a.consumer_id, p.uuid, SUM(a.used) FROM allocations a'
         ' JOIN resource_providers p ON p.id = a.resource_provider_id'
         ' GROUP BY a.consumer_id, p.uuid ORDER BY p.uuid',))
    used = {}
    for _consumer, provider, amount in allocations:
        used[provider] = used.get(provider, 0) + int(amount)
    traits_of = {}
    for provider, trait in traits:
        traits_of.setdefault(provider, set()).add(trait)
    providers = tuple(
        Provider(uuid, int(total), int(reserved), used.get(uuid, 0),
                 frozenset(traits_of.get(uuid, ())), id_)
        for uuid, total, reserved, id_ in inventories)
    return providers, tuple(Allocation(consumer, provider)
                            for consumer, provider, _ in allocations)


def _read_cell(settings, named):
    """Services, records and instances of the cell.

    :param named: instance uuids to look up even when they are deleted
    """
    wanted = tuple(named) or ('',)
    marks = ', '.join(['%s'] * len(wanted))
    return _fetch(
        settings, 'nova_cell1',
        ('SELECT host, disabled, forced_down,'
         ' COALESCE(last_seen_up, created_at) FROM services'
         " WHERE deleted = 0 AND `binary` = 'nova-compute' ORDER BY host",),
        ('SELECT uuid, host, created_at, updated_at, id FROM compute_nodes'
         ' WHERE deleted = 0 ORDER BY uuid',),
        ('SELECT uuid, hostname, host, node, vm_state, task_state, deleted,'
         ' COALESCE(updated_at, created_at) FROM instances'
         f' WHERE deleted = 0 OR uuid IN ({marks}) ORDER BY uuid', wanted))


def read(settings):
    """The view of now.

    :param settings: lab.settings.Settings of a lab that is up
    :raises ViewError: when a database does not answer
    """
    nodes = _read_ironic(settings)
    providers, allocations = _read_placement(settings)
    services, records, instances = _read_cell(
        settings, [n.instance_uuid for n in nodes if n.instance_uuid])
    mapped, zones = _fetch(
        settings, 'nova_api', ('SELECT host FROM host_mappings',),
        ('SELECT LOWER(h.host), m.value FROM aggregate_hosts h'
         ' JOIN aggregate_metadata m ON m.aggregate_id = h.aggregate_id'
         " WHERE m.`key` = 'availability_zone' ORDER BY h.host",))
    mapped = {host.lower() for [host] in mapped}
    patience = configuration.number(
        state.State(settings).read().get('options', ()), 'DEFAULT',
        'service_down_time', places.SERVICE_DOWN_TIME)
    now = time.time()
    return View(
        at=now,
        services=tuple(
            Service(host,
                    up=(not forced_down
                        and abs(now - _epoch(seen)) <= patience),
                    disabled=bool(disabled),
                    forced_down=bool(forced_down),
                    seen=_epoch(seen),
                    mapped=host.lower() in mapped)
            for host, disabled, forced_down, seen in services),
        records=tuple(
            Record(uuid, host, _epoch(created), _epoch(updated), id_)
            for uuid, host, created, updated, id_ in records),
        nodes=nodes,
        providers=providers,
        allocations=allocations,
        instances=tuple(
            Instance(uuid, name or '', host, node, vm_state or '',
                     task_state, bool(deleted), _epoch(updated))
            for (uuid, name, host, node, vm_state, task_state, deleted,
                 updated) in instances),
        zones=tuple(zones))
