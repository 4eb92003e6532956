# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

import argparse
import contextlib
import dataclasses
import io
import json
import pathlib
import signal
from unittest import mock

import fixtures
from oslotest import base

from lab import errors
from lab import monitor
from lab import processes
from lab import progress
from lab import services
from lab import settings
from lab import state
from nova_ironic_multihost.tests.unit.etc import promtool

ALERTS = [
    {'state': 'pending', 'labels': {
        'alertname': 'IronicMultihostComputeDown', 'host': 'compute-1',
        'severity': 'critical', 'instance': '127.0.0.1:20012'}},
    {'state': 'firing', 'labels': {
        'alertname': 'IronicMultihostFindingsPersist', 'kind': 'stuck',
        'severity': 'warning', 'instance': '127.0.0.1:20012'}},
    {'state': 'firing', 'labels': {
        'alertname': 'IronicMultihostSurveyFailing'}}]


class MonitorTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.settings = dataclasses.replace(
            settings.load(top / 'lab', 20000), venv=top / 'venv')
        for directory in self.settings.logs, self.settings.conf / 'nova':
            directory.mkdir(parents=True)
        state.State(self.settings).write('up')

    def compute(self, name, port):
        (self.settings.conf / 'nova' / f'{name}.conf').write_text(
            '[DEFAULT]\nhost = %(x)s\n'
            + (f'[ironic_multihost]\nmetrics_port = {port}\n' if port
               else ''))


class ConfigurationTestCase(MonitorTestCase):

    def targets(self):
        """[(job, target, host)]."""
        return [
            (job['job_name'], target, one.get('labels', {}).get('host'))
            for job in monitor.configuration(self.settings)['scrape_configs']
            for one in job['static_configs'] for target in one['targets']]

    def test_exporter_and_computes_that_tell_something(self):
        self.compute('compute-1', 20100)
        self.compute('compute-2', None)
        self.compute('nova', None)
        self.assertEqual(
            [('exporter', '127.0.0.1:20012', None),
             ('nova-compute', '127.0.0.1:20100', 'compute-1')],
            self.targets())

    def test_prometheus_reads_it(self):
        path = self.settings.conf / 'prometheus.json'
        path.write_text(json.dumps(monitor.configuration(self.settings)))
        promtool.run(self, 'check', 'config', path)


class EnsureTestCase(MonitorTestCase):

    def setUp(self):
        super().setUp()
        self.running = set()
        self.useFixture(fixtures.MockPatchObject(
            processes.Processes, 'state', side_effect=lambda name: (
                'running' if name in self.running else 'stopped')))
        self.signal = self.useFixture(fixtures.MockPatchObject(
            processes.Processes, 'signal')).mock
        self.start = self.useFixture(fixtures.MockPatchObject(
            services, 'start')).mock
        self.useFixture(fixtures.MockPatchObject(services, 'wait'))
        self.fetch = self.useFixture(fixtures.MockPatch(
            'subprocess.run', return_value=mock.Mock(returncode=0))).mock

    def ensure(self):
        """What is started."""
        self.start.reset_mock()
        monitor.Monitor(
            self.settings, progress.Progress(io.StringIO())).ensure()
        return [call.args[2].name for call in self.start.call_args_list]

    def test_starts_what_does_not_run(self):
        self.assertEqual(['exporter', 'prometheus'], self.ensure())
        self.signal.assert_not_called()
        self.running = {'exporter', 'prometheus'}
        self.assertEqual([], self.ensure())

    def test_computes_that_came_later_are_scraped(self):
        self.running = {'exporter', 'prometheus'}
        self.compute('compute-4', 20104)
        self.ensure()
        self.assertIn('20104', (
            self.settings.conf / 'prometheus.json').read_text())
        self.signal.assert_called_once_with('prometheus', signal.SIGHUP)

    def test_is_fetched_once(self):
        self.ensure()
        [script, directory] = self.fetch.call_args.args[0]
        self.assertTrue(script.exists())
        self.assertEqual(self.settings.venv.parent / 'prometheus', directory)
        directory.mkdir()
        self.ensure()
        self.fetch.assert_called_once()

    def test_that_it_cannot_be_fetched_is_said(self):
        self.fetch.return_value.returncode = 100
        error = self.assertRaises(errors.LabError, self.ensure)
        self.assertIn('sudo apt-get update', str(error))
        self.start.assert_not_called()

    def test_what_is_started_listens_on_this_machine_only(self):
        for service in services.watchers(self.settings):
            self.assertNotIn('0.0.0.0', ' '.join(service.argv))
            self.assertIn(service.port, (20012, 20013))


class CommandTestCase(MonitorTestCase):

    def run_monitor(self, alerts, *argv):
        parser = argparse.ArgumentParser()
        monitor.register(parser.add_subparsers())
        args = parser.parse_args(['monitor', *argv])
        out = io.StringIO()
        with mock.patch.object(monitor.Monitor, 'ensure'), \
                mock.patch.object(monitor, '_alerts', return_value=alerts), \
                contextlib.redirect_stdout(out):
            self.assertEqual(0, args.func(args, self.settings))
        return out.getvalue()

    def test_lab_that_is_down_is_not_watched(self):
        state.State(self.settings).write('down')
        error = self.assertRaises(errors.LabError, self.run_monitor, [])
        self.assertIn('tools/lab up', str(error))

    def test_one_line_for_each_alert(self):
        self.assertEqual([
            'Prometheus is at http://127.0.0.1:20013',
            'pending  IronicMultihostComputeDown compute-1',
            'firing   IronicMultihostFindingsPersist stuck',
            'firing   IronicMultihostSurveyFailing'],
            self.run_monitor(ALERTS).splitlines())

    def test_no_alert(self):
        self.assertIn('no alert', self.run_monitor([]))

    def test_json(self):
        self.assertEqual(
            {'url': 'http://127.0.0.1:20013', 'alerts': ALERTS},
            json.loads(self.run_monitor(ALERTS, '--json')))

    def test_prometheus_that_does_not_answer(self):
        error = self.assertRaises(
            errors.LabError, monitor._alerts, 'http://127.0.0.1:1')
        self.assertIn('tools/lab logs prometheus', str(error))
