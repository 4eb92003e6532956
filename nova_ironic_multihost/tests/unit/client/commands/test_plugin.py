# SPDX-License-Identifier: Apache-2.0

import io
import json
import types

from cliff import app as cliff_app
from cliff import commandmanager
import fixtures

from nova_ironic_multihost.client.commands import app
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.client.commands import base

#: How python-openstackclient makes the group of a plug-in's commands.
GROUP = f'openstack.{app.API_NAME}.v{app.DEFAULT_API_VERSION}'


class Client(cliff_app.App):
    """Stands in for python-openstackclient's shell."""

    NAME = 'openstack'

    def __init__(self, connection, **streams):
        super().__init__(
            'stand-in', '1', commandmanager.CommandManager(GROUP),
            deferred_help=True, **streams)
        self.client_manager = types.SimpleNamespace(
            sdk_connection=connection)

    def build_option_parser(self, *args, **kwargs):
        return app.build_option_parser(
            super().build_option_parser(*args, **kwargs))

    def prepare_to_run_command(self, command):
        # cliff's own need no credentials.
        self.seen = command


class PluginTestCase(base.ShellTestCase):

    CLOUD = clouds.TroubledCloud

    def openstack(self, *argv):
        streams = {'stdout': io.StringIO(), 'stderr': io.StringIO()}
        self.client = Client(self.cloud.connection(), **streams)
        with fixtures.FakeLogger():
            status = self.client.run(list(argv))
        return status, *(stream.getvalue() for stream in streams.values())

    def test_its_connection_is_used(self):
        status, out, _ = self.openstack(
            'baremetal', 'compute', 'list', '-f', 'json')
        self.assertEqual((0, 5), (status, len(json.loads(out))))
        self.assertEqual(0, self.connect.call_count)
        self.assertTrue(self.client.seen.auth_required)
        self.assertFalse(self.client.seen.required_scope)

    def test_another_cloud_for_ironic(self):
        self.openstack('--os-baremetal-cloud', 'system',
                       'baremetal', 'compute', 'leaks')
        self.assertEqual(['system'], [
            call.kwargs['cloud'] for call in self.connect.mock_calls])

    def test_all_commands(self):
        ours = base.entry_points(app.NAMESPACE)
        self.assertEqual(
            {f'baremetal_compute_{name}': value
             for name, value in ours.items()}, base.entry_points(GROUP))
        for argv, status in (('check', 1), ('node list', 0),
                             ('node show n-0', 0), ('plan', 0),
                             ('leaks', 0)):
            self.assertEqual(status, self.openstack(
                'baremetal', 'compute', *argv.split())[0])

    def test_what_cannot_be_asked(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-services', status_code=403)
        status, out, err = self.openstack('baremetal', 'compute', 'check')
        self.assertEqual((2, ''), (status, out))
        self.assertIn('role admin in a project', err)

    def test_examples_are_of_this_program(self):
        _, out, _ = self.openstack(
            'help', 'baremetal', 'compute', 'node', 'list')
        self.assertIn('  openstack baremetal compute node list --host', out)
        self.assertNotIn('  nova-ironic-multihost', out)

    def test_module(self):
        [value] = base.entry_points('openstack.cli.extension').values()
        self.assertIs(app, base.load(value))
        manager = types.SimpleNamespace(sdk_connection=object())
        self.assertIs(manager.sdk_connection, app.make_client(manager))
        self.assertIn(app.DEFAULT_API_VERSION, app.API_VERSIONS)
        # It replaces the first os_ and looks for the rest in clouds.yaml.
        self.assertEqual('os_', app.API_VERSION_OPTION[:3])
