# SPDX-License-Identifier: Apache-2.0

"""The operators' commands run from the wheel, without nova."""

import unittest

from nova_ironic_multihost.tests.loading import installation

#: What nova brings, and the client does not use.
ABSENT = {'alembic', 'nova', 'openstack-placement', 'oslo-db', 'sqlalchemy'}

#: The most packages beside ours.
MOST = 92

#: What takes most of a second to import, and no help needs.
SLOW = {'eventlet', 'keystoneauth1', 'matplotlib', 'openstack',
        'oslo_messaging', 'prometheus_client', 'requests', 'tooz'}

_HELP = """
import contextlib
import io
import sys
from nova_ironic_multihost.client.commands import app
with (contextlib.suppress(SystemExit),
      contextlib.redirect_stdout(io.StringIO())):
    app.main(['--help'])
print(*{name.partition('.')[0] for name in sys.modules})
"""

#: Credentials for a Keystone that does not answer.
CREDENTIALS = {
    'OS_AUTH_URL': 'http://127.0.0.1:1/v3', 'OS_USERNAME': 'admin',
    'OS_PASSWORD': 'secret', 'OS_PROJECT_NAME': 'admin'}


class WorkstationTestCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.workstation = installation.Workstation()
        cls.workstation.setUp()
        cls.addClassCleanup(cls.workstation.cleanUp)

    def assert_one_sentence(self, status, sentence, process):
        self.assertEqual(
            (status, ''), (process.returncode, process.stdout))
        [line] = process.stderr.splitlines()
        self.assertIn(sentence, line)

    def test_few_packages(self):
        names = self.workstation.packages.keys()
        self.assertEqual(set(), ABSENT & names)
        self.assertLessEqual(len(names), MOST, sorted(names))

    def test_the_environment_has_all_of_them(self):
        done = self.workstation.run_python(
            'from importlib import metadata\n'
            'print(*(d.name for d in metadata.distributions()))')
        self.assertEqual(len(self.workstation.packages) + 1,
                         len(done.stdout.split()), done.stderr)

    def test_the_extra_is_nova(self):
        done = self.workstation.run_python(
            'from importlib import metadata\n'
            'print(*metadata.requires("nova-ironic-multihost"), sep="\\n")')
        [nova] = [line for line in done.stdout.splitlines() if 'extra' in line]
        self.assertRegex(nova, "^nova[<>=].*; extra == [\"']nova[\"']$")

    def test_completion_and_man_page(self):
        self.assertLessEqual({
            'share/bash-completion/completions/nova-ironic-multihost',
            'share/man/man1/nova-ironic-multihost.1',
            'share/zsh/site-functions/_nova-ironic-multihost',
        }, self.workstation.shared_files())

    def test_neither_tests_nor_lab(self):
        done = self.workstation.run_python(
            'import importlib.util\n'
            'import nova_ironic_multihost\n'
            'print(importlib.util.find_spec("nova_ironic_multihost.tests"),'
            ' importlib.util.find_spec("lab"))')
        self.assertEqual('None None', done.stdout.strip(), done.stderr)

    def test_help(self):
        done = self.workstation.run('nova-ironic-multihost', '--help')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertIn('  fence ', done.stdout)

    def test_help_imports_little(self):
        imported = set(self.workstation.run_python(_HELP).stdout.split())
        self.assertIn('cliff', imported)
        self.assertEqual(set(), SLOW & imported)

    def test_commands_that_reach_no_cloud_say_so(self):
        for command in 'list', 'check', 'plan':
            with self.subTest(command):
                done = self.workstation.run(
                    'nova-ironic-multihost', command, **CREDENTIALS)
                self.assert_one_sentence(2, '127.0.0.1', done)

    def test_exporter(self):
        done = self.workstation.run(
            'nova-ironic-multihost', 'exporter', '--port', '65536',
            **CREDENTIALS)
        self.assert_one_sentence(2, '127.0.0.1', done)

    def test_what_needs_nova_says_so(self):
        for script, arguments, status in (
                ('nova-compute-ironic-multihost', (), 1),
                ('nova-ironic-multihost-status', ('upgrade', 'check'), 255)):
            with self.subTest(script):
                self.assert_one_sentence(
                    status, 'into the environment of nova-compute',
                    self.workstation.run(script, *arguments))
