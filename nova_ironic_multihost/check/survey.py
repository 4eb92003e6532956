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


"""Asks nova, placement and Ironic, through their APIs, what they have.

For whoever has credentials and no database: an operator, a job of CI. Lists
come in pages of plain JSON and nothing is asked once per node, except for
allocations when somebody wants them, and for what two lists contradict each
other about.

Two connections are needed as a rule: nova and placement answer an admin of a
project, while Ironic shows all nodes to system scope only.
"""

import concurrent.futures
import contextlib
import dataclasses
import datetime
import time

from keystoneauth1 import exceptions as identity_exceptions
import openstack
from openstack import exceptions as sdk_exceptions

from nova_ironic_multihost.check import findings as consistency

#: Entries of a page; the most that nova and Ironic give by default.
PAGE = 1000

#: Seconds that one answer may take, unless clouds.yaml says otherwise.
PATIENCE = 300.0

_THREADS = 8
# How often a list is begun anew because the entry that its next page was to
# follow is gone.
_ATTEMPTS = 3

# Servers and services of a cell that does not answer are in the lists from
# here on, and marked.
_COMPUTE = '2.69'
# Ids are uuids from here on. From 2.88 on nova asks computes, one after the
# other, how long they have been up.
_HYPERVISORS = '2.53'
# The first that filters a list of providers by trait.
_PLACEMENT = '1.18'
# What nova needs of an Ironic.
_BAREMETAL = '1.46'
_NODE_FIELDS = ('uuid,name,instance_uuid,provision_state,power_state,'
                'maintenance')

_AS_ADMIN = ('Ask with an account that has the role admin in a project: '
             '--os-cloud NAME, or OS_CLOUD.')
_AS_SYSTEM = ('Ask with an account of system scope (system_scope: all in '
              'clouds.yaml): --os-baremetal-cloud NAME.')


class SurveyError(Exception):
    """The cloud cannot be asked; one sentence or two, with the remedy."""


class _EntryGone(Exception):
    """The entry that the next page was to follow does not exist."""


def connect(cloud=None, baremetal_cloud=None):
    """Find the credentials as every OpenStack client does.

    :param cloud: entry of clouds.yaml for nova and placement; None for
        OS_CLOUD or the other OS_* variables
    :param baremetal_cloud: entry for Ironic; None for the same as cloud
    :returns: a :class:`Survey`
    :raises SurveyError: without usable credentials
    """
    project = _connection(cloud, '--os-cloud NAME, or OS_CLOUD')
    if baremetal_cloud is None:
        return Survey(project, project)
    return Survey(project, _connection(
        baremetal_cloud, '--os-baremetal-cloud NAME'))


def _connection(cloud, how):
    try:
        connection = openstack.connect(
            cloud=cloud, app_name='nova-ironic-multihost')
        session = connection.session
    except (identity_exceptions.ClientException,
            sdk_exceptions.SDKException) as error:
        raise SurveyError(
            f'There are no usable credentials: {_text(error)}. Name an entry '
            f'of clouds.yaml ({how}), or set the OS_* variables.') from error
    if session.timeout is None:
        session.timeout = PATIENCE
    return connection


def _text(error):
    return ' '.join(str(error).split()).rstrip('.')


class Survey:
    """Reads an Observation through the APIs.

    :param project: openstack.connection.Connection for nova and placement
    :param system: one for Ironic, which may be the same
    """

    def __init__(self, project, system):
        self._nova = _Api('nova', project, 'compute', _AS_ADMIN)
        self._placement = _Api('placement', project, 'placement', _AS_ADMIN)
        self._ironic = _Api('Ironic', system, 'baremetal', _AS_SYSTEM)

    def read(self, allocations=False):
        """Ask everyone once.

        Computes and servers of other hypervisors are left out. Whether a
        host is mapped to a cell is known only if nova shows a record of it.

        :param allocations: also ask for those, provider by provider
        :returns: a :class:`consistency.Observation`
        :raises SurveyError: when somebody does not answer
        """
        nodes = self._nodes()
        providers = self._providers()
        # Before the servers: a new one has its allocation later.
        allocated = self._allocations(providers) if allocations else None
        services = self._services()
        records, others = self._records()
        if records and not nodes:
            raise SurveyError(
                f'Ironic shows this account no node, yet nova has records '
                f'of {len(records)}. {_AS_SYSTEM}')
        servers = self._servers(others)
        nodes, more = self._resolved(nodes, servers)
        mapped = {record.key for record in records}
        return consistency.Observation(
            at=time.time(),
            services=tuple(
                dataclasses.replace(
                    service, mapped=True if service.key in mapped else None)
                for service in services if service.key not in others),
            records=records,
            nodes=nodes,
            providers=providers,
            allocations=allocated,
            instances=servers + more,
            zones=None)

    def _nodes(self):
        return tuple(_node(node) for node in self._ironic.list(
            '/nodes', 'nodes', 'uuid', _BAREMETAL, fields=_NODE_FIELDS))

    def _providers(self):
        path = '/resource_providers'
        every = self._placement.get(path, _PLACEMENT)
        barred = {
            provider['uuid'] for provider in self._placement.get(
                path, _PLACEMENT, required=consistency.DISABLED_TRAIT)[
                    'resource_providers']}
        # nova names the provider of an Ironic node after the uuid of both.
        return tuple(
            consistency.Provider(
                provider['uuid'],
                traits=frozenset({consistency.DISABLED_TRAIT} if
                                 provider['uuid'] in barred else ()))
            for provider in every['resource_providers']
            if provider['name'] == provider['uuid'])

    def _services(self):
        found = self._nova.get(
            '/os-services', _COMPUTE, binary='nova-compute')['services']
        unknown = sorted(service['host'] for service in found
                         if service['status'] == 'UNKNOWN')
        if unknown:
            raise SurveyError(
                f'nova does not reach the database of the cell of '
                f'{", ".join(unknown)}. Mend that first: what is in there '
                'cannot be judged.')
        return [
            consistency.Service(
                service['host'],
                up=service['state'] == 'up',
                disabled=service['status'] == 'disabled',
                forced_down=service['forced_down'],
                seen=_epoch(service['updated_at']))
            for service in found]

    def _records(self):
        """Records of Ironic nodes, and the hosts (lower case) of others."""
        found = self._nova.list(
            '/os-hypervisors/detail', 'hypervisors', 'id', _HYPERVISORS)
        others = {record['service']['host'].lower() for record in found
                  if record['hypervisor_type'] != 'ironic'}
        return tuple(
            consistency.Record(record['id'], record['service']['host'])
            for record in found
            if record['hypervisor_type'] == 'ironic'), others

    def _servers(self, others):
        """Living servers of all projects, without those of other hosts."""
        servers = [_instance(server) for server in self._nova.list(
            '/servers/detail', 'servers', 'id', _COMPUTE, all_tenants=1)]
        return tuple(s for s in servers if s.key not in others)

    def _resolved(self, nodes, servers):
        """Ask once more about nodes that are held for a server not listed.

        It may be new, be gone together with its hold on the node, or be
        hidden from the list, as those are whose deletion can be undone.

        :returns: the nodes as they are now, and servers to be added
        """
        known = {server.uuid for server in servers}
        doubtful = [node for node in nodes
                    if node.instance_uuid and node.instance_uuid not in known]
        found = dict(_side_by_side(self._resolve, doubtful))
        nodes = tuple(
            now for node in nodes
            if (now := found.get(node.uuid, (node, None))[0]) is not None)
        return nodes, tuple(
            server for _, server in found.values() if server is not None)

    def _resolve(self, node):
        """(uuid, (Node or None, Instance or None)) of a node."""
        answer = self._nova.get(f'/servers/{node.instance_uuid}', _COMPUTE,
                                may_be_gone=True)
        if answer is not None:
            return node.uuid, (node, _instance(answer['server']))
        answer = self._ironic.get(f'/nodes/{node.uuid}', _BAREMETAL,
                                  may_be_gone=True, fields=_NODE_FIELDS)
        return node.uuid, (answer and _node(answer), None)

    def _allocations(self, providers):
        def of_provider(provider):
            answer = self._placement.get(
                f'/resource_providers/{provider.uuid}/allocations',
                _PLACEMENT, may_be_gone=True)
            return [consistency.Allocation(consumer, provider.uuid)
                    for consumer in (answer or {}).get('allocations', ())]

        return tuple(
            allocation for found in _side_by_side(of_provider, providers)
            for allocation in found)


def _side_by_side(function, values):
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, values))


def _node(node):
    return consistency.Node(
        node['uuid'], node['name'] or '', node['instance_uuid'],
        node['provision_state'] or '', node['power_state'],
        node['maintenance'])


def _instance(server):
    return consistency.Instance(
        server['id'], server.get('name', ''),
        server.get('OS-EXT-SRV-ATTR:host'),
        server.get('OS-EXT-SRV-ATTR:hypervisor_hostname'),
        server.get('OS-EXT-STS:vm_state', ''),
        server.get('OS-EXT-STS:task_state'),
        updated=_epoch(server.get('updated')) or 0.0)


def _epoch(text):
    if text is None:
        return None
    moment = datetime.datetime.fromisoformat(text)
    return moment.replace(tzinfo=datetime.UTC).timestamp()


class _Api:
    """One API: decoded answers, and errors that say what to do.

    :param name: what people call the service
    :param connection: has an adapter of keystoneauth1 for the service
    :param service: the attribute of the connection with that adapter
    :param remedy: what to do when the service refuses
    """

    def __init__(self, name, connection, service, remedy):
        self._name = name
        self._connection = connection
        self._service = service
        self._remedy = remedy

    def list(self, path, key, identity, microversion, **parameters):
        """All entries of a list, page by page.

        Up to a page that is empty, as a short one may not be the last: nova
        leaves hypervisors out after it has counted them.

        :param key: of the answer, where the entries are
        :param identity: the field of an entry that the next page follows
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(_EntryGone):
                return self._all_pages(
                    path, key, identity, microversion, parameters)
        raise SurveyError(
            f'{self._name} changes faster than {path} can be read. Ask '
            'again, or wait for things to come to rest with --wait SECONDS.')

    def _all_pages(self, path, key, identity, microversion, parameters):
        entries = []
        parameters = parameters | {'limit': PAGE}
        while page := self.get(path, microversion, **parameters)[key]:
            entries += page
            parameters['marker'] = page[-1][identity]
        return entries

    def get(self, path, microversion, may_be_gone=False, **parameters):
        """One answer.

        :param may_be_gone: return None when there is no such thing
        :raises SurveyError: for anything but an answer
        """
        with self._telling():
            answer = getattr(self._connection, self._service).get(
                path, params=parameters, microversion=microversion,
                raise_exc=False)
        status = answer.status_code
        if status == 404 and may_be_gone:
            return None
        if status in (400, 404) and 'marker' in parameters:
            raise _EntryGone
        if status == 401:
            raise SurveyError(
                f'{self._name} does not accept the token of this account. '
                'Look at the service user of its keystone_authtoken.')
        if status == 403:
            raise SurveyError(
                f'{self._name} forbids this account {path}. {self._remedy}')
        if status != 200:
            raise SurveyError(
                f'{self._name} answered {path} with HTTP {status}. Look into '
                'its log.')
        try:
            return answer.json()
        except ValueError:
            raise SurveyError(
                f'{self._name} answered {path} with something that is not '
                'JSON. Look at the endpoint in the catalog.') from None

    @contextlib.contextmanager
    def _telling(self):
        """Turn errors of the client libraries into sentences."""
        try:
            yield
        except identity_exceptions.Unauthorized as error:
            raise SurveyError(
                f'keystone refuses the credentials: {_text(error)}. Look at '
                'user, password and scope.') from error
        except (identity_exceptions.ConnectionError,
                identity_exceptions.DiscoveryFailure,
                sdk_exceptions.ServiceDiscoveryException) as error:
            raise SurveyError(
                f'There is no way to {self._name}: {_text(error)}. Start '
                'what does not answer, or look at the URL and at proxies '
                '(no_proxy).') from error
        except (identity_exceptions.CatalogException,
                sdk_exceptions.EndpointNotFound,
                sdk_exceptions.ServiceDisabledException) as error:
            raise SurveyError(
                f'The catalog has no {self._service} service of this '
                f'region: {_text(error)}. Look at region_name, interface '
                'and the project or scope.') from error
        except (identity_exceptions.ClientException,
                sdk_exceptions.SDKException) as error:
            raise SurveyError(
                f'{self._name} cannot be asked: {_text(error)}.') from error
