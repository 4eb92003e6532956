# SPDX-License-Identifier: Apache-2.0

import argparse
import contextlib
import dataclasses
import io
import json
import pathlib
import re
import signal
from unittest import mock

import fixtures
from oslotest import base
import yaml

from lab import errors
from lab import monitor
from lab import processes
from lab import progress
from lab import services
from lab import settings
from lab import state
from nova_ironic_multihost.tests.unit.etc import promtool

RULES = (pathlib.Path(settings.__file__).parents[1] / 'etc' / 'prometheus'
         / 'nova-ironic-multihost-rules.yaml')

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
        self.has()

    def has(self, *computes):
        state.State(self.settings).write('up', computes=computes)

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
        self.has('compute-1', 'compute-2')
        self.compute('compute-1', 20100)
        self.compute('compute-2', None)
        # What the other services of nova read, and what has been forgotten.
        self.compute('nova', 20100)
        self.compute('compute-3', 20102)
        self.assertEqual(
            [('exporter', '127.0.0.1:20012', None),
             ('nova-compute', '127.0.0.1:20100', 'compute-1')],
            self.targets())

    def test_looks_more_often_where_alerts_come_sooner(self):
        def interval(faster):
            found = monitor.configuration(self.settings, faster)['global']
            return found['scrape_interval'], found['evaluation_interval']

        self.assertEqual(('5s', '5s'), interval(1))
        self.assertEqual(('2s', '2s'), interval(2))


class HastenedTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.shipped = yaml.safe_load(RULES.read_text())

    def hastened(self, faster, **rule):
        [group] = monitor.hastened(
            {'groups': [{'name': 'g', 'rules': [rule]}]}, faster)['groups']
        return group['rules'][0]

    def test_what_is_waited_for(self):
        for duration, milliseconds in (
                ('90s', 900), ('5m', 3000), ('1h', 36000)):
            found = self.hastened(100, **{'for': duration, 'expr': 'up'})
            self.assertEqual(f'{milliseconds}ms', found['for'])

    def test_ages_and_ranges_down_to_what_is_normal(self):
        for was, is_ in (
                ('a > 3600', 'a > 36'), ('a > 300', 'a > 25'),
                ('a < 15', 'a < 15'), ('a > 0', 'a > 0'),
                ('increase(a[1h]) >= 3', 'increase(a[36s]) >= 3'),
                ('increase(a[10m])', 'increase(a[25s])'),
                ('increase(a[10s])', 'increase(a[10s])')):
            found = self.hastened(100, **{'for': '1m', 'expr': was})
            self.assertEqual(is_, found['expr'])

    def test_the_rest_is_as_it_is_shipped(self):
        def rest(rules):
            return [rule | {'for': '', 'expr': re.sub(
                        r'(?<=\[)\w+|\d{2,}', '', rule['expr'])}
                    for group in rules['groups'] for rule in group['rules']]

        found = monitor.hastened(self.shipped, 100)
        self.assertEqual(rest(self.shipped), rest(found))
        self.assertNotEqual(self.shipped, found)


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

    def ensure(self, faster=1):
        """What is started."""
        self.start.reset_mock()
        monitor.Monitor(
            self.settings, progress.Progress(io.StringIO())).ensure(faster)
        return [call.args[2].name for call in self.start.call_args_list]

    def test_starts_what_does_not_run(self):
        self.assertEqual(['exporter', 'prometheus'], self.ensure())
        self.signal.assert_not_called()
        self.running = {'exporter', 'prometheus'}
        self.assertEqual([], self.ensure())

    def test_computes_that_came_later_are_scraped(self):
        self.running = {'exporter', 'prometheus'}
        self.has('compute-4')
        self.compute('compute-4', 20104)
        self.ensure()
        self.assertIn('20104', (
            self.settings.conf / 'prometheus.json').read_text())
        self.signal.assert_called_once_with('prometheus', signal.SIGHUP)

    def test_prometheus_reads_what_is_written(self):
        self.has('compute-1')
        self.compute('compute-1', 20100)
        for faster in 1, 60:
            self.ensure(faster)
            promtool.run(self, 'check', 'config',
                         self.settings.conf / 'prometheus.json')

    def test_is_fetched_once(self):
        self.ensure()
        [script, package, directory] = self.fetch.call_args.args[0]
        self.assertTrue(script.exists())
        self.assertEqual('prometheus', package)
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
                mock.patch.object(
                    monitor, '_ask', return_value={'alerts': alerts}), \
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
            errors.LabError, monitor._ask, 'http://127.0.0.1:1', 'alerts')
        self.assertIn('tools/lab logs prometheus', str(error))
