# SPDX-License-Identifier: Apache-2.0

import functools
from importlib import metadata
from unittest import mock
import uuid

import fixtures
from keystoneauth1 import fixture as keystone
import masakari.conf
from masakari import context
from masakari import exception
from oslo_config import fixture as config
from oslotest import base

from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.fencing import nova
from nova_ironic_multihost.tests.fencing import recipes

GROUP = 'masakari.task_flow.tasks'
TASK = 'fence_bare_metal_task'
MACHINE = '0f834a14-9b6f-4a92-8d9c-1f0e7a6f3b11'


class TaskTestCase(base.BaseTestCase):
    """masakari's own driver runs the tasks; the cloud is faked.

    Of east, which nova calls down, of west, and of kvm.
    """

    def setUp(self):
        super().setUp()
        self.conf = self.useFixture(config.Config(masakari.conf.CONF))
        self.configure(recipes.FENCING / 'masakari' / 'masakari.conf')
        # They read options when they are imported.
        from masakari.engine.drivers.taskflow import driver
        [point] = metadata.entry_points(group=GROUP, name=TASK)
        self.module = __import__(point.module)
        self.apis = self.useFixture(clouds.FakeCloud())
        self.apis.services[0]['state'] = 'down'
        self.apis.services.append(clouds.service('kvm', state='down'))
        self.apis.servers = [
            clouds.server('s-0', 'east', MACHINE),
            clouds.server('s-1', 'west', MACHINE),
            clouds.server('s-2', 'kvm', 'kvm.example.org')]
        self.asked = self.useFixture(fixtures.MockPatchObject(
            self.module, 'asked',
            side_effect=lambda context: self.apis.survey())).mock
        self.now, self.dies = 0, 0
        self.useFixture(fixtures.MockPatchObject(
            services, 'looks', functools.partial(
                services.looks, clock=lambda: self.now, sleep=self.sleep)))
        self.api = self.useFixture(fixtures.MockPatch(
            'masakari.compute.nova.API')).mock.return_value
        self.api.get_servers.return_value = []
        self.conf.config(wait_period_after_service_update=0)
        self.conf.config(group='taskflow', connection='memory')
        self.driver = driver.TaskFlowDriver()
        self.context = context.RequestContext('user')

    def sleep(self, seconds):
        self.now += seconds
        if self.now >= self.dies:
            self.apis.services[0]['state'] = 'down'

    def configure(self, *files):
        self.conf.conf([], project='masakari', default_config_files=[
            str(path) for path in files])

    def fails(self, host, method='auto', skipped=True):
        """Tell masakari that a host has failed: how that ends."""
        return str(self.assertRaises(
            exception.SkipHostRecoveryException if skipped else
            exception.HostRecoveryFailureException,
            self.driver.execute_host_failure, self.context, host, method,
            str(uuid.uuid4()), update_host_method=mock.Mock(),
            reserved_host_list=['reserve']))

    def test_is_fenced_and_not_evacuated(self):
        for method in ('auto', 'reserved_host', 'auto_priority',
                       'rh_priority'):
            self.assertIn("'east' is fenced", self.fails('East', method))
        self.assertEqual([{
            'forced_down': True, 'status': 'disabled',
            'disabled_reason': f'{fencing.REASON}: masakari'}],
            self.apis.changes)
        self.assertEqual([], self.api.mock_calls)

    def test_without_it_masakari_only_disables(self):
        # Otherwise the others here would pass without our task.
        self.configure()
        self.fails('east')
        self.assertEqual([], self.apis.changes)
        self.api.enable_disable_service.assert_called_once()

    def test_other_hypervisors_are_left_to_masakari(self):
        self.assertIn('no instances', self.fails('kvm'))
        self.assertEqual([], self.apis.changes)
        self.api.enable_disable_service.assert_called_once()
        self.api.get_servers.assert_called_once()

    def test_waits_until_nova_misses_it(self):
        self.apis.services[0]['state'] = 'up'
        self.dies = 100
        self.fails('east')
        self.assertEqual(100, self.now)
        self.assertEqual(1, len(self.apis.changes))

    def test_one_that_lives(self):
        self.assertIn('west is up', self.fails('west', skipped=False))
        self.assertEqual(self.module.PATIENCE, self.now)
        self.assertEqual([], self.apis.changes + self.api.mock_calls)

    def test_nova_is_away(self):
        self.apis.http.get(f'{clouds.NOVA}/os-services', status_code=503)
        self.assertIn('503', self.fails('east', skipped=False))
        self.assertEqual(self.module.PATIENCE, self.now)
        self.assertEqual([], self.api.mock_calls)

    def left_to_masakari(self, host):
        self.assertIn('no instances', self.fails(host))
        self.assertEqual([], self.apis.changes)
        self.api.enable_disable_service.assert_called_once()

    def test_which_kind_of_host_it_is_is_not_known(self):
        self.apis.http.get(f'{clouds.NOVA}/servers/detail', status_code=503)
        self.left_to_masakari('kvm')
        self.assertEqual(self.module.KIND, self.now)

    def test_one_without_servers(self):
        self.apis.servers = []
        self.left_to_masakari('east')

    def test_a_cell_is_away_and_virtual_machines_wait(self):
        self.apis.services.append(clouds.service('far'))
        self.apis.away = {'far'}
        self.left_to_masakari('kvm')
        self.assertEqual(0, self.now)

    def test_a_cell_is_away_and_bare_metal_is_fenced(self):
        self.apis.services.append(clouds.service('far'))
        self.apis.away = {'far'}
        self.assertIn("'east' is fenced", self.fails('East'))
        self.assertEqual('disabled', self.apis.services[0]['status'])
        self.assertEqual([], self.api.mock_calls)


class CredentialsTestCase(base.BaseTestCase):

    def test_masakari_has_them(self):
        conf = self.useFixture(config.Config(masakari.conf.CONF))
        conf.conf([], project='masakari', default_config_files=[])
        [point] = metadata.entry_points(group=GROUP, name=TASK)
        module = __import__(point.module)
        apis = self.useFixture(clouds.FakeCloud())
        token = keystone.V3Token(project_id='p')
        token.set_project_scope()
        token.add_service('compute').add_standard_endpoints(
            public='http://wrong.test', internal=clouds.NOVA)
        url = 'http://keystone.test/v3'
        apis.http.get(url, json={'version': keystone.V3Discovery(url)})
        granted = apis.http.post(f'{url}/auth/tokens', json=token,
                                 headers={'X-Subject-Token': 'it'})
        apis.http.get(clouds.NOVA, json=nova.versions(clouds.NOVA))
        conf.config(os_privileged_user_name='masakari',
                    os_privileged_user_password='secret',
                    os_privileged_user_auth_url=url,
                    os_privileged_user_tenant='service',
                    nova_catalog_admin_info='compute:nova:internalURL')
        conf.conf.import_group('keystone_authtoken',
                               'keystonemiddleware.auth_token')
        conf.load_raw_values(group='keystone_authtoken',
                             auth_type='password')
        found = module.asked(context.RequestContext('user'))
        self.assertEqual(['east', 'west'],
                         [service.host for service in found.computes()])
        self.assertIsNone(found.bare_metal('west'))
        self.assertIn('masakari', granted.last_request.text)
