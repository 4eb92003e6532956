# SPDX-License-Identifier: Apache-2.0

"""An operator: the commands of the package, and what is watched meanwhile.

With credentials and no database, as somebody calls them who has to mend a
cloud.
"""

import itertools
import json
import os
import shlex
import subprocess
import time
import urllib.parse
import urllib.request

from lab import settings
from lab.tests.stack import command

#: Seconds for each thing that is waited for.
PATIENCE = 180

#: What compute services and exporter have in common.
PREFIX = 'nova_ironic_multihost'


#: The credentials for all that our commands ask.
CLOUDS = ('--os-cloud', 'lab-admin',
          '--os-baremetal-cloud', 'lab-system-admin')

#: The client of OpenStack, which begins slowly, for each line that it reads.
CLIENT = """
import shlex, sys
from openstackclient import shell
sys.exit(any([shell.main(shlex.split(line)) for line in sys.stdin]))
"""


class OperatingTestCase(command.LabTestCase):

    @property
    def place(self):
        """The settings of the lab."""
        return settings.load(command.place()['LAB_DIR'])

    def come_up(self, *more):
        """Have a lab whose compute services show themselves."""
        self.port = (int(command.place()['LAB_BASE_PORT'])
                     + len(settings.PORT_NAMES))
        self.lab('down')
        self.lab('up', *command.SMALL, '--set',
                 f'ironic_multihost.metrics_port={self.port}', *more)
        self.lab('check', '--wait', str(PATIENCE))

    def program(self, name):
        """Return the path of a program."""
        return self.place.program(name)

    def environment(self, **variables):
        """Return the variables of a program that asks the lab."""
        return {**os.environ, **variables, 'no_proxy': settings.HOST,
                'OS_CLIENT_CONFIG_FILE': str(self.place.clouds)}

    def call(self, program, *arguments, text='', **variables):
        """Call a program of the lab; returns what came of it.

        :param text: what it reads
        """
        return subprocess.run(
            [self.program(program), *map(str, arguments)],
            env=self.environment(**variables), input=text,
            capture_output=True, text=True, timeout=command.DEADLINE)

    def follow(self, *lines):
        """Run commands as they are advised; each has to succeed.

        :returns: what the last ones of the client print
        """
        said = ''
        for own, some in itertools.groupby(
                lines, lambda line: line.startswith('nova-manage ')):
            if own:
                for line in some:
                    self.done(line, self.call(
                        'nova-manage', '--config-file',
                        self.place.conf / 'nova' / 'nova.conf',
                        *shlex.split(line)[1:]))
            else:
                some = [self.as_admin(line) for line in some]
                said = self.done(some, self.call(
                    'python', '-W', 'ignore', '-c', CLIENT,
                    text='\n'.join(some)))
        return said

    def read(self, *lines):
        """Run commands of the client; returns what each shows, of JSON."""
        rest = self.follow(*(f'{line} -f json' for line in lines)).strip()
        shown = []
        while rest:
            answer, end = json.JSONDecoder().raw_decode(rest)
            shown.append(answer)
            rest = rest[end:].strip()
        return shown

    def done(self, what, process):
        """Fail unless a process has ended well; returns what it printed."""
        self.assertEqual(0, process.returncode,
                         f'{what}: {process.stdout}{process.stderr}')
        return process.stdout

    @staticmethod
    def as_admin(line):
        """Return the client's command with its account and no prompt.

        Ironic wants another account.
        """
        system = 'system-' * line.startswith('openstack baremetal node')
        if line.startswith('openstack server set --state '):
            line += ' --auto-approve'
        words = line.removeprefix('openstack ')
        return f'--os-cloud lab-{system}admin {words}'

    def ask(self, *arguments):
        """Call the command; returns its status and what it printed."""
        done = self.call('nova-ironic-multihost', *CLOUDS, *arguments)
        self.assertNotIn('Traceback', done.stderr)
        return done.returncode, done.stdout, done.stderr

    def listed(self, *arguments, status=0):
        """What a command that lists prints as JSON."""
        found, said, errors = self.ask(*arguments, '-f', 'json')
        self.assertEqual(status, found, errors)
        return json.loads(said)

    shown = listed

    def rows(self):
        """The compute services."""
        return self.listed('list', '--long')

    def row(self, host):
        """One of them."""
        [found] = [row for row in self.rows() if row['Host'] == host]
        return found

    def each(self, column):
        """The values in a column."""
        return {row[column] for row in self.rows()}

    def until(self, so, what=None):
        """Look until something is so.

        :param what: called for what is told if that takes too long
        """
        end = time.monotonic() + PATIENCE
        while not so():
            if time.monotonic() > end:
                self.keep_logs()
                self.fail((what or self.rows)())
            time.sleep(1)

    def get(self, port, path):
        """What is answered on a port of the lab."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f'http://{settings.HOST}:{port}{path}',
                         timeout=30) as answer:
            return answer.read().decode()

    def query(self, expression):
        """What Prometheus answers, each with its labels."""
        said = self.get(
            self.place.port('prometheus'), '/api/v1/query?'
            + urllib.parse.urlencode({'query': expression}))
        return json.loads(said)['data']['result']

    def sql(self, statement):
        """Have a statement executed; returns what it finds."""
        done = subprocess.run(
            ['mariadb', '--host', settings.HOST, '--port',
             str(self.place.port('mariadb')), '--user', settings.OPERATOR,
             f'--password={settings.PASSWORD}', '--skip-ssl', '--batch',
             '--skip-column-names', '--delimiter=//', '--execute',
             statement], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.strip()
