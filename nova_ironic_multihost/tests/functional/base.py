# SPDX-License-Identifier: Apache-2.0

"""What every functional test stands on."""

import functools
from importlib import metadata
import inspect
import os
import time

import fixtures
from nova.compute import manager
import nova.conf
from nova.tests.functional.api import client as nova_client
from nova.tests.functional import integrated_helpers
from oslo_utils.fixture import uuidsentinel
from sqlalchemy import pool

from nova_ironic_multihost import conf
from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine import lifecycle
from nova_ironic_multihost import loader
from nova_ironic_multihost.tests.functional import computes
from nova_ironic_multihost.tests.functional import ironic

CONF = nova.conf.CONF

OURS = 'ironic_multihost.IronicMultiHostDriver'
STOCK = 'ironic.IronicDriver'

#: Seconds that nova may need for what it was asked; see ironic.DEADLINE.
DEADLINE = 60

#: Seconds that nova has for the end of a service. All are for the driver: of
#: less than that nova gives none to operations that go on.
SHUTDOWN = 20

#: Seconds between two questions to nova, which has the processor that its
#: answer takes from what is waited for.
POLL = 0.2


@functools.cache
def _api_paste_config():
    """Find nova's api-paste.ini, installed or in a source tree.

    nova's fixtures look in the source tree only.
    """
    for file in metadata.files('nova'):
        if file.match('etc/nova/api-paste.ini'):
            return str(file.locate())
    return os.path.join(CONF.pybasedir, 'etc/nova/api-paste.ini')


class MultiHostTestCase(integrated_helpers.ProviderUsageBaseTestCase):
    """A nova and an Ironic, no compute yet.

    :cvar compute_driver: the driver that computes are started with.
    :ivar ironic: the :class:`.ironic.Ironic`.
    :ivar fleet: the :class:`.computes.Computes`.
    """

    compute_driver = OURS

    def setUp(self):
        # In a nova-compute os-vif does it; there is none here.
        loader.register()
        self.flags(api_paste_config=_api_paste_config(), group='wsgi')
        # Computes beat when they are told; see computes.Computes.
        self.flags(service_down_time=3600)
        # nova 34 ends a compute in a thread of its own. The fixture that keeps
        # it from closing the pools of the whole process is gone with the test,
        # so the thread has to be through; in a test nova does not wait for it.
        # nova 33 sleeps for so long, whatever goes on.
        end = getattr(manager.ComputeManager, 'graceful_shutdown', None)
        if end and 'timeout' in inspect.signature(end).parameters:
            self.flags(manager_shutdown_timeout=SHUTDOWN)
        # Nor do they look around but when they are told.
        self.useFixture(
            fixtures.MockPatchObject(periodic.PeriodicThread, 'start'))
        # What it says when it ends is heard, or never.
        self.useFixture(
            fixtures.MockPatchObject(lifecycle, 'ATTEMPTS', 1))
        # oslo.db opens a file for each transaction, which takes as long as
        # all that is done in it.
        self.useFixture(fixtures.MockPatch(
            'oslo_db.sqlalchemy.engines.pool.NullPool', pool.QueuePool))
        super().setUp()
        # What the test before has left goes now and not when it ended: then
        # its computes may still have used it.
        self.ironic = ironic.shared()
        self.ironic.clear()
        self.addDetail('ironic.log', self.ironic.log_from_now())
        self.flags(
            auth_type='none', endpoint_override=self.ironic.endpoint,
            api_max_retries=2, api_retry_interval=1, group='ironic')
        conf.register_opts(CONF)
        self.useFixture(fixtures.MockPatchObject(
            audit_state, 'PULL_DELAY_AUDITS', 1))
        self.flags(instances=-1, cores=-1, ram=-1, group='quota')
        self.fleet = computes.Computes(self, self.cell_mappings['cell1'])
        self.flavor = self._create_flavor(
            memory_mb=16384, vcpu=8, disk=200, ephemeral=0, extra_spec={
                'resources:CUSTOM_BAREMETAL': '1',
                'resources:VCPU': '0',
                'resources:MEMORY_MB': '0',
                'resources:DISK_GB': '0'})

    # What an operator sees

    def owners(self):
        """Return {node: host} as the hypervisor list shows it.

        Fails if a node is in the list twice.
        """
        listed = self.admin_api.api_get(
            '/os-hypervisors/detail').body['hypervisors']
        nodes = [hypervisor['hypervisor_hostname'] for hypervisor in listed]
        self.assertCountEqual(set(nodes), nodes)
        return {
            hypervisor['hypervisor_hostname']: hypervisor['service']['host']
            for hypervisor in listed}

    def nodes_of(self, host):
        """Return the set of nodes that the hypervisor list shows at a host."""
        return {
            node for node, owner in self.owners().items() if owner == host}

    def providers(self):
        """Return the names of placement's resource providers."""
        return [provider['name'] for provider in self._get_all_providers()]

    def settle(self):
        """Audit all computes until ownership stands still; return it.

        Fails if it does not within some rounds: nodes then go to and fro.
        """
        before, quiet = self.owners(), 0
        for _ in range(8):
            self.fleet.audit()
            after = self.owners()
            quiet = quiet + 1 if after == before else 0
            # In one round a compute may only learn what it has lost to peers.
            if quiet == 2:
                return after
            before = after
        raise self.failureException(f'Nodes still change owner: {before}')

    def reserved(self, node):
        """Return whether placement offers nothing of a node."""
        return bool(self._get_provider_inventory(node)
                    ['CUSTOM_BAREMETAL']['reserved'])

    def mark_providers(self):
        """Put a mark on every provider that a new one would not have."""
        for provider in self._get_all_providers():
            self._set_aggregate(provider['uuid'], uuidsentinel.mark)

    def assertProvidersKept(self, nodes):
        """Assert that these nodes still have the providers that we marked."""
        providers = {
            provider['name']: provider['uuid']
            for provider in self._get_all_providers()}
        self.assertCountEqual(nodes, providers)
        for node in nodes:
            self.assertEqual(
                [uuidsentinel.mark],
                self._get_provider_aggregates(providers[node]),
                f'The provider of {node} was deleted and created again')

    # What a user does

    def boot(self, host=None):
        """Boot a server, wait until it is ACTIVE and return it.

        :param host: the compute that it must be built by; any if None.
        """
        return self.wait_for_status(self.request_server(host), 'ACTIVE')

    def request_server(self, host=None):
        """Ask for a server and return it; nova builds it meanwhile.

        :param host: the compute that it must be built by; any if None.
        """
        server = self._build_server(
            flavor_id=self.flavor, networks='none', host=host)
        return self.api.post_server({'server': server})

    def wait_for_status(self, server, status):
        """Return the server as soon as it has this status.

        Fails if it has gone to ERROR, or does not get there in time.
        """
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            server = self.show(server)
            if server['status'] == status:
                return server
            if server['status'] == 'ERROR':
                self.fail(f'Server went to ERROR: {server.get("fault")}')
            time.sleep(POLL)
        raise self.failureException(
            f'Server is not {status} in {DEADLINE} s: {server}')

    def wait_for_end(self, server):
        """Return 'ACTIVE' or 'ERROR' when nova has done what was asked.

        Fails if that takes too long.
        """
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            seen = self.show(server)
            if seen['OS-EXT-STS:task_state'] is None and seen['status'] in (
                    'ACTIVE', 'ERROR'):
                return seen['status']
            time.sleep(POLL)
        raise self.failureException(
            f'Server is not done in {DEADLINE} s: {seen}')

    def wait_for_allocation(self, server):
        """Return the nodes that placement has allocated to a server.

        Fails if there are none in time.
        """
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            nodes = set(self._get_allocations_by_server_uuid(server['id']))
            if nodes:
                return nodes
            time.sleep(POLL)
        raise self.failureException(
            f'Nothing was allocated to {server} in {DEADLINE} s')

    def delete(self, server):
        """Delete a server and wait until it is gone."""
        self.api.delete_server(server['id'])
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            try:
                server = self.show(server)
            except nova_client.OpenStackApiNotFoundException:
                return
            time.sleep(POLL)
        self.fail(f'Server is not deleted in {DEADLINE} s: {server}')

    def show(self, server):
        """Return the server as it is now."""
        return self.api.get_server(server['id'])

    @staticmethod
    def host_of(server):
        """Return the compute that the API names for a server."""
        return server['OS-EXT-SRV-ATTR:host']

    @staticmethod
    def node_of(server):
        """Return the node that the API names for a server."""
        return server['OS-EXT-SRV-ATTR:hypervisor_hostname']
