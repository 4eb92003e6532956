# SPDX-License-Identifier: Apache-2.0

import pathlib
import stat
import sys
from unittest import mock

import fixtures
from keystoneauth1 import exceptions
import openstack

from nova_ironic_multihost.client.commands import report
from nova_ironic_multihost.tests.unit.client.commands import base

NOVA_CONF = """\
[DEFAULT]
host = compute-1
compute_driver = ironic_multihost.IronicMultiHostDriver
transport_url = rabbit://openstack:HUSH@rabbit-1:5672,openstack:HUSH@rabbit-2
log_file = {log}
my_own_option = HUSH
[database]
connection = mysql+pymysql://nova:HUSH@db/nova
[ironic]
password = HUSH
peer_list = compute-1,compute-2
[ironic_multihost]
ring_partitions = 128
[keystone_authtoken]
password = HUSH
"""

#: Lines of a log, each with a secret, and what is left of them.
SECRETS = (
    ('transport_url = rabbit://nova:HUSH@a:5672,nova:HUSH@b:5672/x', ''),
    ('No route to rabbit://nova:HUSH@a:5672,nova:HUSH/HUSH@b:5672', 'b:5672'),
    ('Cannot open mysql+pymysql://nova:HUSH@db/nova', 'db/nova'),
    ('connection = mysql://nova:HUSH@db', 'connection'),
    ('{"auth": {"password": "HUSH and HUSH", "user": "x"}}', '"auth"'),
    ("{'adminPass': 'HUSH'}", 'adminPass'),
    ("u'password', u'HUSH'", 'password'),
    ("{'credentials': ('HUSH',)}", 'credentials'),
    ('curl -H "X-Auth-Token: HUSH"', 'X-Auth-Token'),
    ('X-Subject-Token=HUSH', 'X-Subject-Token'),
    ('Authorization: Basic HUSH', 'Authorization'),
    ('nova-manage --os-password HUSH', 'nova-manage'),
    ('OS_PASSWORD=HUSH', 'OS_PASSWORD'),
    ('memcache_secret_key: HUSH', 'memcache'),
    ('token gAAAAABHUSH-HUSH_', 'token'),
    ('GET /v1/image?temp_url_sig=HUSH', 'GET /v1/image'),
    ('"user_data": "HUSH"', 'user_data'),
    ('posted ' + 'HUSH' * 20, 'posted'),
    ('The password HUSH is wrong for admin', 'The password'),
    ("(u'password')  u'HUSH'", 'password'),
    ('auth_token HUSH', 'auth_token'),
    ('the token [HUSH]', 'the token'),
    ('<password>HUSH</password>', 'password'),
    ('GET /?password%3DHUSH', 'GET /?password'),
    ('http://h:6080/?path=%3Ftoken%3DHUSH', 'http://h:6080/?path'),
    ('%22password%22%253A%2522HUSH', 'password'),
    (r'{"body": "{\"password\": \"HUSH\"}"}', 'body'),
    ('curl -H Bearer HUSH', 'Bearer'),
    ('{"access_key": "HUSH"}', 'access_key'),
    ("{'accessKey': 'HUSH'}", 'accessKey'),
    ('encryption_key=HUSH', 'encryption_key'),
    ('hmac_keys = HUSH', 'hmac_keys'),
    ('ssh_key = HUSH', 'ssh_key'),
    ('X-Auth-Key: HUSH', 'X-Auth-Key'),
    ("'injected_files': [('/etc/x', 'HUSH')]", 'injected_files'),
    ("'personality': [{'contents': 'HUSH'}]", 'personality'),
    ("{'snmp_community': 'HUSH'}", 'snmp_community'),
    ('GET /image?Signature=HUSH', 'GET /image'),
    ('ipmitool -H b -U admin -P HUSH chassis', 'ipmitool'),
    ('bad: eyJhbGciOiJFUzI1NiJ9.HUSH.HUSH', 'bad'),
    ('-----BEGIN RSA PRIVATE KEY-----\nHUSH\nHUSH\n'
     '-----END RSA PRIVATE KEY-----', 'BEGIN RSA'),
    ('-----BEGIN PRIVATE KEY-----\nHUSH', 'BEGIN'),
)


class WithoutSecretsTestCase(base.ShellTestCase):

    def test_secrets_are_removed(self):
        for line, left in SECRETS:
            text = report.without_secrets(line)
            self.assertNotIn('HUSH', text)
            self.assertIn(left, text)
            self.assertIn('***', text)

    def test_others_stay(self):
        for line in (
                '2026-01-01 INFO nova.virt [req-1c1f3a52-0000-4000-8000-'
                '000000000000] Took node 1c1f3a52-0000-4000-8000-000000000001 '
                'from compute-1: http://ironic:6385/v1/nodes HTTP 200',
                'Passing n-1 to west: it passed on, no foreign key: 1',
                'nova does not accept the token of this account. Look',
                'Look at user, password and scope.',
                'DEBUG keystoneauth.token [-] Asked again',
                'DEBUG keystoneauth.token [None req-1c1f3a52] Asked again'):
            self.assertEqual(line, report.without_secrets(line))


class ReportTestCase(base.ShellTestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.log = self.directory / 'nova-compute.log'
        self.log.write_text('Audit took n-1.\n' + ''.join(
            f'{line}\n' for line, _ in SECRETS))
        self.conf = self.directory / 'nova.conf'
        self.conf.write_text(NOVA_CONF.format(log=self.log))
        self.file = self.directory / 'report.txt'

    def report(self, *argv, status=0):
        argv = argv or ('--config-file', str(self.conf))
        told, out, err = self.shell('report', *argv, str(self.file))
        self.assertEqual((status, ''), (told, out))
        text = self.file.read_text()
        self.assertNotIn('HUSH', text)
        self.assertNotIn('HUSH', err)
        self.assertEqual(
            ['versions', 'list --long', 'check', 'settings', 'log'],
            [line[3:] for line in text.splitlines() if line[:3] == '== '])
        return text, err

    def test_all_parts(self):
        text, err = self.report()
        self.assertEqual('', err)
        for words in ('\nPython 3.', '\nnova-ironic-multihost ',
                      '\nopenstacksdk ', 'Last heartbeat', '| east ',
                      '\n+------+-------+',
                      'each node has exactly one owner',
                      '\n[DEFAULT]host = compute-1\n',
                      '\n[ironic]peer_list = compute-1,compute-2\n',
                      '\n[ironic_multihost]ring_partitions = 128\n',
                      f'file: {self.log}\nAudit took n-1.\n'):
            self.assertIn(words, text)
        for words in ('my_own_option', '[keystone_authtoken]', 'Missing:',
                      ' = None'):
            self.assertNotIn(words, text)

    def test_findings_do_not_make_it_incomplete(self):
        self.cloud.providers = []
        self.assertIn('node-without-provider', self.report()[0])

    def test_only_its_user_may_read_it(self):
        for prepare in self.file.unlink, lambda: self.file.chmod(0o644):
            self.report()
            self.assertEqual(0o600, stat.S_IMODE(self.file.stat().st_mode))
            prepare()
        self.report()
        self.assertEqual(0o600, stat.S_IMODE(self.file.stat().st_mode))

    def test_cloud_that_does_not_answer(self):
        self.useFixture(fixtures.MockPatchObject(
            openstack, 'connect',
            side_effect=exceptions.MissingRequiredOptions([])))
        text, err = self.report(status=1)
        self.assertIn('missing in', err)
        self.assertIn('list --long, check\n', err)
        self.assertEqual(2, text.count('There are no usable credentials: '
                                       'Auth plugin requires'))
        self.assertEqual(2, text.count('or set the OS_* variables.'))
        self.assertIn('Audit took n-1.', text)

    def test_without_nova_and_its_files(self):
        self.useFixture(fixtures.MockPatchObject(
            report.metadata, 'version', side_effect=lambda name: '1.0'
            if name != 'nova' else self.absent(name)))
        with mock.patch.dict(sys.modules, {'nova': None}):
            text, err = self.report('--config-file', '/nonexistent', status=1)
        self.assertIn('\nnova not installed here\n', text)
        self.assertEqual(2, text.count('--config-file'))
        self.assertIn('settings, log\n', err)

    def absent(self, name):
        raise report.metadata.PackageNotFoundError(name)

    def test_nova_conf_that_cannot_be_read(self):
        for line in b'HUSH\n', b'[ironic]\npassword = \xff\n':
            self.conf.write_bytes(line)
            text, _ = self.report(status=1)
            self.assertIn('nova.conf cannot be read', text)

    def test_settings_that_name_others(self):
        for value in '$my_ip', '$host', '${ironic.password}', '$nix.nix':
            self.conf.write_text(
                '[ironic]\npassword = HUSH\n[DEFAULT]\n'
                f'log_file = {self.log}\nhost = {value}\n')
            self.assertIn(f'\n[DEFAULT]host = {value}\n', self.report()[0])

    def test_log_that_nova_conf_names_by_others(self):
        self.conf.write_text('[DEFAULT]\nlog_dir = $state_path/log\n')
        text, err = self.report(status=1)
        self.assertIn('\n[DEFAULT]log_dir = $state_path/log\n', text)
        self.assertIn('nova.conf names $state_path/log/nova-compute.log as '
                      'the log: name it with --nova-log.', text)
        self.assertIn(': log\n', err)

    def test_log_of_nova_conf(self):
        self.conf.write_text(f'[DEFAULT]\nlog_dir = {self.directory}\n')
        self.assertIn('Audit took n-1.', self.report()[0])
        self.conf.write_text('[DEFAULT]\nhost = one\n')
        self.assertIn('nova.conf names no log: name it with --nova-log.',
                      self.report(status=1)[0])

    def test_log_that_is_named(self):
        text, _ = self.report('--config-file', '/nonexistent', '--nova-log',
                              str(self.log), status=1)
        self.assertIn('Audit took n-1.', text)
        self.log.unlink()
        text, _ = self.report('--config-file', str(self.conf), '--nova-log',
                              str(self.log), status=1)
        self.assertIn(f'{self.log}: No such file or directory.', text)

    def test_end_of_a_long_log(self):
        # The word of the first secret is not among what is read.
        end = 'HUSH\nlast\n'
        self.log.write_text('first\npassword: ' + end.rjust(
            report._TAIL, 'x')[len(end):] + end)
        with mock.patch.object(report, '_TAIL', len(end)):
            text, _ = self.report()
        self.assertIn(f'file: {self.log}\nlast\n', text)

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
