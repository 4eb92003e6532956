# SPDX-License-Identifier: Apache-2.0

import os
import socket
import subprocess
import sys

import fixtures
from keystoneauth1 import exceptions as identity_exceptions
import openstack

from nova_ironic_multihost.client.commands import app
from nova_ironic_multihost.client.commands import list
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.client.commands import base

COMMANDS = ('list', 'check', 'node list', 'node show', 'plan', 'leaks',
            'repair', 'report', 'drain', 'undrain', 'fence', 'unfence',
            'silent', 'exporter')


class AppTestCase(base.ShellTestCase):

    def test_without_a_command_it_shows_them(self):
        status, out, _ = self.shell()
        self.assertEqual(0, status)
        for command in COMMANDS:
            self.assertIn(f'\n  {command} ', out)

    def test_help_teaches(self):
        self.assertIn('--os-baremetal-cloud', self.shell('--help')[1])
        for command in COMMANDS:
            for argv in (*command.split(), '--help'), (
                    'help', *command.split()):
                status, out, _ = self.shell(*argv)
                self.assertEqual(0, status)
                self.assertIn('\nexamples:\n  nova-ironic-multihost '
                              f'{command}', out)
                self.assertIn('\nexit status: ', out)

    def test_unknown_command(self):
        status, out, _ = self.shell('node')
        self.assertEqual(2, status)
        self.assertIn('node list', out)

    def test_unknown_option(self):
        self.assertEqual(2, self.shell('list', '--nix')[0])

    def test_whose_credentials(self):
        self.shell('--os-cloud', 'one', '--os-baremetal-cloud', 'two',
                   'list')
        self.assertEqual(['one', 'two'], [
            call.kwargs['cloud'] for call in self.connect.mock_calls])
        self.connect.reset_mock()
        self.shell('list')
        self.assertEqual([None], [
            call.kwargs['cloud'] for call in self.connect.mock_calls])

    def test_baremetal_cloud_of_the_environment(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'OS_BAREMETAL_CLOUD', 'two'))
        for argv, expected in (
                ((), [None, 'two']),
                (('--os-baremetal-cloud', 'three'), [None, 'three'])):
            self.connect.reset_mock()
            self.shell(*argv, 'list')
            self.assertEqual(expected, [
                call.kwargs['cloud'] for call in self.connect.mock_calls])

    def fails(self, *argv):
        status, out, err = self.shell(*(argv or ('list',)))
        self.assertEqual((2, '', 1), (status, out, err.count('\n')))
        self.assertEqual('nova-ironic-multihost: ', err[:23])
        return err

    def test_no_credentials(self):
        self.useFixture(fixtures.MockPatchObject(
            openstack, 'connect',
            side_effect=identity_exceptions.MissingRequiredOptions([])))
        for command in COMMANDS[:3]:
            self.assertIn('clouds.yaml (--os-cloud NAME',
                          self.fails(*command.split()))

    def test_no_admin(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-services', status_code=403)
        self.assertIn('role admin in a project', self.fails())

    def test_no_system_scope(self):
        self.cloud.http.get(f'{clouds.IRONIC}/nodes', status_code=403)
        self.assertIn('--os-baremetal-cloud NAME', self.fails('check'))

    def test_too_old(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-services', status_code=406)
        self.assertIn('Upgrade it', self.fails())

    def test_cause_on_demand(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-services', status_code=406)
        status, _, err = self.shell('--debug', 'list')
        self.assertEqual(2, status)
        self.assertIn('Traceback', err)
        self.assertIn('Upgrade it', err)

    def test_an_odd_answer_is_no_finding(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-services', json={})
        for command in ('list',), ('check',), ('fence', 'east'):
            self.assertIn("KeyError: 'services'", self.fails(*command))

    def test_whoever_reads_has_had_enough(self):
        self.useFixture(fixtures.MockPatchObject(
            list.ListComputes, 'take_action', side_effect=BrokenPipeError))
        self.assertEqual((141, '', ''), self.shell('list'))

    def test_completion(self):
        status, out, _ = self.shell('complete')
        self.assertEqual(0, status)
        self.assertRegex(
            out, r'\ncomplete -F \S+ nova-ironic-multihost\n$')
        self.assertIn("cmds_node='list show'", out)

    def test_an_error_is_one_line(self):
        with socket.socket() as bound:
            # Without listen() it refuses connections.
            bound.bind(('127.0.0.1', 0))
            url = 'http://127.0.0.1:{1}'.format(*bound.getsockname())
            done = subprocess.run(
                [sys.executable, '-m', app.__name__, 'list'],
                env=os.environ | {
                    'OS_AUTH_URL': url, 'OS_USERNAME': 'admin',
                    'OS_PASSWORD': 'a-secret', 'OS_PROJECT_NAME': 'admin',
                    'OS_USER_DOMAIN_ID': 'default',
                    'OS_PROJECT_DOMAIN_ID': 'default'},
                capture_output=True, text=True)
        self.assertEqual((2, '', 1), (
            done.returncode, done.stdout, done.stderr.count('\n')))
        self.assertIn(f'Keystone does not answer at {url}: ', done.stderr)

    def test_nothing_but_what_was_asked_for(self):
        # Libraries warn about themselves when they are imported.
        done = subprocess.run(
            [sys.executable, '-c',
             'from nova_ironic_multihost.client.commands import node, plan'],
            capture_output=True, text=True, check=True)
        self.assertEqual('', done.stderr)


class EntryPointTestCase(base.ShellTestCase):

    def test_program(self):
        self.assertIs(app.main, base.load(base.scripts()[app.Shell.NAME]))

    def test_commands(self):
        self.assertEqual(
            sorted(COMMANDS),
            sorted(name.replace('_', ' ')
                   for name in base.entry_points(app.NAMESPACE)))
