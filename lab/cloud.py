# SPDX-License-Identifier: Apache-2.0

"""The cloud as its user and its operator see it: through the APIs."""

import concurrent.futures
import functools
import time

from ironicclient import client as ironic_client
from keystoneauth1 import adapter
from keystoneauth1.identity import v3
from keystoneauth1 import session as keystone_session
import openstack
import requests

from lab import enrolment
from lab import errors
from lab import settings as places

_COMPUTE_MICROVERSION = '2.96'
_BAREMETAL_MICROVERSION = '1.80'
_PLACEMENT_MICROVERSION = '1.39'
_THREADS = 8
# What a server is made of unless somebody says otherwise.
FLAVOR = 'baremetal'
IMAGE = 'lab'


class Cloud:
    """Clients for a stack that is up, made when first used.

    :param settings: :class:`lab.settings.Settings`
    :param timeout: seconds for which each request waits for an answer, None
        for as long as it takes
    """

    def __init__(self, settings, timeout=None):
        self._settings = settings
        self._timeout = timeout

    @functools.cached_property
    def session(self):
        """keystoneauth1 session of the admin in project admin."""
        return self._session(project_name='admin',
                             project_domain_id='default')

    @functools.cached_property
    def ironic(self):
        """python-ironicclient v1 client, system scope (sees all nodes)."""
        return ironic_client.get_client(
            1, session=self._session(system_scope='all'),
            region_name=places.REGION, max_retries=20, retry_interval=1,
            os_ironic_api_version=_BAREMETAL_MICROVERSION)

    @functools.cached_property
    def sdk(self):
        """openstacksdk connection of the admin in project admin."""
        return openstack.connection.Connection(
            session=self.session, region_name=places.REGION)

    def nova(self, method, path, json=None,
             microversion=_COMPUTE_MICROVERSION):
        """One request to the nova API.

        :param method: 'GET', 'POST', ...
        :param path: e.g. '/servers/detail'
        :param json: body
        :param microversion: of the API, as a string
        :returns: decoded body, or None when there is none
        :raises keystoneauth1.exceptions.HttpError: for an answer from 400
        """
        answer = self._compute.request(path, method, json=json,
                                       microversion=microversion)
        return answer.json() if answer.content else None

    def placement(self, method, path, json=None):
        """One request to the placement API; like :meth:`nova`."""
        answer = self._placement.request(path, method, json=json)
        return answer.json() if answer.content else None

    def create(self, name, hints=None, **more):
        """Ask for one server and do not wait for it.

        :param hints: dict of scheduler hints
        :param more: what nova's API takes for a server, instead of or
            beside the lab's own image and flavor (imageRef, flavorRef,
            availability_zone, ...)
        :returns: its id
        """
        body = {'server': self._choice | {
            'name': name, 'networks': 'none'} | more}
        if hints:
            body['os:scheduler_hints'] = hints
        return self.nova('POST', '/servers', json=body)['server']['id']

    def boot(self, count=1, name_prefix='server', wait=True, timeout=120):
        """Ask for servers.

        :param wait: return when each is ACTIVE or ERROR
        :returns: list of server ids, in the order of their names
        :raises LabError: when not all settled within timeout seconds
        """
        names = self._free_names(name_prefix, count)
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            ids = list(pool.map(self.create, names))
        if wait:
            self._until(timeout, lambda: not self._building(ids),
                        f'Not all of {", ".join(names)} are ACTIVE or ERROR')
        return ids

    def servers(self):
        """All servers of all projects, as nova describes them."""
        return self.nova('GET', '/servers/detail?all_tenants=1')['servers']

    def delete(self, ids, wait=True, timeout=120):
        """Delete servers.

        :param wait: return when they are gone
        :raises LabError: when they are not gone within timeout seconds
        """
        ids = set(ids)
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(
                lambda server: self.nova('DELETE', f'/servers/{server}'),
                ids))
        if wait:
            self._until(
                timeout,
                lambda: not ids & {server['id'] for server in self.servers()},
                'Not all servers are gone')

    def enrol(self, count):
        """Enrol nodes up to 'available', each stage for all at once.

        :param count: of nodes, named node-1, node-2, ...
        :raises LabError: when a stage takes too long
        """
        enrolment.enrol(
            self.ironic, [f'node-{n}' for n in range(1, count + 1)])

    def compute_services(self):
        """nova's services of binary nova-compute, by host name."""
        found = self.nova('GET', '/os-services?binary=nova-compute')
        return {service['host']: service for service in found['services']}

    def schedulable(self):
        """How many nodes nova shows and placement would give away now."""
        shown = self.nova('GET', '/os-hypervisors')['hypervisors']
        free = self.placement(
            'GET', '/resource_providers?resources=CUSTOM_BAREMETAL:1')
        uuids = {provider['uuid']
                 for provider in free['resource_providers']}
        return len(uuids & {hypervisor['id'] for hypervisor in shown})

    def service_action(self, host, action):
        """Tell nova about a compute service.

        :param action: 'disable', 'enable', 'fence' (force down) or
            'unfence'
        :raises LabError: when nova has no such compute service
        """
        body = {'disable': {'status': 'disabled'},
                'enable': {'status': 'enabled'},
                'fence': {'forced_down': True},
                'unfence': {'forced_down': False}}[action]
        service = self._service(host)
        self.nova('PUT', f'/os-services/{service["id"]}', json=body)

    def forget_service(self, host):
        """Delete a compute service in nova, with its mapping to a cell.

        nova deletes the records and the resource providers of the nodes
        that it owns with it.

        :raises LabError: when nova has no such compute service
        :raises keystoneauth1.exceptions.Conflict: when servers are on it
        """
        service = self._service(host)
        self.nova('DELETE', f'/os-services/{service["id"]}')

    def forget_providers(self):
        """Delete the resource providers of all nodes.

        :raises keystoneauth1.exceptions.Conflict: when one is in use
        """
        found = self.placement('GET', '/resource_providers')
        for provider in found['resource_providers']:
            self.placement(
                'DELETE', f'/resource_providers/{provider["uuid"]}')

    def _service(self, host):
        try:
            return self.compute_services()[host]
        except KeyError:
            raise errors.LabError(
                f'nova knows no compute service {host}.') from None

    def _session(self, **scope):
        direct = requests.Session()
        # Neither proxies nor .netrc have to do with this machine's loopback.
        direct.trust_env = False
        return keystone_session.Session(
            v3.Password(self._settings.url('keystone') + '/v3',
                        username='admin', password=places.PASSWORD,
                        user_domain_id='default', **scope),
            session=direct, timeout=self._timeout)

    @functools.cached_property
    def _compute(self):
        return adapter.Adapter(
            self.session, service_type='compute', interface='public',
            region_name=places.REGION)

    @functools.cached_property
    def _placement(self):
        return adapter.Adapter(
            self.session, service_type='placement', interface='public',
            region_name=places.REGION,
            default_microversion=_PLACEMENT_MICROVERSION)

    @functools.cached_property
    def _choice(self):
        [flavor] = [flavor['id'] for flavor
                    in self.nova('GET', '/flavors')['flavors']
                    if flavor['name'] == FLAVOR]
        return {'imageRef': self.sdk.image.find_image(IMAGE).id,
                'flavorRef': flavor}

    def _free_names(self, prefix, count):
        taken = {server['name'] for server in self.servers()}
        names = []
        number = 0
        while len(names) < count:
            number += 1
            if f'{prefix}-{number}' not in taken:
                names.append(f'{prefix}-{number}')
        return names

    def _building(self, ids):
        status = {server['id']: server['status'] for server in self.servers()}
        return [server for server in ids
                if status.get(server) not in ('ACTIVE', 'ERROR')]

    @staticmethod
    def _until(timeout, condition, complaint):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise errors.LabError(f'{complaint} after {timeout} s.')
            time.sleep(0.3)
