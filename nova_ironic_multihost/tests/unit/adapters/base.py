# SPDX-License-Identifier: Apache-2.0

"""What tests of the door to nova share."""

import contextlib
import inspect
from unittest import mock

import fixtures
from nova.compute import manager
from nova.compute import resource_tracker
from nova import context as nova_context
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import api as main_db
from nova.db.main import models as main_models
from nova import objects
from nova import rpc
from nova.scheduler.client import report
from oslo_config import fixture as config_fixture
from oslo_db.sqlalchemy import enginefacade
from oslo_db.sqlalchemy import test_fixtures
from oslo_messaging import conffixture as messaging_fixture
from oslotest import base

from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import compat
from nova_ironic_multihost.adapters.patches import handlers
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.adapters.patches import table

#: Layers that belong together.
RECORD_READS = handlers.read_records, handlers.keep_current
RECORD_MOVES = (handlers.judge_record, handlers.judge_again,
                handlers.note_moves)
NODE_AUDITS = (handlers.audit_if_due, handlers.note_audit,
               handlers.note_update, handlers.note_usage,
               handlers.note_change, handlers.note_allocations)
ROOTS = compat.get_root, compat.flush_root
INSTANCES_AT_START = (handlers.leave_out, handlers.read_few_instances,
                      handlers.tell_of_one)
BUILDS = operations.accept_build, operations.carry_out_build
OPERATIONS = (
    *BUILDS, operations.operate, operations.sift_events, operations.ATTEMPT,
    operations.PART, operations.CLEAN_UP, operations.CHANGE_MACHINE,
    operations.claim, operations.unset_host, operations.give_back)

NODE = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'

# As nova-compute does when it starts.
objects.register_all()


def replace(layers, compute, driver=None, **parts):
    """Replace in nova what some layers stand around, as the driver does.

    :param layers: functions of the table, or one.
    :param compute: nova's ComputeManager.
    :param parts: of the :class:`.service.DriverService`, with __ in place of
        each dot; the others are mocks.
    """
    if not isinstance(layers, tuple):
        layers = layers,
    targets = {'manager': compute, 'tracker': getattr(compute, 'rt', None),
               'client': getattr(compute, 'reportclient', None),
               'driver': driver, 'transport': listeners.transport_driver(),
               'service': compat.starting_service(compute)}
    apply.apply(
        [row for row in table.rows() if row.layer in layers],
        {target: one for target, one in targets.items() if one is not None},
        some(moving={}, **parts))


def some(**parts):
    """Return a service with some parts."""
    return mock.Mock(**{
        name.replace('__', '.'): part for name, part in parts.items()})


def around(layer, instance, act, **parts):
    """Call a layer, and what it stands around.

    :param act: function without arguments, in place of nova's method.
    """
    return layer(some(**parts), apply.Call(
        None, 'method', lambda instance: act(), ('instance',), (instance,),
        {}))


def parameters(function):
    return list(inspect.signature(function).parameters)


class TrackerTestCase(base.BaseTestCase):
    """nova's resource tracker and its client of placement, both real."""

    def setUp(self):
        super().setUp()
        self.useFixture(config_fixture.Config(names.CONF))
        names.CONF([], project='nova', default_config_files=[])
        self.client = report.SchedulerReportClient(adapter=mock.Mock())
        self.client.clear_provider_cache(init=True)
        # nova 31 and 32 copy it, and only eventlet's locks can be copied.
        self.client._provider_tree.lock = contextlib.nullcontext()
        self.driver = mock.Mock()
        self.rt = resource_tracker.ResourceTracker(
            'host-1', self.driver, reportclient=self.client)
        self.compute = mock.Mock(reportclient=self.client, rt=self.rt)
        self.virtapi = manager.ComputeVirtAPI(self.compute)
        self.tracker = nova_tracker.NovaTracker(self.virtapi)

    def patch(self, target, name, **behaviour):
        return self.useFixture(fixtures.MockPatchObject(
            target, name, **behaviour)).mock


def response(status, body=None):
    """Return what a request to placement returns."""
    answer = mock.MagicMock(
        status_code=status, text='', headers={}, json=lambda: body)
    answer.__bool__.return_value = status < 400
    return answer


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
    """nova's objects read from databases and write to them.

    The databases are empty and have the schema of the nova installed here,
    so that whatever changes below nova's objects is found, too.
    """

    def setUp(self):
        super().setUp()
        objects.register_all()
        config = self.useFixture(config_fixture.Config(names.CONF))
        names.CONF([], project='nova', default_config_files=[])
        config.config(group='database', connection=Databases.CONNECTION)
        self.useFixture(messaging_fixture.ConfFixture(names.CONF))
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

    def record(self, service, node, hypervisor_type='ironic', stats=None,
               uuid=None):
        objects.ComputeNode(
            self.context, service_id=service.id, host=service.host,
            uuid=uuid or node,
            hypervisor_hostname=node, hypervisor_type=hypervisor_type,
            hypervisor_version=1, cpu_info='', vcpus=1, vcpus_used=0,
            memory_mb=1, memory_mb_used=0, local_gb=1, local_gb_used=0,
            stats=stats or {}).create()

    def instance(self, uuid, host):
        instance = objects.Instance(
            self.context, uuid=uuid, host=host, project_id='project')
        instance.create()
        return instance
