# SPDX-License-Identifier: Apache-2.0

"""Which instances nova reads when a service starts."""

from unittest import mock

import fixtures
from nova.compute import manager
from nova import exception
from nova import objects
from oslo_config import fixture as config_fixture

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.adapters.patches import handlers
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base

HOST = 'compute-1'

#: name -> host, state, task.
AT_REST = {
    'active': (HOST, 'active', None), 'stopped': (HOST, 'stopped', None)}
RESTLESS = {
    'stopping': (HOST, 'active', 'powering-off'),
    'failed': (HOST, 'error', None),
    'building': (HOST, 'building', None),
    'spawning': (HOST, 'building', 'spawning'),
    'softly': (HOST, 'soft-delete', None),
    'half': (HOST, 'deleted', None),
    'taken': (HOST, 'active', takeover.taken(None, HOST)),
    'taken from work': (HOST, 'active', takeover.taking('rebooting', HOST))}
THEIRS = {'theirs': ('compute-2', 'error', 'deleting')}


class StartTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(config_fixture.Config(names.CONF)).config(
            compute_driver='ironic_multihost.IronicMultiHostDriver')
        self.names = {}
        for number, (name, (host, vm_state, task_state)) in enumerate({
                **AT_REST, **RESTLESS, **THEIRS}.items()):
            uuid = f'00000000-0000-4000-8000-{number:012}'
            self.names[uuid] = name
            objects.Instance(
                self.context, uuid=uuid, host=host, project_id='project',
                vm_state=vm_state, task_state=task_state,
                flavor=objects.Flavor(
                    name='f', memory_mb=1, root_gb=1, ephemeral_gb=0, vcpus=1,
                    swap=0, flavorid='f', extra_specs={})).create()

    def compute(self):
        """Return what nova starts, whose driver has patched it."""
        compute = object.__new__(manager.ComputeManager)
        compute.host = HOST
        compute.send_instance_updates = True
        compute.query_client = mock.Mock()
        compute.driver = mock.Mock(capabilities={})
        compute.driver.process_instances_at_startup = (
            lambda context, instances: instances)
        compute._ensure_existing_node_identity = mock.Mock()
        self.seen = []
        compute._init_instance = (
            lambda context, instance: self.seen.append(
                self.names[instance.uuid]))
        compute.driver.init_host = lambda host: self.patch(compute)
        compute.init_virt_events = self.list_all
        return compute

    def patch(self, compute):
        base.replace(base.INSTANCES_AT_START, compute)

    def list_all(self):
        """Read all instances, as any of nova's tasks may from then on."""
        self.listed = len(objects.InstanceList.get_by_host(
            self.context, HOST))

    def test_nova_goes_through_those_for_which_there_is_something_to_do(self):
        self.compute().init_host(mock.Mock())
        self.assertCountEqual(RESTLESS, self.seen)
        self.assertEqual(len(AT_REST) + len(RESTLESS), self.listed)

    def test_they_have_all_that_nova_asks_for(self):
        whole = objects.InstanceList.get_by_host(
            self.context, HOST, expected_attrs=['flavor', 'metadata'])[0]
        few = handlers.restless(self.context, HOST, ['flavor', 'metadata'])[0]
        self.assertEqual([name for name in whole.fields if name in whole],
                         [name for name in few.fields if name in few])

    def test_pages_are_short(self):
        self.useFixture(fixtures.MockPatchObject(
            handlers.db, 'INSTANCES', 2))
        self.compute().init_host(mock.Mock())
        self.assertCountEqual(RESTLESS, self.seen)

    def test_all_are_read_while_many_are_deleted(self):
        self.useFixture(fixtures.MockPatchObject(
            handlers.db, 'all_rows', side_effect=exception.MarkerNotFound(
                marker='gone')))
        self.compute().init_host(mock.Mock())
        self.assertCountEqual([*AT_REST, *RESTLESS], self.seen)

    def test_the_scheduler_is_told_of_single_instances(self):
        compute = self.compute()
        compute.init_host(mock.Mock())
        compute.query_client.update_instance_info.assert_not_called()
        compute._update_scheduler_instance_info(
            self.context, objects.Instance())
        compute.query_client.update_instance_info.assert_called_once()

    def test_what_is_left_out_rests_for_the_recovery_too(self):
        for state in handlers.RESTLESS:
            self.assertFalse(takeover.rests_at_start(state, None), state)
        for task_state in nova_servers.TASK_STATES:
            self.assertFalse(takeover.rests_at_start('active', task_state))
