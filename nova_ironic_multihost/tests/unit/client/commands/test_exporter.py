# SPDX-License-Identifier: Apache-2.0

import datetime
import re
import signal
import socket
import subprocess
import sys
import time
from unittest import mock
import urllib.request

import fixtures
from oslotest import base as test_base
import prometheus_client
from prometheus_client import parser

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.tests.unit.client.commands import base
from nova_ironic_multihost.tests import views

PREFIX = 'nova_ironic_multihost_cloud_'


def figures(text):
    """{'name' or 'name{label=value,...}', without prefix: value}."""
    read = {}
    for metric in parser.text_string_to_metric_families(text):
        for sample in metric.samples:
            labels = ','.join(f'{name}={value}' for name, value
                              in sorted(sample.labels.items()))
            name = sample.name.removeprefix(PREFIX) + (
                f'{{{labels}}}' if labels else '')
            # Prometheus takes nothing of what has a sample twice.
            assert name not in read, name
            read[name] = sample.value
    return read


class ExporterTestCase(base.ShellTestCase):

    def setUp(self):
        super().setUp()
        self.good = views.consistent()
        self.connect = self.useFixture(fixtures.MockPatchObject(
            cloud_client, 'connect')).mock
        self.read = self.connect.return_value.read
        self.read.return_value = self.good
        self.useFixture(fixtures.MockPatchObject(
            time, 'time', side_effect=lambda: views.NOW))

    def run_main(self, *argv):
        """Run the command: (status, standard error)."""
        status, _, err = self.shell('exporter', *argv)
        return status, err


class PortTestCase(ExporterTestCase):

    def setUp(self):
        super().setUp()
        self.signal = self.useFixture(fixtures.MockPatchObject(
            signal, 'signal')).mock
        self.server = self.useFixture(fixtures.MockPatchObject(
            prometheus_client, 'start_wsgi_server',
            return_value=(mock.Mock(server_port=4711), None))).mock

    def serve(self, *steps, argv=()):
        """Run the command with --port.

        :param steps: what is done while it rests, one after the other
        :returns: standard error
        """
        remaining = iter(steps)

        def rest(seconds):
            self.rest = seconds
            step = next(remaining, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        self.useFixture(fixtures.MockPatchObject(
            time, 'sleep', side_effect=rest))
        status, err = self.run_main('--port', '0', *argv)
        self.assertEqual(0, status)
        return err

    def scrape(self):
        port, address, registry = self.server.call_args.args
        self.assertEqual(('127.0.0.1', 0), (address, port))
        return figures(prometheus_client.generate_latest(registry).decode())

    def change(self, **how):
        return lambda: self.read.configure_mock(**how)

    def scrapes(self, *changes, argv=()):
        """Scrape at first and after each change: (figures, standard error).

        :param changes: keyword arguments for a mock, as dicts
        """
        scraped = []
        steps = [lambda: scraped.append(self.scrape())]
        for how in changes:
            # The cloud is asked between two steps.
            steps += [self.change(**how),
                      lambda: scraped.append(self.scrape())]
        return scraped, self.serve(*steps, argv=argv)

    def test_healthy(self):
        [told], err = self.scrapes()
        self.assertIn('answering at port 4711 of 127.0.0.1', err)
        self.assertEqual(
            {1.0}, {told[f'compute_up{{host={host}}}']
                    for host in views.HOSTS})
        for name, value in (
                ('survey_success', 1), ('nodes', 6), ('servers_busy', 0),
                ('survey_timestamp_seconds', views.NOW),
                ('compute_nodes{host=compute-1,state=used}', 1)):
            self.assertEqual(value, told[name])
        self.assertGreaterEqual(told['survey_seconds'], 0)
        for kind in findings.KINDS:
            self.assertEqual(0, told[f'findings{{kind={kind}}}'])
        for name in told:
            self.assertNotRegex(name, '^(python|process)_')

    def test_one_down(self):
        self.read.return_value = views.changed(
            self.good, 'services', 0, up=False)
        [told], _ = self.scrapes()
        self.assertEqual(0, told['compute_up{host=compute-1}'])
        self.assertEqual(
            1, told[f'findings{{kind={findings.ON_DEAD_HOST}}}'])
        self.assertEqual(0, told['findings{kind=compute-not-up}'])

    def test_compute_that_must_be_up(self):
        [told], _ = self.scrapes(argv=['--host', 'compute-9'])
        self.assertEqual(1, told['findings{kind=compute-missing}'])

    def test_notes_are_told_too(self):
        words = liveness.stop_marker_text(datetime.datetime(1970, 1, 1))
        self.read.return_value = views.changed(
            self.good, 'services', 0, stop_marker=words)
        [told], _ = self.scrapes()
        self.assertEqual(1, told['findings{kind=still-stopping}'])

    def test_allocations_on_demand(self):
        self.serve()
        self.read.assert_called_once_with(False)
        self.serve(argv=['--allocations'])
        self.read.assert_called_with(True)

    def test_whose_credentials(self):
        self.serve(argv=['--os-cloud', 'one', '--os-baremetal-cloud', 'two'])
        self.connect.assert_called_with('one', 'two')

    def test_answers_from_the_last_survey(self):
        def scrape_twice():
            asked = self.read.call_count
            self.assertEqual(self.scrape(), self.scrape())
            self.assertEqual(asked, self.read.call_count)

        self.serve(scrape_twice)

    def test_follows_the_cloud(self):
        (healthy, leaked, fenced), err = self.scrapes(
            {'return_value': views.without(self.good, 'instances', 0)},
            {'return_value': views.changed(
                self.good, 'services', 1, up=False, forced_down=True)})
        name = 'findings{kind=leaked-machine}'
        self.assertEqual([0, 1, 0],
                         [told[name] for told in (healthy, leaked, fenced)])
        name = 'compute_fenced{host=compute-2}'
        self.assertEqual([0, 0, 1],
                         [told[name] for told in (healthy, leaked, fenced)])
        self.assertEqual(1, err.count('\n'))

    def test_stuck(self):
        [told], _ = self.scrapes()
        self.assertEqual(0, told['findings{kind=stuck}'])
        self.read.return_value = views.changed(
            self.good, 'instances', 0, task_state='deleting', updated=-5000)
        [told], _ = self.scrapes()
        self.assertEqual(1, told['findings{kind=stuck}'])
        self.assertEqual(1, told['servers_busy'])

    def test_cloud_that_cannot_be_asked_keeps_what_is_known(self):
        later = views.changed(self.good, 'services', 0, up=False)
        (before, away, still_away, back), err = self.scrapes(
            {'side_effect': cloud_state.CloudError('Do this.')}, {},
            {'side_effect': None, 'return_value': later})
        for told in away, still_away:
            self.assertEqual(0, told['survey_success'])
            self.assertEqual(before['survey_timestamp_seconds'],
                             told['survey_timestamp_seconds'])
            self.assertEqual(1, told['compute_up{host=compute-1}'])
        self.assertEqual(1, back['survey_success'])
        self.assertEqual(0, back['compute_up{host=compute-1}'])
        # It is said when it changes.
        self.assertEqual(1, err.count('Do this.'))
        self.assertEqual(1, err.count('the cloud answers again'))
        self.assertLess(err.index('Do this.'), err.index('answers again'))

    def test_scrape_before_the_first_survey_is_over(self):
        def read(allocations):
            self.assertEqual({'survey_success': 0, 'survey_seconds': 0},
                             self.scrape())
            raise KeyboardInterrupt

        self.read.side_effect = read
        self.serve()
        self.read.assert_called_once()

    def test_rests_in_between(self):
        self.serve()
        self.assertEqual(60, self.rest)
        for given, rest in ('7.5', 7.5), ('0', 1):
            self.serve(argv=['--interval', given])
            self.assertEqual(rest, self.rest)

    def test_sigterm_is_as_good_as_ctrl_c(self):
        self.serve()
        self.signal.assert_called_once_with(
            signal.SIGTERM, signal.default_int_handler)

    def test_port_that_others_have(self):
        for error, why in (
                (OSError(98, 'Address already in use'), 'Address already in'),
                (OverflowError('must be 0-65535'), 'must be 0-65535'),
                (UnicodeError('label too long'), 'label too long')):
            self.server.side_effect = error
            status, err = self.run_main('--port', '4711')
            self.assertEqual(2, status)
            self.assertIn(f'port 4711 cannot be had: {why}', err)
            self.assertIn('Choose', err)
        self.read.assert_not_called()

    def test_address(self):
        self.serve(argv=['--address', '::1'])
        self.assertEqual('::1', self.server.call_args.args[1])

    def test_no_credentials(self):
        self.connect.side_effect = cloud_state.CloudError('Do this.')
        self.assertEqual(
            (2, 'nova-ironic-multihost: Do this.\n'),
            self.run_main('--port', '0'))


class ProcessTestCase(test_base.BaseTestCase):
    """A process of its own, whose threads are native ones."""

    #: Runs the command with a cloud that is in order.
    PROGRAM = """
from cliff import commandmanager
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client.commands import app
from nova_ironic_multihost.client.commands import exporter
from nova_ironic_multihost.tests.unit.client.commands import base
from nova_ironic_multihost.tests import views
import sys
from unittest import mock
commandmanager.CommandManager.load_commands = base.load_commands
cloud_client.connect = mock.Mock()
cloud_client.connect.return_value.read.return_value = views.consistent()
exporter.PATIENCE = .1
sys.exit(app.main(['exporter', *sys.argv[1:]]))
"""

    def start(self, *argv):
        """Start the command; return the process and its first line."""
        process = subprocess.Popen(
            [sys.executable, '-c', self.PROGRAM, *argv],
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        return process, process.stderr.readline()

    def scrape(self, port):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f'http://127.0.0.1:{port}/metrics',
                         timeout=60) as answer:
            return figures(answer.read().decode())

    def test_scrapes_and_sigterm(self):
        process, line = self.start('--port', '0')
        port = re.search('port ([0-9]+) of 127.0.0.1', line)[1]
        while not (told := self.scrape(port))['survey_success']:
            pass
        self.assertEqual(6, told['nodes'])
        for said in b'', b'GET /metrics HT':
            with socket.create_connection(('127.0.0.1', port), 10) as silent:
                silent.sendall(said)
                self.assertEqual(b'', silent.recv(1))
        other, line = self.start('--port', port)
        self.assertEqual(2, other.wait())
        self.assertIn('Address already in use', line)
        process.terminate()
        self.assertEqual(0, process.wait())
        self.assertEqual('', process.stderr.read())


class CommandLineTestCase(ExporterTestCase):

    def test_invalid_port_and_interval(self):
        for argv, word in (
                ((), 'required'), (('--port', 'x'), '--port'),
                *((('--port', '0', '--interval', value), '--interval')
                  for value in ('-5', 'nan', 'x'))):
            status, err = self.run_main(*argv)
            self.assertEqual(2, status)
            self.assertIn(word, err)
