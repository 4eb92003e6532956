# SPDX-License-Identifier: Apache-2.0

"""The APIs of a cloud, as far as they are asked, for tests."""

import collections
import datetime
import functools
import re
import types

import fixtures
from keystoneauth1 import session as sessions
from keystoneauth1 import token_endpoint
from oslo_utils import uuidutils
from requests_mock.contrib import fixture as requests_mock_fixture

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

NOVA = 'http://nova.test'
PLACEMENT = 'http://placement.test'
IRONIC = 'http://ironic.test'


def service(host, **more):
    return {'binary': 'nova-compute', 'host': host, 'status': 'enabled',
            'state': 'up', 'updated_at': '2026-01-01T00:00:10.000000',
            'id': f'id-{host}', 'disabled_reason': None,
            'forced_down': False} | more


def hypervisor(uuid, host, kind='ironic'):
    return {'id': uuid, 'hypervisor_hostname': uuid,
            'hypervisor_type': kind, 'service': {'host': host}}


def fault(context, status, message):
    """Answer as nova does when it does not do what it is asked for."""
    context.status_code = status
    return {'fault': {'code': status, 'message': message}}


def node(uuid, **more):
    return {'uuid': uuid, 'name': None, 'instance_uuid': None,
            'provision_state': 'available', 'power_state': 'power on',
            'maintenance': False, 'conductor_group': '', 'shard': None,
            'provision_updated_at': '2026-01-01T00:00:05+00:00'} | more


def server(uuid, host=None, machine=None, vm_state='active', task=None):
    return {'id': uuid, 'name': uuid, 'updated': '2026-01-01T00:00:20Z',
            'tenant_id': 'project', 'user_id': 'user',
            'OS-EXT-SRV-ATTR:host': host,
            'OS-EXT-SRV-ATTR:hypervisor_hostname': machine,
            'OS-EXT-STS:vm_state': vm_state, 'OS-EXT-STS:task_state': task}


#: Whatever changes a compute service.
CHANGE = re.compile(re.escape(f'{NOVA}/os-services/'))


class FakeCloud(fixtures.Fixture):
    """The APIs, as far as they are asked.

    :ivar hidden: ids of hypervisors that nova counts and does not show
    :ivar unlisted: servers that are only shown when asked for
    :ivar deleted: ids of servers that nova has deleted
    :ivar latest: the latest microversion of Ironic
    :ivar migrations: (server, host that it leaves, status)
    :ivar asked: {path: number of requests}
    :ivar built: {server: (host that has built it, when)}
    :ivar changes: bodies of requests that change a service
    :ivar away: hosts of cells whose database is away; nova looks for a uuid
        in these cells first
    :ivar reserved: providers with a reserved inventory
    :ivar generations: {provider or consumer: its generation}
    :ivar writes: (method, path) of requests that changed placement
    :ivar before_write: called with (method, path) before each of them
    :ivar lost: how many answers to such requests get lost from now on
    :ivar evacuated: hosts with evacuations that they have not taken notice of
    """

    def __init__(self):
        super().__init__()
        self.services = [service('east'), service('west')]
        self.hypervisors = [hypervisor('n-0', 'east'),
                            hypervisor('n-1', 'east'),
                            hypervisor('n-2', 'west')]
        self.nodes = [
            node('n-0', instance_uuid='s-0', provision_state='active'),
            node('n-1'), node('n-2')]
        self.servers = [server('s-0', 'east', 'n-0')]
        self.providers = [{'uuid': n, 'name': n}
                          for n in ('n-0', 'n-1', 'n-2')]
        self.barred = []
        self.marked = ['n-0', 'n-2']
        self.allocations = {'n-0': ['s-0']}
        self.hidden = set()
        self.unlisted = []
        self.deleted = []
        self.aggregates = []
        self.migrations = []
        self.built = {}
        self.changes = []
        self.away = set()
        self.evacuated = set()
        self.reserved = set()
        self.generations = collections.Counter()
        self.writes = []
        self.before_write = lambda method, path: None
        self.lost = 0
        self.latest = '1.99'
        self.asked = collections.Counter()
        self.versions = {}

    def _setUp(self):
        # Nodes have short names here where nova has uuids.
        is_uuid = uuidutils.is_uuid_like
        self.useFixture(fixtures.MockPatchObject(
            uuidutils, 'is_uuid_like',
            lambda text: text.startswith('n-') or is_uuid(text)))
        self.http = self.useFixture(requests_mock_fixture.Fixture())
        for url, answer in (
                (f'{NOVA}/os-services', self._services),
                (f'{NOVA}/os-hypervisors/detail', self._hypervisors),
                (f'{NOVA}/os-hypervisors/n-', self._hypervisor),
                (f'{NOVA}/os-migrations', self._migrations),
                (f'{NOVA}/servers/detail', self._servers),
                (f'{NOVA}/servers', self._gone),
                (f'{NOVA}/os-aggregates', self._aggregates),
                (f'{PLACEMENT}/resource_providers', self._providers),
                (f'{PLACEMENT}/resource_providers/n-', self._allocations),
                (f'{IRONIC}/nodes', self._nodes),
                (f'{IRONIC}/nodes/n-', self._node)):
            end = '[^/]*' if url.endswith('-') else r'(\?|$)'
            if 'resource_providers/' in url:
                end += '/allocations'
            self.http.get(re.compile(re.escape(url) + end), json=answer)
        self.http.get(re.compile(re.escape(f'{NOVA}/servers/')
                                 + '(?!detail)[^/?]+$'), json=self._server)
        self.http.get(re.compile(
            f'{re.escape(NOVA)}/servers/[^/]+/os-instance-actions'),
            json=self._actions)
        for path, get, change in (
                ('resource_providers/[^/?]+', self._provider,
                 ('DELETE', self._delete_provider)),
                ('resource_providers/[^/?]+/inventories', self._inventories,
                 ('PUT', self._set_inventories)),
                ('allocations/[^/?]+', self._consumer,
                 ('PUT', self._set_allocations))):
            url = re.compile(f'{re.escape(PLACEMENT)}/{path}$')
            self.http.get(url, json=get)
            method, answer = change
            self.http.register_uri(method, url, json=functools.partial(
                self._write, answer))
        self.http.put(re.compile(re.escape(f'{NOVA}/os-services/id-')),
                      json=self._change_by_uuid)
        self.http.put(
            re.compile(re.escape(f'{NOVA}/os-services/')
                       + '(force-down|enable|disable|disable-log-reason)$'),
            json=self._change_by_host)

    def connection(self):
        session = sessions.Session(
            token_endpoint.Token('http://unused.test', 'token'))
        urls = {'compute': NOVA, 'placement': PLACEMENT, 'baremetal': IRONIC}
        config = types.SimpleNamespace(get_session_endpoint=urls.get)
        return types.SimpleNamespace(session=session, config=config)

    def survey(self):
        return cloud_client.CloudClient(self.connection(), self.connection())

    def _note(self, request):
        self.asked[request.path] += 1
        self.versions[request.path] = (
            request.headers.get('OpenStack-API-Version')
            or request.headers['X-OpenStack-Ironic-API-Version'])

    def _page(self, request, context, entries, identity):
        self._note(request)
        ids = [entry[identity] for entry in entries]
        [marker] = request.qs.get('marker', [None])
        if marker and marker not in ids:
            context.status_code = 400
            return []
        first = ids.index(marker) + 1 if marker else 0
        # What the services have as their max_limit.
        return entries[first:][:min(int(request.qs['limit'][0]), 1000)]

    def _services(self, request, context):
        self._note(request)
        assert request.qs['binary'] == ['nova-compute']
        # Those of a cell that does not answer are shown since 2.69.
        told = request.headers['OpenStack-API-Version'] >= 'compute 2.69'
        return {'services': [
            {'binary': s['binary'], 'host': s['host'], 'status': 'UNKNOWN'}
            if s['host'] in self.away else s
            for s in self.services if told or s['host'] not in self.away]}

    def _change_by_uuid(self, request, context):
        self._note(request)
        if self.away:
            return fault(context, 500, 'Unexpected API Error.')
        for service in self.services:
            if service.get('id') == request.path.rpartition('/')[2]:
                return self.change(service, request.json(), context)
        return fault(context, 404, 'Service could not be found.')

    def _change_by_host(self, request, context):
        self._note(request)
        # That is where these ways end.
        assert (request.headers['OpenStack-API-Version'].partition(' ')[2]
                in ('2.11', '2.52'))
        body = request.json()
        assert body.pop('binary') == 'nova-compute'
        host = body.pop('host')
        if host in self.away:
            return fault(context, 500, 'Unexpected API Error.')
        [found] = [s for s in self.services if s['host'] == host] or [None]
        if found is None:
            return fault(context, 404, f'Host {host} is not mapped.')
        status = {'enable': 'enabled', 'disable': 'disabled',
                  'disable-log-reason': 'disabled'}.get(
                      request.path.rpartition('/')[2])
        # Here it may be asked for what is there already.
        return self.change(found, body | (
            {'status': status} if status else {}), context, idle=True)

    def change(self, service, body, context, idle=False):
        """Change a service as nova does, all at once."""
        reason = body.get('disabled_reason')
        if (set(body) - {'status', 'disabled_reason', 'forced_down'}
                or body.get('status') not in (None, 'enabled', 'disabled')
                or reason is not None and not 0 < len(reason) <= 255
                or reason is not None and body.get('status') == 'enabled'):
            return fault(context, 400, 'Invalid input.')
        wanted = {name: body[name] for name in ('status', 'forced_down')
                  if name in body}
        if 'status' in body:
            wanted['disabled_reason'] = reason
        if wanted.get('forced_down') is False and (
                service['host'] in self.evacuated):
            return fault(context, 400, 'Unable to force up host '
                         f'{service["host"]} as `done` evacuation migration '
                         'records remain associated with the host.')
        if not idle and all(service[name] == wanted[name] for name in wanted):
            return fault(context, 400, 'No updates were requested.')
        self.changes.append(body)
        service.update(wanted)
        # Whoever writes to it, not only a heartbeat.
        if service['updated_at']:
            service['updated_at'] = (datetime.datetime.fromisoformat(
                service['updated_at']) + datetime.timedelta(milliseconds=1)
                ).isoformat(timespec='microseconds')
        if service['forced_down']:
            service['state'] = 'down'
        return {'service': service}

    def _migrations(self, request, context):
        wanted = {name: request.qs[name][0]
                  for name in ('host', 'instance_uuid')
                  if name in request.qs}
        found = [{'uuid': f'm-{server}', 'instance_uuid': server,
                  'status': status}
                 for server, host, status in self.migrations
                 if wanted.get('host', host) == host
                 and wanted.get('instance_uuid', server) == server
                 and host not in self.away]
        return {'migrations': self._page(request, context, found, 'uuid')}

    def _actions(self, request, context):
        """The actions of a server, or one with its events."""
        self._note(request)
        _, _, server, _, *action = request.path.split('/')
        if server not in self.built:
            return fault(context, 404, 'Instance could not be found.')
        host, when = self.built[server]
        action = {'action': 'create', 'request_id': 'req-1'}
        if not request.path.endswith('req-1'):
            return {'instanceActions': [
                {'action': 'reboot', 'request_id': 'req-2'}, action]}
        return {'instanceAction': action | {'events': [
            {'event': 'compute__do_build_and_run_instance', 'host': host,
             'start_time': when},
            {'event': 'conductor_schedule_and_build_instances',
             'host': 'control', 'start_time': '2026-01-01T00:00:00'}]}}

    def _hypervisors(self, request, context):
        if self.away:
            # It goes through all cells, one after the other.
            self._note(request)
            return fault(context, 500, 'Unexpected API Error.')
        page = self._page(request, context, self.hypervisors, 'id')
        return {'hypervisors': [
            one for one in page if one['id'] not in self.hidden]}

    def _hypervisor(self, request, context):
        self._note(request)
        if self.away:
            return fault(context, 500, 'Unexpected API Error.')
        return self._one(context, 'hypervisor', [
            one for one in self.hypervisors if one['id'] not in self.hidden],
            'id', request.path.rpartition('/')[2])

    def _servers(self, request, context):
        # A list with pages has nothing of a cell that is away.
        every = [s for s in self.servers if 'all_tenants' in request.qs
                 and s.get('OS-EXT-SRV-ATTR:host') not in self.away]
        if 'host' in request.qs:
            every = [s for s in every if request.qs['host'] ==
                     [s['OS-EXT-SRV-ATTR:host']]]
        return {'servers': self._page(request, context, every, 'id')}

    def _server(self, request, context):
        self._note(request)
        return self._one(
            context, 'server', self.servers + self.unlisted, 'id',
            request.path.rpartition('/')[2])

    def _gone(self, request, context):
        self._note(request)
        assert 'all_tenants' in request.qs and 'deleted' in request.qs
        return {'servers': [{'id': uuid, 'name': uuid}
                            for uuid in self.deleted
                            if [uuid] == request.qs['uuid']]}

    def _aggregates(self, request, context):
        self._note(request)
        return {'aggregates': [
            {'uuid': zone, 'hosts': hosts, 'availability_zone': zone}
            for zone, hosts in self.aggregates]}

    def _nodes(self, request, context):
        asked = request.headers['X-OpenStack-Ironic-API-Version']
        if asked > self.latest:
            context.status_code = 406
            return {}
        assert 'shard' not in request.qs['fields'][0] or asked >= '1.82'
        wanted = {name: request.qs[name][0]
                  for name in ('conductor_group', 'shard')
                  if name in request.qs}
        return {'nodes': self._page(request, context, [
            one for one in self.nodes
            if all(one[name] == wanted[name] for name in wanted)], 'uuid')}

    def _node(self, request, context):
        self._note(request)
        return self._one(context, None, self.nodes, 'uuid',
                         request.path.rpartition('/')[2])

    @staticmethod
    def _one(context, key, entries, identity, wanted):
        for entry in entries:
            if entry[identity] == wanted:
                return {key: entry} if key else entry
        context.status_code = 404
        return {}

    def _providers(self, request, context):
        self._note(request)
        found = self.providers
        if 'required' in request.qs:
            [trait] = request.qs['required']
            having = {'compute_status_disabled': self.barred,
                      'owner_nova': self.marked}[trait]
            found = [p for p in found if p['uuid'] in having]
        return {'resource_providers': found}

    def _allocations(self, request, context):
        self._note(request)
        consumers = self.allocations.get(request.path.split('/')[2])
        if consumers is None:
            context.status_code = 404
            return {}
        return {'allocations': {
            consumer: {'resources': {'CUSTOM_BAREMETAL': 1}}
            for consumer in consumers}}

    # What placement does with writes. A functional test has the real one.

    def _provider(self, request, context):
        self._note(request)
        return self._one(context, None, self.providers, 'uuid',
                         request.path.rpartition('/')[2])

    def _write(self, answer, request, context):
        self._note(request)
        uuid = request.path.split('/')[2]
        self.before_write(request.method, request.path)
        context.status_code = 204
        body = answer(uuid, request, context)
        if context.status_code < 400:
            self.writes.append((request.method, request.path))
            if self.lost:
                self.lost -= 1
                context.status_code = 503
        return body

    @staticmethod
    def _refuse(context, status, detail):
        context.status_code = status
        return {'errors': [{'status': status, 'detail': detail}]}

    def _delete_provider(self, uuid, request, context):
        if not any(one['uuid'] == uuid for one in self.providers):
            return self._refuse(context, 404, f'No {uuid} found for delete')
        if self.allocations.get(uuid):
            return self._refuse(
                context, 409, f'Unable to delete resource provider {uuid}: '
                'Resource provider has allocations.')
        self.providers = [p for p in self.providers if p['uuid'] != uuid]
        return None

    def _inventories(self, request, context):
        self._note(request)
        uuid = request.path.split('/')[2]
        if not any(one['uuid'] == uuid for one in self.providers):
            return self._refuse(context, 404, f'No provider {uuid}')
        return {'resource_provider_generation': self.generations[uuid],
                'inventories': {'CUSTOM_BAREMETAL': {
                    'total': 1, 'reserved': int(uuid in self.reserved)}}}

    def _set_inventories(self, uuid, request, context):
        body = request.json()
        if body['resource_provider_generation'] != self.generations[uuid]:
            return self._refuse(
                context, 409, 'resource provider generation conflict')
        self.generations[uuid] += 1
        [inventory] = body['inventories'].values()
        self.reserved.discard(uuid)
        if inventory['reserved']:
            self.reserved.add(uuid)
        context.status_code = 200
        return body

    def _consumer(self, request, context):
        self._note(request)
        uuid = request.path.split('/')[2]
        held = {provider: {'resources': {'CUSTOM_BAREMETAL': 1}}
                for provider, consumers in self.allocations.items()
                if uuid in consumers}
        return {'allocations': held} | ({
            'project_id': 'project', 'user_id': 'user',
            'consumer_generation': self.generations[uuid]} if held else {})

    def _set_allocations(self, uuid, request, context):
        assert (request.headers['OpenStack-API-Version']
                == 'placement 1.28')
        body = request.json()
        assert set(body) == {'allocations', 'project_id', 'user_id',
                             'consumer_generation'}
        known = any(uuid in consumers
                    for consumers in self.allocations.values())
        if body['consumer_generation'] != (
                self.generations[uuid] if known else None):
            return self._refuse(context, 409, 'consumer generation conflict')
        for provider in body['allocations']:
            if provider in self.reserved or [
                    one for one in self.allocations.get(provider, ())
                    if one != uuid]:
                return self._refuse(
                    context, 409, 'Unable to allocate inventory: '
                    'The requested amount would exceed the capacity.')
        for consumers in self.allocations.values():
            if uuid in consumers:
                consumers.remove(uuid)
        for provider in body['allocations']:
            self.allocations.setdefault(provider, []).append(uuid)
            self.generations[provider] += 1
        self.generations[uuid] += 1
        return None


class TroubledCloud(FakeCloud):
    """Five computes, twelve nodes, and one of everything that can be wrong.

    The examples of the documentation are of this cloud.
    """

    def __init__(self):
        super().__init__()
        self.services = [
            service('compute-1'),
            service('compute-2', state='down'),
            service('compute-3', state='down', forced_down=True),
            service('compute-4', status='disabled',
                    disabled_reason='new disks'),
            service('compute-5')]
        owners = (1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, None)
        held = {0: 's-0', 2: 's-2', 3: 's-3', 4: 's-4', 6: 's-6'}
        self.built['s-6'] = 'compute-3', '2026-01-01T00:00:03.000000'
        names = [f'n-{index}' for index in range(len(owners))]
        self.hypervisors = [
            hypervisor(name, f'compute-{owner}')
            for name, owner in zip(names, owners) if owner]
        self.nodes = [
            node(name, name=f'rack1-u{index:02}',
                 instance_uuid=held.get(index),
                 provision_state='active' if index in held else 'available')
            for index, name in enumerate(names)]
        self.servers = [
            server('s-0', 'compute-1', 'n-0'),
            server('s-4', 'compute-2', 'n-4'),
            server('s-6', 'compute-3', 'n-6', 'building',
                   takeover.taking('spawning', host_key('compute-5')))
            # It is in the middle of something, and not for long.
            | {'updated': '2099-01-01T00:00:00Z'}]
        self.deleted = ['s-2']
        self.providers = [{'uuid': name, 'name': name} for name in names]
        self.barred = ['n-8', 'n-9', 'n-10']
        self.aggregates = [('rack-a', ['compute-1', 'compute-2'])]
