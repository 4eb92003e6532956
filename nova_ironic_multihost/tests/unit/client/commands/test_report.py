# SPDX-License-Identifier: Apache-2.0

import pathlib
import stat

import fixtures
from keystoneauth1 import exceptions
import openstack

from nova_ironic_multihost.tests.unit.client.commands import base

NOVA_CONF = """\
[DEFAULT]
host = $my_ip
compute_driver = ironic_multihost.IronicMultiHostDriver
transport_url = rabbit://openstack:HUSH@rabbit-1:5672,openstack:HUSH@rabbit-2
log_file = {log}
my_own_option = HUSH
[ironic]
password = HUSH
peer_list = compute-1,compute-2
[ironic_multihost]
ring_partitions = 128
"""

LINE = '2026-11-28 18:00:00.123 7 {} [None req-1 - - - - - -] {}\n'
OURS = 'INFO nova_ironic_multihost.engine.audit.auditor'
LOG = ''.join((
    LINE.format(OURS, 'Took 2 nodes.'),
    LINE.format('DEBUG keystoneauth.session', "{'auth': {'pass': 'HUSH'}}"),
    LINE.format(OURS, 'No answer: rabbit://nova:HUSH@rabbit-1:5672'),
    'HUSH of a traceback\n'))


class ReportTestCase(base.ShellTestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.log = self.directory / 'nova-compute.log'
        self.log.write_text(LOG)
        self.conf = self.directory / 'nova.conf'
        self.conf.write_text(NOVA_CONF.format(log=self.log))
        self.file = self.directory / 'report.txt'

    def report(self, *argv, status=0):
        argv = argv or ('--config-file', str(self.conf))
        told, out, err = self.shell('report', *argv, str(self.file))
        self.assertEqual((status, ''), (told, out))
        text = self.file.read_text()
        self.assertNotIn('HUSH', text + err)
        self.assertEqual(
            ['versions', 'list --long', 'check', 'settings', 'log'],
            [line[3:] for line in text.splitlines() if line[:3] == '== '])
        return text, err

    def test_all_parts(self):
        text, err = self.report()
        self.assertEqual('', err)
        for words in ('\nPython 3.', '\nnova-ironic-multihost ',
                      '\nopenstacksdk ', 'Last heartbeat', '| east ',
                      'each node has exactly one owner',
                      '\n[DEFAULT]host = $my_ip\n',
                      '\n[ironic]peer_list = compute-1,compute-2\n',
                      '\n[ironic_multihost]ring_partitions = 128\n',
                      f'file: {self.log}\n2026', 'Took 2 nodes.\n',
                      'rabbit://***@rabbit-1:5672\n'):
            self.assertIn(words, text)
        for words in 'my_own_option', 'Missing:', 'keystoneauth.session':
            self.assertNotIn(words, text)

    def test_findings_do_not_make_it_incomplete(self):
        self.cloud.providers = []
        self.assertIn('node-without-provider', self.report()[0])

    def test_only_its_user_may_read_it(self):
        self.report()
        self.assertEqual(0o600, stat.S_IMODE(self.file.stat().st_mode))

    def test_cloud_that_does_not_answer(self):
        self.useFixture(fixtures.MockPatchObject(
            openstack, 'connect',
            side_effect=exceptions.MissingRequiredOptions([])))
        text, err = self.report(status=1)
        self.assertIn('missing in', err)
        self.assertIn('list --long, check\n', err)
        self.assertEqual(2, text.count('or set the OS_* variables.'))
        self.assertIn('Took 2 nodes.', text)

    def test_host_without_nova(self):
        text, err = self.report('--config-file', '/nonexistent', status=1)
        self.assertEqual(2, text.count('name it with --config-file'))
        self.assertIn('settings, log\n', err)

    def test_nova_conf_that_cannot_be_read(self):
        for line in b'HUSH\n', b'[ironic]\npassword = \xff\n':
            self.conf.write_bytes(line)
            text, _ = self.report(status=1)
            self.assertIn('cannot read it', text)

    def test_log(self):
        for text in (f'log_dir = {self.directory}',
                     f'log_file = nova-compute.log\nlog_dir={self.directory}'):
            self.conf.write_text(f'[DEFAULT]\n{text}\n')
            self.assertIn('Took 2 nodes.', self.report()[0])
        self.conf.write_text('[DEFAULT]\nlog_dir = $state_path/log\n')
        text, err = self.report(status=1)
        self.assertIn('$state_path/log/nova-compute.log: No such file', text)
        self.assertIn('with --nova-log.', text)
        self.assertIn(': log\n', err)
        self.assertIn('Took 2 nodes.', self.report(
            '--config-file', str(self.conf), '--nova-log', str(self.log))[0])

    def test_standard_output(self):
        status, out, _ = self.shell(
            'report', '--config-file', str(self.conf), '-')
        self.assertEqual(0, status)
        self.assertIn('== check\n', out)
        self.assertNotIn('HUSH', out)

    def test_a_file_that_cannot_be_written(self):
        link = self.directory / 'link'
        # In a directory of all users it may be another user's.
        link.symlink_to(self.directory / 'elsewhere')
        for file in self.directory / 'nix' / 'file', link:
            status, _, err = self.shell(
                'report', '--config-file', str(self.conf), str(file))
            self.assertEqual(2, status)
            self.assertIn('cannot be written', err)
