# SPDX-License-Identifier: Apache-2.0

"""The operator's commands that change something, against the real APIs."""

import contextlib
import functools
import io
import types
from unittest import mock

from cliff import commandmanager
import fixtures
from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from nova.compute import api
from nova import context
from nova import objects
import openstack
from oslo_db import exception as db_exception
from oslo_utils import fixture as time_fixture

from nova_ironic_multihost.client.commands import app
from nova_ironic_multihost.client.commands import drain
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests.functional import dead
from nova_ironic_multihost.tests.unit.client.commands import base


class ShellTestCase(dead.DeadComputeTestCase):
    """While a command waits the others audit, once for each look."""

    def setUp(self):
        super().setUp()
        self.now = 0
        self.meanwhile = self.audit
        self.useFixture(fixtures.MockPatchObject(
            services, 'looks', functools.partial(
                services.looks, clock=lambda: self.now, sleep=self._sleep)))
        self.useFixture(fixtures.MockPatchObject(
            openstack, 'connect', return_value=self._connection()))
        self.useFixture(fixtures.MockPatchObject(
            commandmanager.CommandManager, 'load_commands',
            base.load_commands))

    def _sleep(self, seconds):
        self.now += seconds
        self.meanwhile()

    def _connection(self):
        admin = {'X-Auth-User': 'admin', 'X-User-Id': 'admin',
                 'X-Auth-Project-Id': self.admin_api.project_id,
                 'X-Roles': 'reader,member,admin'}
        http = session.Session(token_endpoint.Token(
            'http://unused.test', self.placement.fixture.token),
            additional_headers=admin)
        urls = {'compute': self.admin_api.base_url,
                'placement': self.placement.fixture.endpoint,
                'baremetal': self.ironic.endpoint}
        return types.SimpleNamespace(
            session=http,
            config=types.SimpleNamespace(get_session_endpoint=urls.get))

    def shell(self, *argv, status=0):
        """Run the program: what it has said."""
        out = io.StringIO()
        with (contextlib.redirect_stdout(out), contextlib.redirect_stderr(out),
              mock.patch('logging.Logger.addHandler')):
            self.assertEqual(status, app.main(argv), out.getvalue())
        return out.getvalue()

    def service(self):
        [found] = self.admin_api.get_services(
            binary='nova-compute', host='host1')
        return (found['status'], found['disabled_reason'],
                found['forced_down'])


class CommandsTestCase(ShellTestCase):

    def test_drain(self):
        self.meanwhile = self.fleet.audit
        told = self.shell('drain', 'host1', '--wait', '60')
        self.assertEqual(('disabled', drain.REASON, False),
                         self.service())
        self.assertIn('host1 is empty of free nodes', told)
        self.assertEqual({self.node}, self.nodes_of('host1'))
        self.assertIn('disabled already',
                      self.shell('drain', 'host1', '--wait', '0'))
        self.shell('undrain', 'host1')
        self.assertEqual(('enabled', None, False), self.service())

    def test_fence(self):
        self.assertIn('host1 is up', self.shell('fence', 'host1', status=2))
        self.fleet.kill('host1')
        self.assertIn('host2 takes 1 server',
                      self.shell('fence', 'host1', '--dry-run'))
        self.assertEqual(('enabled', None, False), self.service())

        told = self.shell('fence', 'host1', '--wait', '60')
        self.assertEqual(('disabled', fencing.REASON, True), self.service())
        self.assertIn('host1 has nothing left', told)
        self.assertEqual('host2', self.host_of(self.show(self.server)))
        self.assertEqual(set(self.nodes), self.nodes_of('host2'))

        self.assertIn('has not heard from host1',
                      self.shell('unfence', 'host1', status=2))
        self.fleet.start('host1')
        clock = self.useFixture(time_fixture.TimeFixture())

        def beat():
            clock.advance_time_seconds(10)
            self.fleet.beat('host1')

        self.meanwhile = beat
        self.assertIn('host1 is no longer fenced',
                      self.shell('unfence', 'host1'))
        self.assertEqual(('enabled', None, False), self.service())

    def test_what_stays_while_a_migration_is_in_progress(self):
        self.fleet.kill('host1')
        instance = self.instance()
        objects.Migration(
            instance._context, instance_uuid=instance.uuid,
            status='accepted', migration_type='evacuation',
            source_compute='host1', source_node=self.node).create()
        told = self.shell('fence', 'host1', '--wait', '4', status=1)
        self.assertIn('until their migration is over', told)
        self.assertEqual('host1', self.host_of(self.show(self.server)))


class _Away:
    """A connection to a database that is not there."""

    def __getattr__(self, name):
        raise db_exception.DBConnectionError


class CellTestCase(ShellTestCase):
    """The database of another cell goes away, which nova asks first."""

    NUMBER_OF_CELLS = 2

    def setUp(self):
        super().setUp()
        far = self.cell_mappings['cell2']
        objects.HostMapping(
            context.get_admin_context(), host='far',
            cell_mapping=far).create()
        api.load_cells()
        self.useFixture(fixtures.MockPatchObject(
            api, 'CELLS', [far, self.cell_mappings['cell1']]))
        target = context.set_target_cell

        def set_target_cell(request, cell):
            target(request, cell)
            if cell is not None and cell.uuid == far.uuid:
                request.db_connection = _Away()

        self.useFixture(fixtures.MockPatchObject(
            context, 'set_target_cell', set_target_cell))

    def asked(self, method, path, **body):
        return self._connection().session.request(
            f'{self.admin_api.base_url}{path}', method, raise_exc=False,
            microversion='2.69', microversion_service_type='compute', **body)

    def test_commands(self):
        # What the fake cloud says of such a nova is so.
        host1 = self.asked('GET', '/os-services?host=host1').json()[
            'services'][0]['id']
        for request in ('GET', '/os-hypervisors/detail'), (
                'PUT', f'/os-services/{host1}'):
            answer = self.asked(*request, **(
                {} if 'GET' in request else {'json': {'forced_down': True}}))
            self.assertEqual(500, answer.status_code)
        self.assertEqual(('enabled', None, False), self.service())

        self.assertIn('host1 up enabled\nhost2 up enabled\n', self.shell(
            'list', '--nova', '-f', 'value'))
        self.assertIn('far unknown', self.shell(
            'list', '--nova', '-f', 'value'))
        self.shell('drain', 'host1', '--reason', 'fan')
        self.assertEqual(('disabled', 'fan', False), self.service())
        self.shell('undrain', 'host1')
        self.assertEqual(('enabled', None, False), self.service())
        self.fleet.kill('host1')
        self.shell('fence', 'host1')
        self.assertEqual(('disabled', fencing.REASON, True), self.service())
        self.fleet.start('host1')
        clock = self.useFixture(time_fixture.TimeFixture())

        def beat():
            clock.advance_time_seconds(10)
            self.fleet.beat('host1')

        self.meanwhile = beat
        self.shell('unfence', 'host1')
        self.assertEqual(('enabled', None, False), self.service())
