# SPDX-License-Identifier: Apache-2.0

"""Each alert has its section of the runbook, with what commands print."""

import os
import pathlib
import re
import shlex
import signal
import time
from unittest import mock

import prometheus_client
import yaml

from nova_ironic_multihost.client import findings
from nova_ironic_multihost.tests.unit.client.commands import waiting
from nova_ironic_multihost.tests.unit.doc import incidents
from nova_ironic_multihost.tests.unit.doc import test_log_lines

ROOT = pathlib.Path(__file__).resolve().parents[4]
PAGE = ROOT / 'doc/source/user/runbook.rst'
RULES = ROOT / 'etc/prometheus/nova-ironic-multihost-rules.yaml'

#: The parts of a section, in their order.
PARTS = ('See', 'Decide', 'Do', 'Verify')

#: A section, by its label and title.
TITLE = re.compile(r'^\.\. _(?P<name>\w+):\n\n(?P=name)\n=+\n', re.MULTILINE)

#: A block of commands, with its indent.
BLOCK = re.compile(
    r'^(?P<indent> +)\.\. code-block:: console\n\n'
    r'(?P<text>(?:(?P=indent)   .*\n|\n)+)', re.MULTILINE)

#: Other programs, of which nothing is shown but that they are called.
SILENT = ('ipmitool', 'kill', 'nova-manage', 'openstack', 'systemctl',
          'timedatectl')


def alerts():
    """Return {name without prefix: rule}."""
    return {rule['alert'].removeprefix('IronicMultihost'): rule
            for group in yaml.safe_load(RULES.read_text())['groups']
            for rule in group['rules']}


def sections(text):
    """Return {title: text of the section}."""
    titles = list(TITLE.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    return {title['name']: text[title.end():end]
            for title, end in zip(titles, ends)}


def parts(section):
    """Return [introduction, part, its text, part, its text ...]."""
    return re.split(rf'^({"|".join(PARTS)})\n(?=   )', section,
                    flags=re.MULTILINE)


class RunbookTestCase(waiting.WaitingTestCase):
    """Runs the commands of the page against the cloud of each alert.

    Set WRITE_EXAMPLES to write down what they print instead.

    :ivar mended: whether the remedy of the section has been applied.
    """

    CLOUD = incidents.Cloud

    def setUp(self):
        super().setUp()
        self.page = PAGE.read_text()
        self.mended = False

    def test_each_alert_has_its_section_with_all_parts(self):
        found = sections(self.page)
        self.assertEqual(alerts().keys(), found.keys())
        for name, section in found.items():
            with self.subTest(name):
                _, *found = parts(section)
                self.assertEqual(PARTS, tuple(found[::2]))
                for part, text in zip(PARTS, found[1::2]):
                    if part != 'Decide':
                        self.assertTrue(BLOCK.search(text), part)

    def test_the_alert_leads_to_its_section(self):
        for name, rule in alerts().items():
            # Sphinx makes the anchor of a label in lower case.
            self.assertEqual(f'user/runbook.html#{name.lower()}',
                             rule['annotations']['runbook_url'])

    def test_each_kind_of_finding_has_its_remedy(self):
        table = (PAGE.parent / 'check.rst').read_text()
        first_cells = ' '.join(
            re.findall(r'^   \* - (.+)$', table, re.MULTILINE))
        self.assertEqual([], [kind for kind in findings.KINDS
                              if f'``{kind}``' not in first_cells])

    def test_what_the_commands_print(self):
        text = self.page
        for name, section in sections(self.page).items():
            with self.subTest(name):
                text = text.replace(section, self.replayed(name, section))
        text = text.rstrip() + '\n'
        if 'WRITE_EXAMPLES' in os.environ:
            PAGE.write_text(text)
            self.page = text
        self.assertEqual(self.page, text)

    def replayed(self, name, section):
        """Return the section with the output of its commands."""
        self.cloud = self.useFixture(self.CLOUD())
        self.now, self._events, self.mended = 0, [], False
        self.incident = getattr(incidents, name)(self)
        self.incident.begin()
        shown = []
        for piece in parts(section):
            if shown[-1:] == ['Verify\n']:
                self.mended = True
                self.incident.end()
            shown.append(f'{piece}\n' if piece in PARTS
                         else BLOCK.sub(self.block, piece))
        return ''.join(shown)

    def block(self, match):
        """Return a block with what its commands print."""
        indent = match['indent'] + '   '
        lines = [line.removeprefix(indent)
                 for line in match['text'].rstrip('\n').split('\n')]
        shown = []
        commands = iter(lines)
        for line in commands:
            if not line.startswith(('$ ', '# ')):
                continue
            shown.append(line)
            command = line[2:]
            while command.endswith('\\'):
                shown.append(next(commands))
                command = command[:-1] + shown[-1].strip()
            shown += self.printed(command)
        return (f'{match["indent"]}.. code-block:: console\n\n'
                + ''.join(f'{indent}{line}'.rstrip() + '\n'
                          for line in shown) + '\n')

    def printed(self, command):
        """Return the lines that a command prints."""
        program, *argv = shlex.split(command)
        if program in SILENT:
            return []
        return {
            'curl': self.curl, 'journalctl': self.journal,
            'nova-ironic-multihost': self.ours,
        }[program](*argv)

    def ours(self, *argv):
        _, out, err = self.shell(*argv)
        self.assertNotRegex(err, 'usage:|is not a .* command')
        return (err + out).rstrip().splitlines()

    def exporter(self):
        """Return the exporter's log and metrics after one survey."""
        with (mock.patch.object(signal, 'signal'),
              mock.patch.object(time, 'sleep', side_effect=KeyboardInterrupt),
              mock.patch.object(
                  prometheus_client, 'start_wsgi_server',
                  return_value=(mock.Mock(server_port=9798), None)) as start):
            _, _, err = self.shell('exporter', '--port', '9798')
        metrics = prometheus_client.generate_latest(start.call_args.args[2])
        return err.splitlines(), metrics.decode().splitlines()

    def curl(self, silent, url, *pipe):
        self.assertEqual('-s', silent)
        host, port, path = re.fullmatch(
            r'http://([\w.-]+):(\d+)/(.+)', url).groups()
        if path == f'healthz/{host}':
            return [self.incident.health.why]
        self.assertEqual(('metrics', '|', 'grep'), (path, *pipe[:2]))
        lines = (self.exporter()[1] if port == '9798'
                 else self.incident.metrics(host))
        return [line for line in lines if re.search(pipe[2], line)]

    def journal(self, _, unit, *argv):
        """Return the exporter's last line, or entries of the log lines."""
        if unit == 'nova-ironic-multihost-exporter':
            self.assertEqual(('-n', '1', '-o', 'cat'), argv)
            return self.exporter()[0][-1:]
        self.assertEqual(('nova-compute', '-g'), (unit, *argv[:-1]))
        found = [f'{level} {text}' for text, level
                 in test_log_lines.entries() if re.search(argv[-1], text)]
        self.assertTrue(found, argv[-1])
        return found
