# SPDX-License-Identifier: Apache-2.0

"""Client of the APIs of nova, placement and Ironic.

It reads lists, page by page. Requests for single nodes or servers are made
for allocations (optional), and where the lists of nova and Ironic differ.

It usually needs two connections: nova and placement answer an admin of a
project, but Ironic shows all nodes to system scope only.
"""

from __future__ import annotations

from collections import abc
import concurrent.futures
import dataclasses
import datetime
import typing

from nova_ironic_multihost.client import api
from nova_ironic_multihost.client.api import Json
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.cloud_state import CloudError
from nova_ironic_multihost.client.cloud_state import Unanswered
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

_One = typing.TypeVar('_One')
_Answer = typing.TypeVar('_Answer')

_THREADS = 8

# The first that lists services of a cell that is down, with status UNKNOWN.
# nova leaves the servers of such a cell out of every paged list.
_COMPUTE = '2.69'
# Changes a compute service by its host; from 2.53 on only by its uuid.
_BY_HOST = '2.11'
# The first with uuids. From 2.88 on nova asks each compute service for its
# uptime, one after the other.
_HYPERVISORS = '2.53'
# The first with generations of consumers, so that writes can conflict.
_PLACEMENT = '1.28'
# Fields of a server: the host of its compute service, and its node.
_HOST = 'OS-EXT-SRV-ATTR:host'
_NODE = 'OS-EXT-SRV-ATTR:hypervisor_hostname'
# Statuses of finished migrations.
_MIGRATED = frozenset({
    'confirmed', 'reverted', 'error', 'failed', 'completed', 'cancelled',
    'done'})
# The first with shards, of Ironic 2023.1.
_BAREMETAL = '1.82'
_NODE_FIELDS = ('uuid,name,instance_uuid,provision_state,maintenance,'
                'conductor_group,provision_updated_at,shard')


def connect(cloud: str | None = None,
            baremetal_cloud: str | None = None) -> CloudClient:
    """Return a client with the credentials of clouds.yaml or OS_*.

    :param cloud: entry of clouds.yaml for nova and placement; None for
        OS_CLOUD or the other OS_* variables
    :param baremetal_cloud: entry for Ironic; None for the same as cloud
    :raises CloudError: without usable credentials
    """
    project = api.connection(cloud, '--os-cloud NAME, or OS_CLOUD')
    return CloudClient(project, project if baremetal_cloud is None else
                       api.connection(baremetal_cloud,
                                      '--os-baremetal-cloud NAME'))


class CloudClient:
    """Reads and changes a cloud through its APIs.

    Each method raises CloudError when a service does not answer or refuses.

    :param project: connection to nova and placement
    :param system: connection to Ironic, may be the same
    """

    def __init__(self, project: api.Connection,
                 system: api.Connection) -> None:
        self.nova = api.Api(
            'nova', project, 'compute', _COMPUTE, api.AS_ADMIN)
        self.placement = api.Api(
            'placement', project, 'placement', _PLACEMENT, api.AS_ADMIN)
        self._ironic = api.Api(
            'Ironic', system, 'baremetal', _BAREMETAL, api.AS_SYSTEM)

    def read(self, allocations: bool = False) -> cloud_state.CloudState:
        """Read the state of the cloud once.

        Compute services and servers of other hypervisors are left out.
        ``mapped`` is None for a host of which nova shows no record.

        :param allocations: read allocations, too: a request a provider
        :raises CloudError: a service does not answer, or with unknown content
        """
        try:
            return self._read(allocations)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CloudError(
                'The cloud answers what its APIs do not have '
                f'({type(error).__name__}: {api.message(error)}). Look at '
                'the endpoints in the catalog, and at proxies.') from error

    def _read(self, allocations: bool) -> cloud_state.CloudState:
        nodes = tuple(map(_node, self._ironic.pages(
            '/nodes', 'nodes', 'uuid', fields=_NODE_FIELDS)))
        providers = self._providers({node.uuid for node in nodes})
        # Before the servers: nova makes a server before its allocation.
        allocated = self._allocations(providers) if allocations else None
        services = self.computes()
        expect_cells(services)
        # Right after the services: the age of heartbeats is counted to here.
        at = self.nova.at
        records, second, others = self._records()
        if records and not nodes:
            raise CloudError(
                f'Ironic shows this account no node, yet nova has records '
                f'of {len(records)}. {api.AS_SYSTEM}')
        servers = tuple(one for one in map(_instance, self.nova.pages(
            '/servers/detail', 'servers', 'id', all_tenants=1))
            if one.host_key not in others)
        # A cell that went down meanwhile has no servers in the list.
        expect_cells(self.computes())
        nodes, more = self._resolved(nodes, servers)
        mapped = {record.owner for record in (*records, *second)}
        return cloud_state.CloudState(
            at=at,
            services=tuple(
                dataclasses.replace(
                    service, mapped=True if service.key in mapped else None)
                for service in services if service.key not in others),
            records=records,
            second=second,
            others=others,
            nodes=nodes,
            providers=providers,
            allocations=allocated,
            instances=servers + more,
            zones=peers.host_zones(
                peers.Aggregate.of(
                    one['uuid'], one['hosts'], one['availability_zone'])
                for one in self.nova.get('/os-aggregates')['aggregates']))

    def marked(self, trait: str) -> frozenset[str]:
        """Return the uuids of the resource providers with a trait."""
        return frozenset(
            provider['uuid'] for provider in self.placement.get(
                '/resource_providers', required=trait)['resource_providers'])

    def computes(self, host: str | None = None
                 ) -> tuple[cloud_state.Service, ...]:
        """Return all compute services, also those of virtual machines.

        A single request to nova, which answers within 60 s also while the
        database of a cell is down.

        :param host: the host to act on, in any spelling
        :raises CloudError: when nova does not answer, or does not reach the
            cell of ``host``
        """
        found = tuple(map(_service, self.nova.get(
            '/os-services', binary='nova-compute')['services']))
        expect_cells(one for one in found if host is not None
                     and one.key == host_key(host))
        return found

    def bare_metal(self, host: str) -> bool | None:
        """Return whether a host has bare metal, judged by one of its servers.

        A bare metal node has a uuid as its hypervisor_hostname; the
        hypervisor of a virtual machine usually has the name of its host.

        :param host: as nova spells it
        :returns: None without a server
        """
        # "lab" and the man page are made without it.
        from oslo_utils import uuidutils

        [node] = [server.get(_NODE) for server in self.nova.get(
            '/servers/detail', all_tenants=1, host=host, limit=1)['servers']
            ] or [None]
        return uuidutils.is_uuid_like(node) if node else None

    def migrations(self, **filters: str) -> dict[str, str]:
        """Return {uuid: server} of the migrations that are not over.

        :param filters: of nova's list: ``host``, ``instance_uuid``
        """
        return {
            migration['uuid']: migration['instance_uuid']
            for migration in self.nova.pages(
                '/os-migrations', 'migrations', 'uuid', **filters)
            if migration['status'] not in _MIGRATED}

    def node(self, uuid: str) -> cloud_state.Node | None:
        """Return a node, None if Ironic does not show it."""
        found = self._ironic.get(
            f'/nodes/{uuid}', may_be_gone=True, fields=_NODE_FIELDS)
        return _node(found) if found else None

    def owner(self, node: str) -> str | None:
        """Return the host of the record of a node, None without a record."""
        found = self.nova.get(f'/os-hypervisors/{node}', _HYPERVISORS,
                               may_be_gone=True)
        return found['hypervisor']['service']['host'] if found else None

    def server(self, uuid: str) -> cloud_state.CloudServer | None:
        """Return a server, None if nova has it not, or has deleted it."""
        found = self.nova.get(f'/servers/{uuid}', may_be_gone=True)
        return _instance(found['server']) if found else None

    def built(self, server: str) -> tuple[str, float | None] | None:
        """Return the host that built a server last, and when it began.

        None if nova does not say.
        """
        path = f'/servers/{server}/os-instance-actions'
        answer = self.nova.get(path, may_be_gone=True) or {}
        for action in answer.get('instanceActions', ()):
            if action['action'] != 'create':
                continue
            events = self.nova.get(f'{path}/{action["request_id"]}')
            # The latest event is the first.
            for event in events['instanceAction'].get('events', ()):
                if 'build_and_run' in event['event'] and event.get('host'):
                    return event['host'], _epoch(event['start_time'])
        return None

    def consumers(self, provider: str) -> list[str]:
        """Return the consumers that have a resource provider, sorted."""
        answer = self.placement.get(
            f'/resource_providers/{provider}/allocations', may_be_gone=True)
        return sorted((answer or {}).get('allocations', ()))

    def change(self, service: cloud_state.Service, body: Json) -> None:
        """Change a compute service in nova, with one request.

        :param body: of nova's PUT /os-services/ID: ``status``, with
            ``disabled_reason`` if disabled, ``forced_down``; {} for nothing
        :raises CloudError: without success; nova may still have made the
            change if only its answer was lost
        """
        if not body:
            return
        try:
            self.nova.send(f'/os-services/{service.id}', body)
        except Unanswered as error:
            # nova searches the cells for the uuid, and fails at the first
            # cell that is down. If a proxy lost the answer, nova has made the
            # change, and accepts these requests once more.
            try:
                self._change_by_host(service, body)
            except CloudError as another:
                raise error from another

    def _change_by_host(self, service: cloud_state.Service,
                        body: Json) -> None:
        """Change it with requests that nova sends to the host's cell only."""
        for path, wanted, field in (
                ('force-down', 'forced_down' in body, 'forced_down'),
                ('enable', body.get('status') == 'enabled', None),
                ('disable-log-reason', body.get('status') == 'disabled',
                 'disabled_reason')):
            if wanted:
                self.nova.send(f'/os-services/{path}', {
                    'host': service.host, 'binary': 'nova-compute'} | (
                        {field: body[field]} if field else {}), _BY_HOST)

    def _providers(
            self, nodes: abc.Set[str]) -> tuple[cloud_state.Provider, ...]:
        """Return the resource providers that have the name of a node."""
        every = self.placement.get('/resource_providers')
        barred = self.marked(cloud_state.DISABLED_TRAIT)
        # nova names the provider of an Ironic node by the node's uuid.
        return tuple(
            cloud_state.Provider(
                provider['uuid'],
                traits=frozenset({cloud_state.DISABLED_TRAIT} if
                                 provider['uuid'] in barred else ()),
                name=provider['name'])
            for provider in every['resource_providers']
            if provider['name'] == provider['uuid']
            or provider['name'] in nodes)

    def _records(self) -> tuple[
            tuple[model.Record, ...], tuple[model.Record, ...],
            frozenset[HostKey]]:
        """Return own and second records of nodes, the other records' hosts."""
        found = self.nova.pages(
            '/os-hypervisors/detail', 'hypervisors', 'id',
            microversion=_HYPERVISORS)
        others = frozenset(
            host_key(record['service']['host']) for record in found
            if record['hypervisor_type'] != 'ironic')
        records = [
            model.Record(record['hypervisor_hostname'],
                         record['service']['host'], second=record['id']
                         * (record['id'] != record['hypervisor_hostname']))
            for record in found if record['hypervisor_type'] == 'ironic']
        return (tuple(one for one in records if not one.second),
                tuple(one for one in records if one.second), others)

    def _resolved(
            self, nodes: tuple[cloud_state.Node, ...],
            servers: tuple[cloud_state.CloudServer, ...],
            ) -> tuple[tuple[cloud_state.Node, ...],
                       tuple[cloud_state.CloudServer, ...]]:
        """Read nodes again that are held for a server that nova did not list.

        The server may be new, or deleted meanwhile. It may be soft-deleted,
        which nova does not list.

        :returns: the nodes as they are now, and servers to add
        """
        known = {None, *(server.uuid for server in servers)}

        def resolve(node: cloud_state.Node) -> tuple[
                cloud_state.Node | None, cloud_state.CloudServer | None]:
            if server := self.server(node.instance_uuid or ''):
                return node, server
            now = self.node(node.uuid)
            return now, (self.deleted(now.instance_uuid)
                         if now and now.instance_uuid else None)

        doubtful = [node for node in nodes if node.instance_uuid not in known]
        found = dict(zip(doubtful, _side_by_side(resolve, doubtful)))
        read = [found.get(node, (node, None)) for node in nodes]
        return (tuple(node for node, _ in read if node),
                tuple(server for _, server in read if server))

    def deleted(self, uuid: str) -> cloud_state.CloudServer | None:
        """Return a deleted server.

        None if nova never had it, or has archived or purged it.
        """
        found = self.nova.get('/servers', all_tenants=1, deleted=1,
                               uuid=uuid)['servers']
        return next((cloud_state.CloudServer(
            uuid=uuid, name=server['name'], deleted=True) for server in found
            if server['id'] == uuid), None)

    def _allocations(
            self, providers: tuple[cloud_state.Provider, ...],
            ) -> tuple[cloud_state.Allocation, ...]:
        found = _side_by_side(
            lambda provider: self.consumers(provider.uuid), providers)
        return tuple(
            cloud_state.Allocation(consumer, provider.uuid)
            for provider, consumers in zip(providers, found)
            for consumer in consumers)


def _side_by_side(function: abc.Callable[[_One], _Answer],
                  values: abc.Iterable[_One]) -> list[_Answer]:
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, values))


def _node(node: Json) -> cloud_state.Node:
    return cloud_state.Node(
        node['uuid'], node['name'] or '', node['instance_uuid'],
        node['provision_state'] or '', node['maintenance'],
        node['conductor_group'], node['shard'] or '',
        _epoch(node['provision_updated_at']))


def expect_cells(services: abc.Iterable[cloud_state.Service]) -> None:
    """Raise Unanswered if nova does not reach the cell of a service."""
    unknown = sorted(one.host for one in services if not one.reached)
    if unknown:
        raise Unanswered(
            f'nova does not reach the database of the cell of '
            f'{", ".join(unknown)}. Mend that first: what is in there '
            'cannot be judged.')


def _service(service: Json) -> cloud_state.Service:
    if service['status'] == 'UNKNOWN':
        return cloud_state.Service(service['host'], up=False, reached=False)
    return cloud_state.Service(
        service['host'],
        id=service['id'],
        up=service['state'] == 'up',
        disabled=service['status'] == 'disabled',
        forced_down=service['forced_down'],
        seen=_epoch(service['updated_at']),
        reason=service.get('disabled_reason') or '',
        stop_marker=liveness.find_stop_marker(service.get('disabled_reason')))


def _instance(server: Json) -> cloud_state.CloudServer:
    # Without the host every compute service would seem to have no server.
    if _HOST not in server:
        raise CloudError(
            f'nova does not say where server {server["id"]} is: it does not '
            'reach the database of its cell, or forbids this account to '
            f'know. Mend the former. {api.AS_ADMIN}')
    return cloud_state.CloudServer(
        server[_HOST], False, server.get(_NODE),
        server.get('OS-EXT-STS:vm_state', ''),
        server.get('OS-EXT-STS:task_state'),
        uuid=server['id'], name=server.get('name', ''),
        updated=_epoch(server.get('updated')) or 0.0,
        project=server.get('tenant_id', ''), user=server.get('user_id', ''))


def _epoch(text: str | None) -> float | None:
    if text is None:
        return None
    # All APIs give UTC, some without a time zone.
    moment = datetime.datetime.fromisoformat(text)
    return moment.replace(tzinfo=datetime.UTC).timestamp()
