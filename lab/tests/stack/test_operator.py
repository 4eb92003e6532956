# SPDX-License-Identifier: Apache-2.0

"""A night of an operator: one dies, is fenced, comes back, is drained.

By the commands of the wheel in an environment without nova, as somebody calls
them who has credentials and no database; and what Prometheus says meanwhile.
"""

import functools
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

from lab.tests.stack import command
from lab.tests.stack import operating
from lab.tests.stack.operating import PATIENCE
from lab.tests.stack.operating import PREFIX


#: Where our own go, with or without those of nova. What is short enough to end
#: is so wherever nova-compute runs.
SETTINGS = (
    '--set', 'oslo_messaging_notifications.driver=messagingv2',
    '--set', 'notifications.notification_format=versioned',
    '--set', 'DEFAULT.manager_shutdown_timeout=15',
    '--set', 'DEFAULT.graceful_shutdown_timeout=20')

#: Builds the wheel and installs it without nova in a directory of ours; prints
#: where its scripts are. The end without clean-up leaves them there.
WORKSTATION = """
import os, sys, tempfile
from nova_ironic_multihost.tests.loading import installation
tempfile.tempdir = sys.argv[1]
workstation = installation.Workstation()
workstation.setUp()
print(workstation.scripts, flush=True)
os._exit(0)
"""

FIRST_STEPS = command.ROOT / 'doc' / 'source' / 'user' / 'first-steps.rst'


def forms(text):
    """Return the lines of a text, without hosts, numbers and plurals."""
    text = re.sub(r'compute-\d+', 'HOST', text)
    text = re.sub(r'\d+', 'N', text)
    text = re.sub(r'\b(server|node)s\b', r'\1', text)
    return [line.strip() for line in text.splitlines() if line.strip()]


class OperatorTestCase(operating.OperatingTestCase):

    @functools.cached_property
    def workstation(self):
        """Directory of the scripts of an environment without nova."""
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        return pathlib.Path(self.done('install', self.call(
            'python', '-W', 'ignore', '-c', WORKSTATION, directory,
            PYTHONPATH=command.ROOT)).strip())

    def program(self, name):
        """Return the path of a program; the upgrade check needs nova."""
        if name == 'nova-ironic-multihost':
            return self.workstation / name
        return super().program(name)

    def test_a_night(self):
        self.come_up(*SETTINGS)
        self.is_without_nova()
        self.assertNotIn('IronicMultihostComputeDown', self.alerts())
        server = self.lab('boot', '--json').answer[0]
        dead, node = server['host'], server['node']
        self.assertEqual({'up'}, self.each('State'))
        self.assertEqual({'enabled'}, self.each('Status'))
        self.assertEqual(9, sum(row['Nodes'] for row in self.rows()))
        self.assertEqual(0, self.ask('check')[0])
        self.assertEqual([], self.listed('leaks'))
        shown = self.shown('node', 'show', node)
        self.assertEqual((dead, server['id']),
                         (shown['owner'], shown['server']))
        self.scrape()
        self.export()
        self.is_ready()
        free = self.row(dead)['Free']

        # It dies: its free nodes go, its server waits for a word.
        moving = self.listed('plan', '--remove', dead)
        self.lab('compute', 'kill', dead)
        self.until(lambda: self.row(dead)['State'] == 'down'
                   and self.row(dead)['Free'] == 0)
        self.assertTrue(moving)
        self.assertEqual(1, self.row(dead)['Used'])
        status, said, _ = self.ask('check', '-f', 'json')
        self.assertEqual(1, status)
        self.assertIn('instance-on-dead-host',
                      {found['Kind'] for found in json.loads(said)})
        self.until(lambda: 'IronicMultihostComputeDown' in self.alerts())

        # It is fenced: others have its server.
        self.assertEqual(0, self.ask('silent', dead)[0])
        self.assertEqual(0, self.ask('fence', dead, '--dry-run')[0])
        self.assertEqual('down', self.row(dead)['State'])
        status, said, errors = self.ask(
            'fence', dead, '--wait', str(PATIENCE))
        self.assertEqual(0, status, said + errors)
        self.is_documented('fence', said + errors)
        self.assertEqual(('fenced', 'disabled', 0), tuple(
            self.row(dead)[name] for name in ('State', 'Status', 'Nodes')))
        self.assertEqual(1, self.ask('silent', dead)[0])
        takeover_target = self.shown('node', 'show', node)['owner']
        self.assertNotEqual(dead, takeover_target)
        [told] = self.notified('ironic_multihost.takeover')
        self.assertEqual(
            (f'nova-compute:{takeover_target}', 'INFO', 'TakeoverPayload', {
                'host': takeover_target, 'source_host': dead,
                'instances': [server['id']]}),
            (told['publisher_id'], told['priority'],
             told['payload']['ironic_multihost_object.name'],
             told['payload']['ironic_multihost_object.data']))

        # It comes back, and another one is emptied.
        self.lab('compute', 'start', dead)
        status, said, errors = self.ask(
            'unfence', dead, '--wait', str(PATIENCE))
        self.assertEqual(0, status, said + errors)
        self.is_documented('unfence', said + errors)
        # Its own ones, none if its only node had the server.
        self.until(lambda: self.row(dead)['Free'] == free)
        self.assertEqual('enabled', self.row(dead)['Status'])
        status, said, errors = self.ask('drain', takeover_target, '--wait',
                                        str(PATIENCE))
        self.assertEqual(0, status, said + errors)
        self.assertEqual(
            ('disabled', 0, 1),
            tuple(
                self.row(takeover_target)[name]
                for name in ('Status', 'Free', 'Used')),
        )
        self.assertEqual(0, self.ask('undrain', takeover_target)[0])
        self.until(lambda: self.ask('check')[0] == 0)
        self.is_mapped_again(takeover_target)

    def is_documented(self, name, printed):
        """See that the page "First steps" shows what a command prints."""
        [shown] = re.findall(
            rf'\n   \$ nova-ironic-multihost {name} .+\n((?:   [^$\n].*\n)+)',
            FIRST_STEPS.read_text())
        shown, printed = forms(shown), forms(printed)
        self.assertEqual((shown[0], shown[-1]), (printed[0], printed[-1]))
        # A server may be another host's for a moment before its node is.
        self.assertLessEqual(
            set(printed), {*shown, 'HOST takes N free node'})

    def is_ready(self):
        """See that the check before a change passes, or says why not."""
        settings = self.place.conf / 'nova'
        with tempfile.TemporaryDirectory() as directory:
            collected = pathlib.Path(directory)
            for host in self.each('Host'):
                shutil.copy(settings / f'{host}.conf', collected)
            arguments = [
                'upgrade', 'check', '--json', '--os-cloud', 'lab-admin',
                '--os-baremetal-cloud', 'lab-system-admin', '--config-file',
                settings / 'compute-1.conf', '--collected', collected,
                '--placement-config',
                self.place.conf / 'placement' / 'placement.conf']
            self.assertEqual({}, self.complaints(0, arguments))
            with open(collected / 'compute-2.conf', 'a') as file:
                file.write('[ironic_multihost]\nring_partitions = 64\n')
            [(name, sentence)] = self.complaints(2, arguments).items()
        self.assertEqual('Same settings on all', name)
        self.assertIn('64 on compute-2', sentence)

    def complaints(self, status, arguments):
        """{check: what it says} of those that do not succeed."""
        done = self.call('nova-ironic-multihost-status', *arguments)
        self.assertEqual((status, ''), (done.returncode, done.stderr),
                         done.stdout)
        return {found['check']: found['details']
                for found in json.loads(done.stdout)['checks']
                if found['result']}

    def notified(self, kind):
        """What is told of one kind on the message bus; waited for."""
        found = []

        def hear():
            done = self.call('python', '-m', 'lab.queues',
                             'versioned_notifications.info',
                             PYTHONPATH=command.ROOT, **command.place())
            self.assertEqual(0, done.returncode, done.stderr)
            found.extend(told for told in json.loads(done.stdout)
                         if told['event_type'] == kind)
            return found

        self.until(hear)
        return found

    def is_mapped_again(self, host):
        """See that a host without a cell is found, and what helps."""
        self.sql(f"DELETE FROM nova_api.host_mappings WHERE host = '{host}'")
        found = self.listed('check', status=1)
        self.assertEqual({'node-without-record'},
                         {one['Kind'] for one in found})
        self.assertIn('its host is not mapped', found[0]['Sentence'])
        self.follow('nova-manage cell_v2 discover_hosts --by-service')
        self.until(lambda: self.ask('check')[0] == 0)

    def alerts(self):
        """Names of the alerts that Prometheus has."""
        return {alert['labels']['alertname'] for alert
                in self.lab('monitor', '--json').answer['alerts']}

    def is_without_nova(self):
        """See that the commands have no nova, and need none for the help."""
        done = subprocess.run(
            [self.workstation / 'python', '-P', '-c', 'import nova'],
            capture_output=True, text=True, timeout=command.DEADLINE)
        self.assertIn("No module named 'nova'", done.stderr)
        self.assertIn('  fence ', self.done('help', self.call(
            'nova-ironic-multihost', '--help')))

    def export(self):
        """See that an exporter answers with what it hears of the cloud."""
        with subprocess.Popen(
                [self.program('nova-ironic-multihost'), 'exporter', '--port',
                 '0', *operating.CLOUDS], env=self.environment(),
                stderr=subprocess.PIPE, text=True) as exporter:
            try:
                port = re.search(
                    r'port (\d+) ', exporter.stderr.readline())[1]
                self.until(lambda: f'\n{PREFIX}_cloud_survey_success 1.0\n'
                           in self.get(port, '/metrics'))
            finally:
                exporter.terminate()
        self.assertEqual(0, exporter.returncode)

    def scrape(self):
        """See that a compute service says how it is, and that it is well."""
        self.until(lambda: f'\n{PREFIX}_members 3.0\n'
                   in self.get(self.port, '/metrics'),
                   lambda: self.get(self.port, '/metrics'))
        self.assertIn(f'\n{PREFIX}_brake_engaged 0.0\n',
                      self.get(self.port, '/metrics'))
        self.assertIn('well', self.get(self.port, '/healthz/compute-1'))
