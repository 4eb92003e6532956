# SPDX-License-Identifier: Apache-2.0

"""Servers on several computes: boot and delete, and the ring changes."""

import functools
import threading
from unittest import mock

from nova.compute import build_results
from nova.compute import rpcapi
from nova.scheduler import manager

from nova_ironic_multihost.tests.functional import base


class ServersTestCase(base.MultiHostTestCase):

    def assertDeployed(self, server):
        """Assert that Ironic has deployed this server and no other there."""
        node = self.ironic.client.node.get(self.node_of(server))
        self.assertEqual(server['id'], node.instance_uuid)
        self.assertEqual('active', node.provision_state)

    def assertFree(self, node):
        """Assert that a node waits for its next server, in all places."""
        seen = self.ironic.client.node.get(node)
        self.assertIsNone(seen.instance_uuid)
        self.assertEqual('available', seen.provision_state)
        self.assertEqual(
            {}, self._get_allocations_by_provider_uuid(node))
        self.assertEqual(
            0, self._get_provider_inventory(node)
            ['CUSTOM_BAREMETAL']['reserved'])

    def test_boot_on_each_compute(self):
        self.ironic.enroll(9)
        self.fleet.start('host1', 'host2', 'host3')
        owners = self.settle()

        servers = [self.boot(host) for host in self.fleet.hosts]

        for server, host in zip(servers, self.fleet.hosts):
            self.assertEqual(host, self.host_of(server))
            self.assertEqual(host, owners[self.node_of(server)])
            self.assertDeployed(server)
        self.assertEqual(owners, self.settle())

    def test_boot_on_every_node(self):
        nodes = self.ironic.enroll(4)
        self.fleet.start('host1', 'host2', 'host3')
        owners = self.settle()

        servers = [self.boot() for _ in nodes]

        self.assertCountEqual(nodes, map(self.node_of, servers))
        self.assertEqual(owners, self.settle())

    def test_node_with_server_stays_when_computes_join_and_leave(self):
        nodes = self.ironic.enroll(3)
        self.fleet.start('host1')
        self.settle()
        servers = [self.boot() for _ in nodes]

        self.fleet.start('host2', 'host3')
        self.assertEqual({'host1'}, set(self.settle().values()))
        self.fleet.kill('host2')
        self.assertEqual({'host1'}, set(self.settle().values()))

        for server in servers:
            self.assertEqual('host1', self.host_of(self.show(server)))
            self.assertDeployed(server)

    def test_delete_frees_the_node(self):
        nodes = self.ironic.enroll(6)
        self.fleet.start('host1', 'host2', 'host3')
        owners = self.settle()
        self.mark_providers()
        server = self.boot('host2')
        node = self.node_of(server)

        self.delete(server)
        self.ironic.wait_for([node], provision_state='available')

        self.assertEqual(owners, self.settle())
        self.assertFree(node)
        self.assertProvidersKept(nodes)

    def test_nothing_goes_wrong_while_servers_come_and_go(self):
        self.ironic.enroll(6)
        self.fleet.start('host1', 'host2')
        self.settle()
        before = len(self.stdlog.logger.output)
        for _ in range(2):
            for host in self.fleet.hosts:
                server = self.boot(host)
                self.fleet.audit()
                self.delete(server)
                self.ironic.wait_for(
                    [self.node_of(server)], provision_state='available')
                self.fleet.audit()
                self.assertFree(self.node_of(server))
        self.assertEqual([], [
            line for line in self.stdlog.logger.output[before:].splitlines()
            if ('ERROR [nova' in line or 'Traceback' in line)
            # A conductor of the test before, whose database is gone.
            and 'ERROR [nova.servicegroup' not in line])

    def test_build_that_is_sent_twice(self):
        """RabbitMQ may do that; the server runs by then."""
        self.ironic.enroll(3)
        self.fleet.start('host1', 'host2')
        self.settle()
        sent = []
        send = rpcapi.ComputeAPI.build_and_run_instance

        def note(*args, **kwargs):
            sent.append(functools.partial(send, *args, **kwargs))
            return sent[-1]()

        with mock.patch.object(
                rpcapi.ComputeAPI, 'build_and_run_instance', note):
            server = self.boot()
        compute = self.fleet.manager(self.host_of(server))
        build = compute._do_build_and_run_instance
        ended = threading.Event()
        results = []

        def build_and_tell(*args, **kwargs):
            try:
                results.append(build(*args, **kwargs))
            finally:
                ended.set()

        with mock.patch.object(
                compute, '_do_build_and_run_instance', build_and_tell):
            sent[0]()
            self.assertTrue(ended.wait(60))

        self.assertEqual([build_results.FAILED_BY_POLICY], results)
        self.assertEqual(1, len(sent))
        self.assertEqual('ACTIVE', self.show(server)['status'])
        self.assertDeployed(server)
        self.assertEqual({server['id']}, set(
            self._get_allocations_by_provider_uuid(self.node_of(server))))

    def test_machine_that_placement_gives_away_twice(self):
        """The second server gets another one, and nobody touches the first.

        See doc/source/contributor/upstream/placement-allocates-twice.rst.
        """
        self.ironic.enroll(4)
        self.fleet.start('host1', 'host2')
        self.settle()
        first = self.boot()
        node = self.node_of(first)
        known = self.placement.get(
            f'/resource_providers/{node}/inventories').body
        known['inventories']['CUSTOM_BAREMETAL'].update(total=2, reserved=0)
        self._update_inventory(node, known)
        sort = manager.SchedulerManager._get_sorted_hosts
        given = []

        def give_it_first(*args, **options):
            found = sorted(sort(*args, **options),
                           key=lambda state: state.nodename != node)
            given.append(found[0].nodename)
            return found

        with mock.patch.object(
                manager.SchedulerManager, '_get_sorted_hosts', give_it_first):
            second = self.boot()

        self.assertEqual(node, given[0])
        self.assertNotEqual(node, self.node_of(second))
        self.assertDeployed(second)
        self.assertEqual('ACTIVE', self.show(first)['status'])
        self.assertDeployed(first)
        self.assertEqual(
            {first['id']}, set(self._get_allocations_by_provider_uuid(node)))

    def test_node_freed_after_a_compute_joined_is_shared(self):
        nodes = self.ironic.enroll(6)
        self.fleet.start('host1')
        self.settle()
        self.mark_providers()
        servers = [self.boot() for _ in nodes]
        self.fleet.start('host2')
        self.settle()

        for server in servers:
            self.delete(server)
        self.ironic.wait_for(nodes, provision_state='available')

        after = self.settle()
        self.assertCountEqual(nodes, after)
        self.assertCountEqual(['host1', 'host2'], set(after.values()))
        for node in nodes:
            self.assertFree(node)
        self.assertProvidersKept(nodes)
        self.assertDeployed(self.boot('host2'))
