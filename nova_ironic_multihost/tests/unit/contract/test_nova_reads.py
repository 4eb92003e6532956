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


"""What the driver reads from nova, read from nova's own databases.

The reads go to empty databases with the schema of the nova installed here, so
that whatever changes below nova's objects is found, too.
"""

from unittest import mock

import fixtures
from nova import context as nova_context
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import api as main_db
from nova.db.main import models as main_models
from nova import objects
from nova import rpc
from nova import servicegroup
from oslo_config import fixture as config_fixture
from oslo_db.sqlalchemy import enginefacade
from oslo_db.sqlalchemy import test_fixtures
import oslo_messaging as messaging
from oslo_messaging import conffixture as messaging_fixture
from oslo_utils.fixture import uuidsentinel
from oslo_utils import timeutils
from oslotest import base

from nova_ironic_multihost.contract import nova as nova_contract
from nova_ironic_multihost.core import aggregates
from nova_ironic_multihost.core import membership
from nova_ironic_multihost.core import ownership
from nova_ironic_multihost.core import takeover


class Databases(fixtures.Fixture):
    """nova's main and API database, empty, in memory."""

    CONNECTION = 'sqlite://'

    def _setUp(self):
        self._replace(main_db.context_manager, main_models.BASE)
        self._replace(api_db.context_manager, api_models.BASE)

    def _replace(self, manager, models):
        facade = enginefacade.transaction_context()
        facade.configure(connection=self.CONNECTION)
        self.useFixture(test_fixtures.ReplaceEngineFacadeFixture(
            manager, facade))
        models.metadata.create_all(facade.writer.get_engine())


class DatabaseTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        objects.register_all()
        config = self.useFixture(config_fixture.Config(nova_contract.CONF))
        nova_contract.CONF([], project='nova', default_config_files=[])
        config.config(group='database', connection=Databases.CONNECTION)
        self.useFixture(messaging_fixture.ConfFixture(nova_contract.CONF))
        self.useFixture(Databases())
        # Writing the rows notifies, and there is nobody to be notified.
        self.useFixture(fixtures.MockPatchObject(
            rpc, 'NOTIFIER', mock.Mock(is_enabled=lambda: False)))
        self.useFixture(fixtures.MockPatchObject(
            rpc, 'LEGACY_NOTIFIER', mock.Mock()))
        self.context = nova_context.get_admin_context()

    def service(self, host, **fields):
        service = objects.Service(
            self.context, host=host, binary='nova-compute', topic='compute',
            **fields)
        service.create()
        return service

    def record(self, service, node, hypervisor_type='ironic', stats=None):
        objects.ComputeNode(
            self.context, service_id=service.id, host=service.host, uuid=node,
            hypervisor_hostname=node, hypervisor_type=hypervisor_type,
            hypervisor_version=1, cpu_info='', vcpus=1, vcpus_used=0,
            memory_mb=1, memory_mb_used=0, local_gb=1, local_gb_used=0,
            stats=stats or {}).create()

    def instance(self, uuid, host):
        instance = objects.Instance(
            self.context, uuid=uuid, host=host, project_id='project')
        instance.create()
        return instance


class ServicesTestCase(DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = mock.Mock(spec=servicegroup.API)
        self.api.service_is_up.return_value = True

    def test_services_that_have_an_ironic_node(self):
        self.record(self.service('Host-1', forced_down=True), uuidsentinel.a)
        self.record(self.service('libvirt'), uuidsentinel.b, 'QEMU')
        self.service('without-nodes')
        self.assertEqual(
            [membership.ComputeService('Host-1', True, forced_down=True)],
            nova_contract.ironic_services(self.context, self.api, 'ironic'))

    def test_one_service_also_when_it_is_disabled_or_has_no_node(self):
        self.service('host-1', disabled=True)
        self.assertEqual(
            membership.ComputeService('host-1', True, disabled=True),
            nova_contract.compute_service(self.context, self.api, 'host-1'))

    def test_no_service(self):
        self.assertIsNone(
            nova_contract.compute_service(self.context, self.api, 'host-1'))


class InstancesTestCase(DatabaseTestCase):

    def test_instances_of_a_host(self):
        self.instance(uuidsentinel.here, 'host-1')
        self.instance(uuidsentinel.deleted, 'host-1').destroy()
        self.instance(uuidsentinel.elsewhere, 'host-2')
        self.assertEqual(
            {uuidsentinel.here},
            nova_contract.instance_uuids(self.context, 'host-1'))

    def test_where_instances_are_and_which_are_deleted(self):
        self.instance(uuidsentinel.here, 'host-1')
        self.instance(uuidsentinel.deleted, 'host-2').destroy()
        self.instance(uuidsentinel.nowhere, None)
        self.instance(uuidsentinel.not_asked, 'host-1')
        with mock.patch.object(nova_contract, 'BATCH', 2):
            found = nova_contract.instance_states(self.context, [
                uuidsentinel.here, uuidsentinel.unknown, uuidsentinel.deleted,
                uuidsentinel.nowhere])
        self.assertEqual({
            uuidsentinel.here: ownership.InstanceState('host-1', False),
            uuidsentinel.deleted: ownership.InstanceState('host-2', True),
            uuidsentinel.nowhere: ownership.InstanceState(None, False)}, found)



class TakeoverTestCase(DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.uuid = uuidsentinel.instance
        self.row = self.instance(self.uuid, 'dead')
        self.row.vm_state = 'active'
        self.row.save()

    def seen(self, **how):
        return ownership.InstanceState(**{
            'host': 'dead', 'node': self.row.node, 'vm_state': 'active',
            'task_state': None, **how})

    def now(self):
        row = objects.Instance.get_by_uuid(self.context, self.uuid)
        return row.host, row.vm_state, row.task_state

    def take_over(self, state=None, host='mine'):
        return nova_contract.take_over(
            self.context, self.uuid, state or self.seen(), host)

    def test_as_it_is_read(self):
        self.assertEqual(
            {self.uuid: self.seen()},
            nova_contract.instance_states(self.context, [self.uuid]))

    def test_it_is_moved_and_marked(self):
        self.assertTrue(self.take_over())
        host, vm_state, task_state = self.now()
        self.assertEqual(('mine', 'active'), (host, vm_state))
        self.assertTrue(takeover.is_mark(task_state))

    def test_what_it_was_doing_is_kept(self):
        self.row.task_state = 'deleting'
        self.row.save()
        self.assertTrue(self.take_over(self.seen(task_state='deleting')))
        self.assertEqual('deleting', takeover.marked(self.now()[2]))

    def test_not_when_anything_has_changed(self):
        for state in (self.seen(host='other'), self.seen(node='other'),
                       self.seen(vm_state='stopped'),
                       self.seen(task_state='rebooting')):
            self.assertFalse(self.take_over(state))
        self.assertEqual(('dead', 'active', None), self.now())

    def test_one_of_two_that_read_the_same(self):
        get = objects.Instance.get_by_uuid
        second = []

        def read_before_the_other_wrote(context, uuid, **how):
            row = get(context, uuid, **how)
            if not second:
                second.append(True)
                second.append(self.take_over(host='other'))
            return row

        with mock.patch.object(objects.Instance, 'get_by_uuid',
                               side_effect=read_before_the_other_wrote):
            self.assertFalse(self.take_over())
        self.assertEqual([True, True], second)
        self.assertEqual('other', self.now()[0])

    def test_not_while_a_migration_is_in_progress(self):
        objects.Migration(
            self.context, instance_uuid=self.uuid, status='accepted',
            migration_type='evacuation', source_compute='dead',
            source_node='n', dest_compute='x', dest_node='n',
            dest_compute_id=1).create()
        self.assertFalse(self.take_over())

    def test_not_when_it_is_gone(self):
        self.row.destroy()
        self.assertFalse(self.take_over())

    def test_an_answer_that_is_lost_is_asked_for(self):
        save = objects.Instance.save

        def lost(row, **how):
            save(row, **how)
            raise messaging.MessagingTimeout

        with mock.patch.object(objects.Instance, 'save', lost):
            self.assertTrue(self.take_over())

    def test_a_write_that_is_lost_is_noticed(self):
        with mock.patch.object(objects.Instance, 'save',
                               side_effect=messaging.MessagingTimeout):
            self.assertFalse(self.take_over())
        self.assertEqual('dead', self.now()[0])


class RecordsTestCase(DatabaseTestCase):

    def setUp(self):
        super().setUp()
        service = self.service('Host-1')
        self.record(service, uuidsentinel.a,
                    stats={nova_contract.PARTITION: 'shard=1'})
        self.record(service, uuidsentinel.b)
        self.record(self.service('host-2'), uuidsentinel.c)

    def assertRecords(self, expected, found):
        self.assertCountEqual(expected, [
            (record.node, record.host, record.partition)
            for record in found])
        for record in found:
            self.assertEqual(record.node, record.row.uuid)

    def test_records_of_a_host(self):
        self.assertRecords(
            [(uuidsentinel.a, 'Host-1', 'shard=1'),
             (uuidsentinel.b, 'Host-1', '')],
            nova_contract.records_of(self.context, 'Host-1'))

    def test_host_without_records(self):
        self.assertEqual([], nova_contract.records_of(self.context, 'host-3'))

    def test_records_of_nodes(self):
        with mock.patch.object(nova_contract, 'BATCH', 1):
            found = nova_contract.records(self.context, [
                uuidsentinel.unknown, uuidsentinel.a, uuidsentinel.c])
        self.assertRecords([(uuidsentinel.a, 'Host-1', 'shard=1'),
                            (uuidsentinel.c, 'host-2', '')], found)


class CloudTestCase(DatabaseTestCase):

    def test_mapped_host(self):
        cell = objects.CellMapping(
            self.context, uuid=uuidsentinel.cell, transport_url='fake:///',
            database_connection=Databases.CONNECTION)
        cell.create()
        objects.HostMapping(
            self.context, host='host-1', cell_mapping=cell).create()
        self.assertIs(True, nova_contract.host_mapped(self.context, 'host-1'))
        self.assertIs(False, nova_contract.host_mapped(self.context, 'host-2'))

    def test_aggregates(self):
        zone = objects.Aggregate(
            self.context, name='zone', uuid=uuidsentinel.zone,
            metadata={'availability_zone': 'east', 'ssd': 'true'})
        zone.create()
        zone.add_host('Host-1')
        zone.add_host('host-2')
        objects.Aggregate(
            self.context, name='empty', uuid=uuidsentinel.empty).create()
        self.assertCountEqual(
            (aggregates.Aggregate(
                uuidsentinel.zone, frozenset({'host-1', 'host-2'}), 'east'),
             aggregates.Aggregate(uuidsentinel.empty, frozenset())),
            nova_contract.host_aggregates(self.context))


class WithoutApiDatabaseTestCase(base.BaseTestCase):
    """The conductor of a cell need not reach the API database."""

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.useFixture(test_fixtures.ReplaceEngineFacadeFixture(
            api_db.context_manager, enginefacade.transaction_context()))
        self.context = nova_context.get_admin_context()

    def test_it_is_not_known_whether_a_host_is_mapped(self):
        self.assertIsNone(nova_contract.host_mapped(self.context, 'host-1'))

    def test_aggregates_are_not_known(self):
        self.assertIsNone(nova_contract.host_aggregates(self.context))


class InstanceOfThisHostTestCase(DatabaseTestCase):
    """What is done for an instance that was taken over."""

    def setUp(self):
        super().setUp()
        self.row = self.instance(uuidsentinel.instance, 'mine')
        self.row.vm_state = 'active'
        self.row.task_state = 'powering-off'
        self.row.save()
        self.manager = mock.Mock(spec=[
            '_init_instance', '_set_instance_obj_error_state',
            '_get_power_state'])
        self.init = self.manager._init_instance
        self.instances = nova_contract.Instances(
            mock.Mock(_compute=self.manager))

    def now(self):
        row = objects.Instance.get_by_uuid(self.context, self.row.uuid)
        return row.vm_state, row.task_state

    def test_one_that_is_gone(self):
        self.row.destroy()
        self.assertIsNone(self.instances.read(self.row.uuid))

    def test_states_are_written_if_nobody_else_has(self):
        first = self.instances.read(self.row.uuid)
        second = self.instances.read(self.row.uuid)
        self.assertTrue(self.instances.set_states(first, 'active', None))
        self.assertFalse(self.instances.set_states(second, 'stopped', None))
        self.assertEqual(('active', None), self.now())

    def test_what_nova_does_is_noted_under_the_last_request(self):
        for request in ('req-1', 'req-2'):
            context = nova_context.get_admin_context()
            context.request_id = request
            objects.InstanceAction.action_start(
                context, self.row.uuid, 'stop', want_result=False)
        self.instances.init(self.instances.read(self.row.uuid))
        [(context, instance), _] = self.init.call_args
        self.assertEqual('req-2', context.request_id)
        self.assertEqual(self.row.uuid, instance.uuid)

    def test_what_nova_does_without_a_request(self):
        self.instances.init(self.instances.read(self.row.uuid))
        self.init.assert_called_once()

    def test_a_fault_says_why(self):
        self.instances.fail(self.instances.read(self.row.uuid), 'no disk')
        fault = objects.InstanceFault.get_latest_for_instance(
            self.context, self.row.uuid)
        self.assertIn('no disk', fault.message)
        self.manager._set_instance_obj_error_state.assert_called_once_with(
            mock.ANY, clean_task_state=True)

    def test_a_build_that_is_over(self):
        self.row.vm_state = 'building'
        self.row.task_state = 'spawning'
        self.row.save()
        self.manager._get_power_state.return_value = 1
        self.instances.deployed(self.instances.read(self.row.uuid))
        self.assertEqual(('active', None), self.now())
        row = objects.Instance.get_by_uuid(self.context, self.row.uuid)
        self.assertEqual(1, row.power_state)
        self.assertIsNotNone(row.launched_at)

    def test_a_rebuild_keeps_when_it_was_launched(self):
        self.row.launched_at = launched = timeutils.utcnow(True).replace(
            microsecond=0)
        self.row.save()
        self.manager._get_power_state.return_value = 1
        self.instances.deployed(self.instances.read(self.row.uuid))
        row = objects.Instance.get_by_uuid(self.context, self.row.uuid)
        self.assertEqual(launched, row.launched_at)

    def test_something_else_is_done_at_the_start(self):
        seen = []
        self.instances.patch_instance_init(
            lambda init, instance: seen.append((init, instance)))
        self.manager._init_instance('context', 'instance')
        self.init.assert_not_called()
        [(init, instance)] = seen
        self.assertEqual('instance', instance)
        init()
        self.init.assert_called_once_with('context', 'instance')

    def test_without_a_manager(self):
        nova_contract.Instances(object()).patch_instance_init(None)

    def test_notifications(self):
        sent = []
        with mock.patch.object(rpc, 'NOTIFICATION_TRANSPORT', mock.Mock()), \
                mock.patch.object(messaging, 'Notifier') as notifier:
            notifier.return_value.info = lambda *args: sent.append(args)
            self.instances.notify('event', {'host': 'h'})
        self.assertEqual([({}, 'event', {'host': 'h'})], sent)

    def test_nobody_to_be_notified(self):
        with mock.patch.object(rpc, 'NOTIFICATION_TRANSPORT', None):
            self.instances.notify('event', {})
