# SPDX-License-Identifier: Apache-2.0

"""What this package reads of nova and placement."""

import json
from unittest import mock

import fixtures
from keystoneauth1 import exceptions as ks_exception
from nova import context as nova_context
from nova.db.api import api as api_db
from nova.db.main import api as main_db
from nova import objects
from nova.objects import base as objects_base
from nova import servicegroup
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import enginefacade
from oslo_db.sqlalchemy import test_fixtures
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel
from oslotest import base as oslo_base
import sqlalchemy

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.adapters import base


class ServicesTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = mock.Mock(spec=servicegroup.API)
        self.api.service_is_up.return_value = True

    def test_services_that_have_an_ironic_node(self):
        self.record(self.service('Host-1', forced_down=True), uuidsentinel.a)
        self.record(self.service('libvirt'), uuidsentinel.b, 'QEMU')
        self.service('without-nodes')
        self.assertEqual(
            [peers.ComputeService('Host-1', True, forced_down=True)],
            db.ironic_services(self.api, 'ironic'))

    def test_one_service_also_when_it_is_disabled_or_has_no_node(self):
        self.service('host-1', disabled=True)
        self.assertEqual(
            peers.ComputeService('host-1', True, disabled=True),
            db.compute_service(self.api, 'host-1'))

    def test_when_it_sent_a_heartbeat(self):
        service = self.service('host-1')

        def beat():
            return db.compute_service(self.api, 'host-1').beat

        self.assertIsNone(beat())
        service.report_count += 1
        service.save()
        first = beat()
        self.assertIsNotNone(first)
        # Whatever else is written.
        service.disabled = True
        service.save()
        self.assertEqual(first, beat())
        # Another driver writes none, and leaves it as it is.
        db.names.CONF.set_override('servicegroup_driver', 'mc')
        self.assertIsNone(beat())

    def test_no_service(self):
        self.assertIsNone(
            db.compute_service(self.api, 'host-1'))


class SecondRecordTestCase(base.DatabaseTestCase):
    """A node has another row, with a uuid of its own."""

    def setUp(self):
        super().setUp()
        self.node, self.row = uuidsentinel.node, uuidsentinel.row
        self.record(self.service('old'), self.node)
        self.mine = self.service('mine')
        self.record(self.mine, self.node, uuid=self.row)

    def move(self):
        [record] = db.records([self.node])
        record.row.host, record.row.service_id = 'mine', self.mine.id
        record.row.save()

    def test_it_is_told_from_the_node_s_own(self):
        [record] = db.records_of('mine')
        self.assertEqual((self.node, self.row), (record.node, record.second))
        [record] = db.records_of('old')
        self.assertEqual('', record.second)

    def test_the_remedy(self):
        self.assertRaises(db_exception.DBDuplicateEntry, self.move)
        told = model.second_record(self.node, self.row)
        [_, sql] = told.split('cell: ')
        [sql, _] = sql.split(';')
        with main_db.get_context_manager(
                self.context).writer.using(self.context):
            self.assertEqual(1, self.context.session.execute(
                sqlalchemy.text(sql)).rowcount)
        self.assertEqual([], db.records_of('mine'))
        self.move()
        [record] = db.records_of('mine')
        self.assertEqual('', record.second)


class InstancesTestCase(base.DatabaseTestCase):

    def test_instances_of_a_host(self):
        self.instance(uuidsentinel.here, 'host-1')
        self.instance(uuidsentinel.deleted, 'host-1').destroy()
        self.instance(uuidsentinel.elsewhere, 'host-2')
        self.assertEqual(
            {uuidsentinel.here},
            db.instance_uuids('host-1'))

    def test_where_instances_are_and_which_are_deleted(self):
        self.instance(uuidsentinel.here, 'host-1')
        self.instance(uuidsentinel.deleted, 'host-2').destroy()
        self.instance(uuidsentinel.nowhere, None)
        self.instance(uuidsentinel.not_asked, 'host-1')
        with mock.patch.object(db, 'BATCH', 2):
            found = db.instance_states([
                uuidsentinel.here, uuidsentinel.unknown, uuidsentinel.deleted,
                uuidsentinel.nowhere])
        self.assertEqual({
            uuidsentinel.here: InstanceState('host-1', False),
            uuidsentinel.deleted: InstanceState('host-2', True),
            uuidsentinel.nowhere: InstanceState(None, False)}, found)


class SizeTestCase(base.DatabaseTestCase):
    """Replies of a conductor stay below 4 MB."""

    def assertSmall(self, rows):
        reply = json.dumps(objects_base.NovaObjectSerializer(
            ).serialize_entity(self.context, rows))
        # oslo.messaging wraps it so.
        self.assertLess(len(json.dumps({'oslo.message': reply})), 4000000)

    def test_instances_with_the_longest_user_data(self):
        instance = self.instance(uuidsentinel.one, 'h' * 255)
        instance.user_data = 'x' * 65535
        for name in ('display_name', 'display_description'):
            instance[name] = '\U0001f600' * 255
        for name in ('hostname', 'key_name', 'node', 'launched_on',
                     'image_ref', 'project_id', 'user_id', 'task_state',
                     'vm_state', 'availability_zone', 'config_drive'):
            instance[name] = 'x' * 255
        self.assertSmall(objects.InstanceList(
            objects=[instance] * db.INSTANCES))

    def test_records(self):
        self.record(self.service('h' * 255), uuidsentinel.a, stats={
            db.PARTITION: 'x' * 255, 'capabilities': 'x' * 3000})
        rows = objects.ComputeNodeList.get_all_by_uuids(
            self.context, [uuidsentinel.a])
        self.assertSmall(objects.ComputeNodeList(
            objects=list(rows) * db.BATCH))


class RecordsTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        service = self.service('Host-1')
        self.record(service, uuidsentinel.a,
                    stats={db.PARTITION: 'shard=1'})
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
            db.records_of('Host-1'))

    def test_host_without_records(self):
        self.assertEqual([], db.records_of('host-3'))

    def test_records_of_nodes(self):
        with mock.patch.object(db, 'BATCH', 1):
            found = db.records([
                uuidsentinel.unknown, uuidsentinel.a, uuidsentinel.c])
        self.assertRecords([(uuidsentinel.a, 'Host-1', 'shard=1'),
                            (uuidsentinel.c, 'host-2', '')], found)


class CloudTestCase(base.DatabaseTestCase):

    def test_mapped_host(self):
        cell = objects.CellMapping(
            self.context, uuid=uuidsentinel.cell, transport_url='fake:///',
            database_connection=base.Databases.CONNECTION)
        cell.create()
        objects.HostMapping(
            self.context, host='host-1', cell_mapping=cell).create()
        self.assertIs(True, db.host_mapped('host-1'))
        self.assertIs(False, db.host_mapped('host-2'))

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
            (peers.Aggregate.of(
                uuidsentinel.zone, frozenset({'host-1', 'host-2'}), 'east'),
             peers.Aggregate.of(uuidsentinel.empty, frozenset())),
            db.host_aggregates())


class WithoutApiDatabaseTestCase(oslo_base.BaseTestCase):
    """The conductor of a cell need not reach the API database."""

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.useFixture(test_fixtures.ReplaceEngineFacadeFixture(
            api_db.context_manager, enginefacade.transaction_context()))
        self.context = nova_context.get_admin_context()

    def test_it_is_not_known_whether_a_host_is_mapped(self):
        self.assertIsNone(db.host_mapped('host-1'))

    def test_aggregates_are_not_known(self):
        self.assertIsNone(db.host_aggregates())


class ConductorTestCase(oslo_base.BaseTestCase):
    """nova-compute has no database: all reads go through the conductor."""

    def setUp(self):
        super().setUp()
        self.asked = []
        conductor = mock.Mock()
        conductor.object_class_action_versions.side_effect = self.answer
        self.useFixture(fixtures.MockPatchObject(
            objects_base.NovaObject, 'indirection_api', conductor))
        self.useFixture(fixtures.MockPatchObject(
            main_db, 'DISABLE_DB_ACCESS', True))

    def answer(self, context, name, method, *args):
        self.asked.append(f'{name}.{method}')
        raise messaging.RemoteError('CantStartEngineError', 'no database')

    def test_all_reads(self):
        for expected, read, *args in (
                ('ServiceList.get_all_computes_by_hv_type',
                 db.ironic_services, None, 'ironic'),
                ('Service.get_by_compute_host',
                 db.compute_service, None, 'host-1'),
                ('InstanceList.get_uuids_by_host',
                 db.instance_uuids, 'host-1'),
                ('InstanceList.get_by_filters',
                 db.instance_states, [base.NODE]),
                ('ComputeNodeList.get_all_by_host',
                 db.records_of, 'host-1'),
                ('ComputeNodeList.get_all_by_uuids',
                 db.records, [base.NODE])):
            self.assertRaises(messaging.RemoteError, read, *args)
            self.assertEqual(expected, self.asked.pop())

    def test_what_only_the_api_database_has_is_then_unknown(self):
        self.assertIsNone(db.host_mapped('host-1'))
        self.assertEqual('HostMapping.get_by_host', self.asked.pop())
        self.assertIsNone(db.host_aggregates())
        self.assertEqual('AggregateList.get_all', self.asked.pop())

    def test_a_blip_of_the_api_database_is_no_cloud_without_zones(self):
        conductor = objects_base.NovaObject.indirection_api
        conductor.object_class_action_versions.side_effect = (
            messaging.RemoteError('DBConnectionError', 'gone away'))
        for read, *args in ((db.host_mapped, 'host-1'),
                            (db.host_aggregates,)):
            self.assertRaises(names.VirtDriverNotReady, read, *args)


class PlacementTestCase(base.TrackerTestCase):

    def test_aggregates_of_a_provider(self):
        get = self.patch(self.client, 'get', return_value=base.response(200, {
            'aggregates': ['rack'], 'resource_provider_generation': 8}))
        self.assertEqual({'rack'}, db.provider_aggregates(
            self.client, base.NODE))
        get.return_value = base.response(503)
        self.assertIsNone(db.provider_aggregates(self.client, base.NODE))
        get.side_effect = ks_exception.ConnectFailure()
        self.assertIsNone(db.provider_aggregates(self.client, base.NODE))

    def test_generations_of_all_providers(self):
        listed = {'resource_providers': [
            {'uuid': node, 'name': node, 'generation': generation,
             'links': [{'rel': 'self', 'href': f'/{node}'}]}
            for node, generation in (('a', 3), ('b', 0))]}
        answer = base.response(200)
        answer.content = json.dumps(listed).encode()
        get = self.patch(self.client, 'get', return_value=answer)
        self.assertEqual({'a': 3, 'b': 0}, db.generations(self.client))
        get.assert_called_once_with('/resource_providers')
        get.return_value = base.response(503)
        self.assertRaises(names.VirtDriverNotReady, db.generations,
                          self.client)

    def test_generation_of_one_provider(self):
        get = self.patch(self.client, 'get', return_value=base.response(
            200, {'uuid': base.NODE, 'generation': 8}))

        def ask():
            return db.generation(self.client, base.NODE)

        self.assertEqual(8, ask())
        get.assert_called_once_with(f'/resource_providers/{base.NODE}')
        get.return_value = base.response(503)
        self.assertIsNone(ask())
        get.side_effect = ks_exception.ConnectFailure()
        self.assertIsNone(ask())

    def test_allocations_of_a_provider(self):
        answer = {'allocations': {}, 'resource_provider_generation': 8}
        get = self.patch(self.client, 'get',
                         return_value=base.response(200, answer))
        self.assertEqual(frozenset(), db.consumers(self.client, base.NODE))
        answer['allocations'] = {'server': {'resources': {'CUSTOM_X': 1}}}
        self.assertEqual({'server'}, db.consumers(self.client, base.NODE))
        get.return_value = base.response(503)
        self.assertIsNone(db.consumers(self.client, base.NODE))
        # Nobody has what is not there.
        get.return_value = base.response(404, {'errors': [{
            'status': 404, 'title': 'Not Found',
            'detail': 'The resource could not be found.\n\n Resource '
                      f"provider '{base.NODE}' not found: No resource "
                      f'provider with uuid {base.NODE} found'}]})
        self.assertEqual(frozenset(), db.consumers(self.client, base.NODE))

    def test_404_that_is_not_placements(self):
        get = self.patch(self.client, 'get')
        for body in (None, [], {'errors': [None]}, {'errors': [{
                'detail': 'The resource could not be found.'}]}):
            get.return_value = base.response(404, body)
            self.assertIsNone(db.consumers(self.client, base.NODE))
        get.return_value.json = mock.Mock(side_effect=ValueError('<html>'))
        self.assertIsNone(db.consumers(self.client, base.NODE))

    def test_placement_that_does_not_answer(self):
        get = self.patch(self.client, 'get')
        get.side_effect = ks_exception.ConnectFailure()
        self.assertIsNone(db.consumers(self.client, base.NODE))
