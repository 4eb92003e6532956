# SPDX-License-Identifier: Apache-2.0

"""What lab run tempest makes of tests, and what it must come to."""

import configparser
import dataclasses
import datetime
import io
import json
import pathlib
from unittest import mock

import fixtures
from oslotest import base
import subunit

from lab import errors
from lab.experiments import tempest
from lab.experiments.tempest import configuration
from lab.experiments.tempest import results
from lab.experiments.tempest import stream
from lab.experiments.tempest import suite
from lab import progress
from lab import settings
from nova_ironic_multihost.tests import views

ACTIONS = 'tempest.api.compute.servers.test_server_actions.ServerActionsJSON'
TAGS = 'tempest.api.compute.servers.test_server_tags.ServerTagsJSON'
VOLUMES = 'tempest.api.compute.volumes.test_volumes_get.VolumesGetJSON'

TRACEBACK = """\
Traceback (most recent call last):
  File "/x/test_server_actions.py", line 1, in test_reboot
    waiters.wait_for_server_status(self.client, self.server_id, 'ACTIVE')
tempest.lib.exceptions.TimeoutException: Request timed out
Details: (ServerActionsJSON) Server 8 failed to reach ACTIVE status
"""
#: What stestr prints while tests run.
PRINTED = f"""\
{{1}} {ACTIONS}.test_reboot [12.3s] ... FAILED

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):
{{0}} {TAGS}.test_create_tag [0.8s] ... ok
{{0}} setUpClass ({VOLUMES}) ... SKIPPED: cinder is not there
"""


def at(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def run(**results_):
    """A run from {name: (status, start, stop, worker)}."""
    return {name: results.Result(*result)
            for name, result in results_.items()}


class StreamTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        stored = io.BytesIO()
        write = subunit.StreamResultToBytes(stored).status
        write(f'{ACTIONS}.test_never_begun', 'exists')
        self.record(
            write, f'{ACTIONS}.test_reboot[id-1,smoke]', 'fail', 10, 22,
            'worker-1', traceback=TRACEBACK, pythonlogging='noise')
        self.record(write, f'{TAGS}.test_create_tag[id-2]', 'success', 11, 12,
                    'worker-0')
        self.record(write, f'setUpClass ({VOLUMES})', 'skip', 13, 13,
                    'worker-0', reason='cinder is not there')
        write(f'{TAGS}.test_hangs', 'inprogress', timestamp=at(14),
              test_tags={'worker-0'})
        stored.seek(0)
        printed = io.StringIO()
        stream.main(stored, printed)
        self.lines = printed.getvalue().splitlines()

    @staticmethod
    def record(write, name, status, start, stop, worker, **files):
        write(name, 'inprogress', timestamp=at(start), test_tags={worker})
        for kind, text in files.items():
            write(name, file_name=kind, file_bytes=text.encode(),
                  mime_type='text/plain;charset="utf8"', eof=True)
        write(name, status, timestamp=at(stop), test_tags={worker})

    def test_each_line_is_a_test(self):
        found = {row['id']: row for row in map(json.loads, self.lines)}
        self.assertEqual(
            {'id': f'{TAGS}.test_create_tag[id-2]', 'status': 'success',
             'start': 11.0, 'stop': 12.0, 'worker': 'worker-0', 'text': ''},
            found[f'{TAGS}.test_create_tag[id-2]'])

    def test_what_came_of_tests(self):
        found = results.parse(self.lines)
        self.assertEqual({
            f'{ACTIONS}.test_reboot': results.Result(
                results.FAILED, 10.0, 22.0, 'worker-1', TRACEBACK),
            f'{TAGS}.test_create_tag': results.Result(
                results.PASSED, 11.0, 12.0, 'worker-0'),
            f'setUpClass ({VOLUMES})': results.Result(
                results.SKIPPED, 13.0, 13.0, 'worker-0',
                'cinder is not there'),
            # It never ended.
            f'{TAGS}.test_hangs': results.Result(
                results.FAILED, 14.0, 14.0, 'worker-0'),
        }, found)
        self.assertEqual({'passed': 1, 'failed': 2, 'skipped': 1},
                         results.tally(found))

    def test_reason_is_the_end_of_the_traceback(self):
        found = results.failed(results.parse(self.lines))
        self.assertEqual(
            'Details: (ServerActionsJSON) Server 8 failed to reach ACTIVE '
            'status', found[f'{ACTIONS}.test_reboot'])


class ResultsTestCase(base.BaseTestCase):

    def test_progress(self):
        self.assertEqual((3, 1), results.progress(PRINTED.splitlines()))

    def test_a_message_of_several_lines(self):
        result = results.Result(results.FAILED, text=(
            'Traceback (most recent call last):\n'
            'tempest.lib.exceptions.BadRequest: Bad request\n'
            '    because of this\n\n'))
        self.assertEqual('tempest.lib.exceptions.BadRequest: Bad request',
                         result.reason)

    def test_classes(self):
        self.assertEqual('a.b.C', results.class_of('a.b.C.test_x'))
        for name in ('setUpClass (a.b.C)', 'tearDownClass (a.b.C)'):
            self.assertEqual('a.b.C', results.class_of(name))

    def test_what_fails_in_both_is_no_difference(self):
        one = run(**{'C.a': ('failed',), 'C.b': ('passed',),
                     'setUpClass (D)': ('skipped',)})
        self.assertEqual({}, results.worse(one, dict(one)))

    def test_fails_in_one(self):
        ours = run(**{'C.a': ('failed', 0, 0, '', 'Boom'),
                      'C.b': ('passed',)})
        stock = run(**{'C.a': ('passed',), 'C.b': ('failed',)})
        self.assertEqual({'C.a': 'Boom'}, results.worse(ours, stock))

    def test_fails_in_one_and_is_not_in_the_other(self):
        self.assertEqual({'C.a': 'Boom'}, results.worse(
            run(**{'C.a': ('failed', 0, 0, '', 'Boom')}), {}))

    def test_tests_of_a_class_that_failed_at_once_are_told_once(self):
        ours = run(**{'setUpClass (C)': ('failed', 0, 0, '', 'Boom')})
        stock = run(**{'C.a': ('passed',), 'C.b': ('passed',)})
        self.assertEqual({'setUpClass (C)': 'Boom'},
                         results.worse(ours, stock))

    def test_passes_in_one_and_is_not_in_the_other(self):
        ours = run(**{'C.a': ('skipped', 0, 0, '', 'No such thing')})
        stock = run(**{'C.a': ('passed',), 'C.b': ('passed',),
                       'C.c': ('skipped',)})
        self.assertEqual({'C.a': 'skipped: No such thing',
                          'C.b': 'was not run'}, results.worse(ours, stock))

    def test_in_flight(self):
        killed = run(**{
            'A.a': ('passed', 0.0, 10.0, 'worker-0'),
            'B.a': ('passed', 15.0, 20.0, 'worker-0'),
            'B.b': ('passed', 20.0, 90.0, 'worker-0'),
            'C.a': ('passed', 0.0, 60.0, 'worker-1'),
            # The preparation of D begins with the end of C.
            'D.a': ('passed', 70.0, 80.0, 'worker-1'),
            'E.a': ('passed', 80.0, 85.0, 'worker-1')})
        for begin, end, classes in ((12.0, 14.0, 'BC'), (25.0, 59.0, 'BC'),
                                    (61.0, 62.0, 'BD'), (25.0, 81.0, 'BCDE'),
                                    (82.0, 84.0, 'BE')):
            self.assertEqual(set(classes),
                             results.in_flight(killed, begin, end))


class ConfigurationTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        for name in ('LAB_DIR', 'LAB_VENV', 'LAB_BASE_PORT'):
            self.useFixture(fixtures.EnvironmentVariable(name))
        self.files = {}
        for name, text in configuration.files(
                settings.load('/lab', 20000), configuration.Cloud(
                    ('image-1', 'image-2'), ('flavor-1', 'flavor-2'), 'net',
                    ('quotas', 'security-group'), '2.103', 3),
                pathlib.Path('/site')).items():
            parser = configparser.ConfigParser(interpolation=None)
            parser.read_string(text)
            self.files[name] = parser
        self.tempest = self.files['tempest/tempest.conf']

    def test_finds_the_lab(self):
        self.assertEqual('http://127.0.0.1:20005/v3',
                         self.tempest['identity']['uri_v3'])
        for option, value in (
                ('image_ref', 'image-1'), ('image_ref_alt', 'image-2'),
                ('flavor_ref', 'flavor-1'), ('flavor_ref_alt', 'flavor-2'),
                ('fixed_network_name', 'net'), ('max_microversion', '2.103'),
                ('min_compute_nodes', '3')):
            self.assertEqual(value, self.tempest['compute'][option])
        self.assertEqual(
            'quotas,security-group',
            self.tempest['network-feature-enabled']['api_extensions'])

    def test_what_is_not_there_is_turned_off(self):
        for section, option in (
                ('compute-feature-enabled', 'resize'),
                ('compute-feature-enabled', 'shelve'),
                ('service_available', 'cinder'),
                ('network-feature-enabled', 'floating_ips'),
                ('validation', 'run_validation')):
            self.assertIs(False, self.tempest[section].getboolean(option))

    def test_tests_of_a_class_stay_together(self):
        stestr = self.files['tempest/stestr.conf']['DEFAULT']
        self.assertEqual('/site/tempest/test_discover', stestr['test_path'])
        self.assertEqual(r'([^\.]*\.)*', stestr['group_regex'])


class SuiteTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.settings = dataclasses.replace(
            settings.load(top / 'lab', 20000, '2025.1'),
            venv=top / 'venv-2025.1')
        self.bench = mock.Mock(settings=self.settings)
        self.suite = suite.Suite(self.bench, mock.Mock(), 4)
        self.log = self.settings.logs / 'tempest-ours.log'
        self.log.parent.mkdir(parents=True)
        self.printed = ''
        self.calls = []
        self.useFixture(fixtures.MockPatch(
            'subprocess.run', side_effect=self.call))
        self.process = mock.Mock()
        self.process.poll.side_effect = [None, None, 1]
        self.processes = self.useFixture(fixtures.MockPatchObject(
            self.suite, '_processes')).mock
        self.processes.log.return_value = self.log
        self.processes.spawn.side_effect = self.spawn

    def call(self, argv, **_):
        """Stands for a program: a venv becomes a directory."""
        self.calls.append(' '.join(argv))
        if 'venv --clear' in self.calls[-1]:
            python = suite.venv(self.settings) / 'bin' / 'python'
            python.parent.mkdir(parents=True)
            python.touch()
        return mock.Mock(returncode=0, stdout=self.printed)

    def spawn(self, name, argv, environment):
        self.log.write_text(PRINTED)
        self.argv, self.environment = argv, environment
        return self.process

    def test_installed_once_and_for_all_releases(self):
        report = progress.Progress(io.StringIO())
        suite.install(self.settings, report)
        [_, pip] = self.calls
        self.assertIn('constraints/2026.2.txt', pip)
        self.assertIn('tempest/requirements.txt', pip)
        for release in settings.RELEASES:
            suite.install(self.settings.of(release), report)
        self.assertEqual(2, len(self.calls))

    def test_a_run(self):
        self.log.write_text('{0} of the run before ... ok')
        self.printed = json.dumps({
            'id': f'{TAGS}.test_create_tag[id-2]', 'status': 'success',
            'start': 1, 'stop': 2, 'worker': 'worker-0', 'text': ''})
        over = []
        found = self.suite.run('ours', 'test_tags', over.append)
        self.assertEqual([3, 3], over)
        self.assertEqual([f'{TAGS}.test_create_tag'], list(found))
        self.assertEqual(['run', '--concurrency', '4', 'test_tags'],
                         self.argv[-4:])
        self.assertEqual(str(self.settings.conf / 'tempest'),
                         self.environment['TEMPEST_CONFIG_DIR'])
        self.processes.kill.assert_called_once_with(['tempest-ours'])

    def test_a_run_of_nothing(self):
        error = self.assertRaises(
            errors.LabError, self.suite.run, 'ours', 'test_tags')
        self.assertIn('tools/lab logs tempest-ours', str(error))

    def test_a_run_that_hangs(self):
        self.useFixture(fixtures.MockPatchObject(suite, 'PATIENCE', -1.0))
        error = self.assertRaises(
            errors.LabError, self.suite.run, 'ours', 'test_tags')
        self.assertIn('do not end', str(error))
        self.processes.kill.assert_called_once_with(['tempest-ours'])


class FiguresTestCase(base.BaseTestCase):

    GOOD = {'any_passed': True, 'only_ours': {}, 'dead': 'compute-1',
            'lost': {}, 'quiet': True}

    def test_good(self):
        self.assertEqual([], tempest.failures(self.GOOD))

    def test_each_bad_figure_has_its_sentence(self):
        for figure, value in (('any_passed', False),
                              ('only_ours', {'C.a': 'Boom'}), ('dead', None),
                              ('lost', {'C.a': 'Boom'}), ('quiet', False)):
            self.assertEqual(1, len(tempest.failures(
                self.GOOD | {figure: value})), figure)

    def test_compared(self):
        ours = run(**{'C.a': ('passed',), 'C.b': ('failed',),
                      'C.c': ('failed', 0, 0, '', 'Boom'),
                      'C.d': ('passed',)})
        stock = run(**{'C.a': ('passed',), 'C.b': ('failed',),
                       'C.c': ('passed',),
                       'C.d': ('failed', 0, 0, '', 'Bang')})
        self.assertEqual(
            {'any_passed': True, 'both': {'C.b': ''},
             'only_ours': {'C.c': 'Boom'}, 'only_stock': {'C.d': 'Bang'}},
            tempest.compared(ours, stock))

    def test_two_runs_of_which_none_passed(self):
        skipped = run(**{'setUpClass (C)': ('skipped',)})
        self.assertFalse(tempest.compared(skipped, skipped)['any_passed'])

    def test_spared(self):
        before = run(**{'A.a': ('passed',), 'B.a': ('passed',),
                        'B.b': ('failed',)})
        killed = run(**{'A.a': ('failed', 0.0, 10.0, 'worker-0', 'Boom'),
                        'B.a': ('failed', 10.0, 20.0, 'worker-0', 'Bang'),
                        'B.b': ('failed', 20.0, 30.0, 'worker-0')})
        self.assertEqual(
            {'in_flight': ['A'], 'in_flight_failed': {'A.a': 'Boom'},
             'lost': {'B.a': 'Bang'}},
            tempest.spared(before, killed, 5.0, 9.0))


class ExperimentTestCase(base.BaseTestCase):

    def rounds(self, **found):
        """Return the figures of an experiment whose rounds found that."""
        of_compute = {label: run(**{'A.a': ('passed',), 'A.b': ('passed',)})
                      for label in ('ours', 'killed', 'stock')}
        of_ironic = {label: run(**{'I.a': ('passed',)})
                     for label in ('ours-ironic', 'stock-ironic')}
        found = of_compute | of_ironic | found
        suite_ = mock.Mock(clear=lambda: 0)
        suite_.run = lambda label, names, meanwhile: found[label]
        bench = mock.MagicMock()
        bench.recorder.now.return_value = 0
        with mock.patch.object(suite, 'Suite', return_value=suite_):
            return tempest.run(bench, None, 4)

    def test_tests_of_ironic_do_not_run_again_while_a_compute_dies(self):
        self.assertEqual({}, self.rounds()['lost'])

    def test_tests_of_ironic_are_compared(self):
        figures = self.rounds(**{
            'ours-ironic': run(**{'I.a': ('failed', 0.0, 1.0, 'w', 'Boom')})})
        self.assertEqual({'I.a': 'Boom'}, figures['only_ours'])


class DeathTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.bench = mock.Mock()
        self.bench.computes.names.return_value = list(views.HOSTS)
        self.bench.recorder.view = views.consistent()
        self.bench.clock.side_effect = [100.0, 112.5]

    def test_not_before_its_time(self):
        death = tempest.Death(self.bench, 5)
        death(4)
        self.assertIsNone(death.name)
        death.undo()
        self.assertFalse(self.bench.kill.called)
        self.assertFalse(self.bench.computes.start.called)

    def test_once(self):
        death = tempest.Death(self.bench, 5)
        for done in (5, 6, 7):
            death(done)
        self.bench.kill.assert_called_once_with(death.name)
        self.bench.computes.fence.assert_called_once_with(death.name)
        self.assertEqual((100.0, 112.5, 12.5),
                         (death.begin, death.end, death.seconds))
        death.undo()
        self.bench.computes.start.assert_called_once_with(death.name)

    def test_waits_until_nothing_is_left(self):
        death = tempest.Death(self.bench, 5)
        death(5)
        gone = self.bench.recorder.wait_for.call_args.args[0]
        seen = views.consistent()
        # It has the node of the server, and another one.
        self.assertEqual('compute-1', death.name)
        self.assertFalse(gone(seen))
        for index in (0, 3):
            seen = views.changed(seen, 'records', index, host='compute-2')
        self.assertFalse(gone(seen))
        seen = views.changed(seen, 'instances', 0, host='compute-2')
        self.assertTrue(gone(seen))

    def test_a_node_that_ironic_has_no_more_keeps_its_record(self):
        death = tempest.Death(self.bench, 5)
        death(5)
        gone = self.bench.recorder.wait_for.call_args.args[0]
        seen = views.changed(views.consistent(), 'instances', 0,
                             host='compute-2')
        for index in (3, 0):
            self.assertFalse(gone(seen))
            seen = views.without(seen, 'nodes', index)
        self.assertTrue(gone(seen))
