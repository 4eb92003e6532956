# SPDX-License-Identifier: Apache-2.0

import contextlib
import fnmatch
import io
import json
import pathlib
import queue
import re
import subprocess
import sys
import threading
import tomllib
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit import tools

STESTR = """\
======
Totals
======
Ran: 5 tests in 3.5706 sec.
 - Passed: 3
 - Skipped: 0
 - Expected Fail: 0
 - Unexpected Success: 1
 - Failed: 1
""".splitlines()

HOOKS = """\
ruff.....................................................................Passed
codespell................................................................Failed
reno.................................................(no files to check)Skipped
""".splitlines()


class CountTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')

    def test_stestr(self):
        self.assertEqual((3, 2), self.test.count(STESTR, 1))

    def test_several_runs_add_up(self):
        self.assertEqual((6, 4), self.test.count(STESTR + STESTR, 1))

    def test_hooks(self):
        self.assertEqual((1, 1), self.test.count(HOOKS, 1))

    def test_comparison(self):
        self.assertEqual((17, 3), self.test.count(
            ["17 of 20 failures are stock's and not ours."], 1))

    def test_platforms(self):
        self.assertEqual((30, 1), self.test.count(
            ['    31 passed, 0 failed', '30 passed, 1 failed'], 1))

    def test_a_crash_without_a_failed_test_counts_as_one(self):
        self.assertEqual((0, 1), self.test.count(['Segmentation fault'], 139))

    def test_nothing_ran(self):
        self.assertEqual((0, 0), self.test.count([], 0))


class PlanTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')

    def test_each_nova_is_installed_once(self):
        places = [job.place for job in self.test.plan(
            ('unit', 'loading'), ('34', '31'))]
        self.assertEqual(['nova34', 'nova34', 'nova31', 'nova31'], places)

    def test_the_comparison_runs_where_the_functional_tests_run(self):
        functional, compare = self.test.plan(('functional', 'compare'), ())
        self.assertEqual(functional.place, compare.place)

    def test_functional_tests_run_with_each_nova(self):
        envs = [job.env for job in self.test.plan(
            ('functional',), ('34', '31'))]
        self.assertEqual(['functional', 'functional-nova31'], envs)

    def test_each_part_has_jobs(self):
        for parts in (self.test.PARTS, self.test.EXTRA):
            jobs = self.test.plan(parts, self.test.NOVAS)
            self.assertEqual(set(parts), {job.part for job in jobs})

    def test_arguments_take_the_place_of_those_in_tox_ini(self):
        job = self.test.Job('unit', 'py3-nova34', 'nova34')
        self.assertNotIn('--', job.command)
        job = self.test.Job('lab', 'lab', 'lab', arguments=('one', 'two'))
        self.assertEqual(['--', 'one', 'two'], job.command[-3:])

    def test_the_longest_are_first(self):
        jobs = self.test.plan(self.test.PARTS, self.test.NOVAS)
        self.assertEqual(['lab', 'functional'], [job.env for job in jobs[:2]])


class ChooseTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')

    def choose(self, *what):
        """Return {environment: arguments}."""
        return {job.env: job.arguments
                for job in self.test.choose(what, self.test.NOVAS)}

    def refused(self, *what):
        error = self.assertRaises(
            self.test.SetupError, self.test.choose, what, self.test.NOVAS)
        return str(error)

    def test_all_has_each_part_whole(self):
        jobs = self.test.choose(['all'], self.test.NOVAS)
        self.assertEqual(set(self.test.PARTS), {job.part for job in jobs})
        self.assertEqual({()}, {job.arguments for job in jobs})

    def test_the_gate_is_a_part_of_all(self):
        gate = self.choose()
        self.assertLess(gate.keys(), self.choose('all').keys())
        self.assertEqual([self.test.LAB, 'functional', 'functional-nova31'], [
            env for env, arguments in gate.items() if arguments])

    def test_unit_tests_run_with_each_nova_in_the_gate(self):
        self.assertLess({f'py3-nova{nova}' for nova in self.test.NOVAS},
                        self.choose().keys())

    def test_part_that_does_not_exist(self):
        self.assertIn('simulation', self.refused('simulatoin'))
        self.assertIn('alone', self.refused('all', 'unit'))

    def test_for_nothing(self):
        self.assertIn('git diff', self.refused('for'))

    def test_for_a_file(self):
        chosen = self.choose('for', 'nova_ironic_multihost/rules/ring.py')
        self.assertEqual((), chosen['simulation'])
        self.assertEqual((), chosen['pep8'])
        self.assertIn('rules', chosen['py3-nova34'][0])
        self.assertNotIn('py3-nova31', chosen)

    def test_for_several_files(self):
        one, other = (
            self.choose('for', path) for path in
            ('nova_ironic_multihost/rules/ring.py', 'lab/boot.py'))
        both = self.choose('for', 'nova_ironic_multihost/rules/ring.py',
                           'lab/boot.py')
        self.assertEqual({*one['py3-nova34'], *other['py3-nova34']},
                         set(both['py3-nova34']))
        # All of it is more than a part.
        self.assertNotEqual((), one['lab'])
        self.assertEqual((), both['lab'])

    def test_the_longest_name_counts(self):
        self.assertEqual(
            {'py3-nova34', 'pep8'},
            self.choose('for', 'lab/tests/unit/test_cli.py').keys())

    def test_for_a_directory(self):
        chosen = self.choose('for', 'nova_ironic_multihost/tests/')
        self.assertLessEqual(
            {'upstream-nova31', 'loading-nova31', 'fencing'}, chosen.keys())
        self.assertLessEqual(
            self.choose('all').keys(), self.choose('for', '.').keys())

    def test_what_takes_long_is_run_only_if_it_is_named(self):
        self.assertNotIn(
            'nightly', self.choose('for', 'nova_ironic_multihost/driver.py'))
        self.assertIn('long', self.choose('for', 'lab/tests/long/new.py'))

    def test_for_what_is_nowhere(self):
        self.assertIn('rooms.toml', self.refused('for', 'no/such/place'))


class RoomsTestCase(base.BaseTestCase):
    """The table of rooms and their tests."""

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')
        self.rooms = tomllib.loads(self.test.ROOMS.read_text())['room']

    def test_each_file_belongs_to_one(self):
        files = subprocess.run(
            ['git', 'ls-files'], cwd=self.test.ROOT, text=True, check=True,
            capture_output=True).stdout.splitlines()
        self.assertGreater(len(files), 500)
        for path in files:
            self.test.tests_of(path)

    def test_each_path_is_there_and_once(self):
        paths = [path for room in self.rooms for path in room['paths']]
        self.assertEqual(sorted(set(paths)), sorted(paths))
        for path in paths:
            self.assertTrue((self.test.ROOT / path).exists(), path)

    def test_each_environment_and_each_test_is_there(self):
        envs = [job.env for job in self.test.plan(
            self.test.PARTS + self.test.EXTRA, self.test.NOVAS)]
        modules = [
            '.'.join(path.relative_to(self.test.ROOT).with_suffix('').parts)
            + '.' for top in ('lab', 'nova_ironic_multihost')
            for path in (self.test.ROOT / top).rglob('test_*.py')]
        for room in self.rooms:
            for pattern, arguments in room['tests'].items():
                self.assertNotEqual(
                    [], fnmatch.filter(envs, pattern), pattern)
                for argument in arguments:
                    self.assertTrue(any(
                        re.search(argument, name) for name in modules),
                        argument)


class PythonsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')

    def test_each_nova_has_its_own(self):
        self.assertEqual(
            ['Python: nova31 on 3.11, nova33 on 3.12'],
            self.test.pythons({
                'nova33': {'base_python': ['python3.12', 'python3.11'],
                           'py_dot_ver': '3.12'},
                'nova31': {'base_python': ['python3.11'],
                           'py_dot_ver': '3.11'}}))

    def test_what_is_missing_is_told_with_what_is_used_instead(self):
        self.assertEqual(
            ['Python: nova33 on 3.11, nova34 on 3.13',
             'Python 3.12 not found: nova33 runs on 3.11'],
            self.test.pythons({
                'nova33': {'base_python': ['python3.12', 'python3.11'],
                           'py_dot_ver': '3.11'},
                'nova34': {'base_python': ['python3.13', 'python3'],
                           'py_dot_ver': '3.13'}}))

    def tell(self, *parts, status=0):
        """Ask a tox of ours.

        :returns: (the environments that it was asked for, what was printed)
        """
        self.useFixture(fixtures.MockPatchObject(
            self.test, 'LOGS', pathlib.Path(
                self.useFixture(fixtures.TempDir()).path)))
        asked = []

        def run(command, log, echo):
            asked.extend(command[command.index('-e') + 1].split(','))
            pathlib.Path(command[command.index('-o') + 1]).write_text(
                json.dumps({'env': {env: {'base_python': ['python3.12'],
                                          'py_dot_ver': '3.11'}
                                    for env in asked}}))
            return status, []

        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.test.tell_pythons(
                self.test.plan(parts, ('34', '31')), mock.Mock(run=run))
        return asked, out.getvalue()

    def test_tox_is_asked_once_for_each_nova(self):
        asked, printed = self.tell('unit', 'upstream', 'newest')
        self.assertEqual(['newest-nova34', 'upstream-nova31',
                          'upstream-nova34'], sorted(asked))
        self.assertIn('=== Python 3.12 not found: nova31 runs on 3.11\n',
                      printed)

    def test_nobody_is_asked_where_no_nova_runs(self):
        self.assertEqual(([], ''), self.tell('pep8', 'lab'))

    def test_tox_cannot_tell(self):
        self.assertRaises(self.test.SetupError, self.tell, 'unit', status=1)


class PyenvTestCase(base.BaseTestCase):
    """toxfile.py shows tox what pyenv has."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.EnvironmentVariable(
            'PYENV_ROOT', str(self.root)))
        # tox is not in the environments of the tests.
        plugin = mock.Mock(impl=lambda function: function)
        with mock.patch.dict(sys.modules, {
                'tox': mock.Mock(), 'tox.plugin': plugin}):
            self.toxfile = tools.load('../toxfile.py')

    def make(self, *names):
        for name in names:
            programs = self.root / 'versions' / name / 'bin'
            programs.mkdir(parents=True)
            (programs / 'python').touch()

    def test_latest_first_and_no_older_ones(self):
        self.make('3.9.18', '3.11.7', '3.13.0', '3.13.11', '3.13.2', '2.7.18',
                  'pypy3.11-7.3.20', 'some-venv')
        self.assertEqual(
            [f'{self.root}/versions/{name}/bin/python'
             for name in ('3.13.11', '3.13.2', '3.13.0', '3.11.7')],
            self.toxfile.interpreters())

    def test_the_python_of_tox_comes_first(self):
        self.make('3.12.1')
        state = mock.Mock()
        state.conf.options.discover = ['asked for']
        self.toxfile.tox_add_core_config(None, state)
        self.assertEqual(
            ['asked for', sys.executable,
             f'{self.root}/versions/3.12.1/bin/python'],
            state.conf.options.discover)

    def test_without_pyenv(self):
        self.assertEqual([], self.toxfile.interpreters())


class DurationsTestCase(base.BaseTestCase):

    def test_stestr_and_the_comparison(self):
        self.assertEqual(
            ((8.75, 'tests.Case.test_one'), (0.5, 'tests.Case.test_two(a b)'),
             (12.0, 'stock queued')),
            tools.load('test').durations([
                '{0} tests.Case.test_one [8.750000s] ... ok',
                'Captured stderr: ... ok',
                '{1} tests.Case.test_two(a b) [0.500000s] ... FAILED',
                '  3/20 stock queued           12 s  failure shown']))


class FakeInstaller:
    """Has installed at once what is not said to be broken."""

    def __init__(self, *places, broken=()):
        self.places = places
        self.broken = broken

    def start(self, report):
        for place in self.places:
            report(place, None)
        for place, log in self.broken:
            report(place, log)


class FakeProcesses:
    """Runs nothing, but notes what runs at the same time.

    :ivar most: how many commands ran at most at a time.
    :ivar workers: environment of tox -> processes that it may use.
    """

    def __init__(self, together):
        """Let commands wait for each other.

        :param together: how many have to run at a time.
        """
        self.most = 0
        self.workers = {}
        self._running = 0
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(together, timeout=60)

    def run(self, command, log, echo, **variables):
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
            env = command[command.index('-e') + 1]
            self.workers[env] = int(variables['TEST_CONCURRENCY'])
        self._barrier.wait()
        with self._lock:
            self._running -= 1
        return 0, STESTR[:4] + [f'{{0}} {env} [1.0s] ... ok', ' - Passed: 1']


class SchedulerTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('LOGS', 'STESTR'):
            self.useFixture(fixtures.MockPatchObject(
                self.test, name, directory / name))

    def schedule(self, jobs, slots, together=1, **installer):
        """Run jobs; return (outcomes, the processes, what was printed)."""
        processes = FakeProcesses(together)
        places = {job.place for job in jobs} - {
            place for place, _ in installer.get('broken', ())}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            outcomes = self.test.Scheduler(jobs, processes, slots).run(
                FakeInstaller(*places, **installer))
        return outcomes, processes, out.getvalue()

    def jobs(self, *slots):
        return [self.test.Job('unit', f'env{number}', 'place', need)
                for number, need in enumerate(slots)]

    def test_jobs_run_side_by_side_and_are_reported_in_order(self):
        jobs = self.jobs(1, 1, 1, 1)
        outcomes, processes, _ = self.schedule(jobs, 2, together=2)
        self.assertEqual(jobs, [outcome.job for outcome in outcomes])
        self.assertEqual([1] * 4, [outcome.passed for outcome in outcomes])
        self.assertEqual(2, processes.most)

    def test_job_that_needs_more_than_there_is_runs_alone(self):
        outcomes, processes, _ = self.schedule(self.jobs(3, 3), 2)
        self.assertEqual(2, len(outcomes))
        self.assertEqual(1, processes.most)

    def test_jobs_of_the_lab_run_one_after_the_other(self):
        jobs = self.test.plan(('lab', 'long'), ())
        _, processes, _ = self.schedule(jobs, 4)
        self.assertEqual(1, processes.most)
        self.assertEqual({'lab', 'long'}, set(processes.workers))

    def test_the_last_job_has_all_processors(self):
        _, processes, _ = self.schedule(self.jobs(1), 4)
        self.assertEqual({'env0': 4}, processes.workers)

    def test_what_cannot_be_installed_is_one_failed_test(self):
        log = self.test.fresh_log('install')
        log.write_text('No such package')
        (outcome,), processes, printed = self.schedule(
            self.jobs(1), 2, broken=[('place', log)])
        self.assertEqual((0, 1), (outcome.passed, outcome.failed))
        self.assertEqual({}, processes.workers)
        self.assertIn('No such package', printed)

    def test_what_passes_is_not_printed_unless_it_is_alone(self):
        _, _, printed = self.schedule(self.jobs(1, 1), 2)
        self.assertNotIn('Passed', printed)

    def test_what_fails_is_printed(self):
        with mock.patch.object(FakeProcesses, 'run',
                               return_value=(1, STESTR)):
            outcomes, _, printed = self.schedule(self.jobs(1, 1), 2)
        self.assertEqual([2, 2], [outcome.failed for outcome in outcomes])
        self.assertEqual(2, printed.count('\n'.join(STESTR)))


class InstallerTestCase(base.BaseTestCase):

    def install(self, *statuses):
        """Install a place; return (report, variables of each command)."""
        test = tools.load('test')
        self.useFixture(fixtures.MockPatchObject(
            test, 'LOGS', pathlib.Path(
                self.useFixture(fixtures.TempDir()).path)))
        processes = mock.Mock(**{
            'run.side_effect': [(status, []) for status in statuses]})
        reports = queue.Queue()
        with contextlib.redirect_stdout(io.StringIO()):
            test.Installer(
                [test.Job('unit', 'py3-nova34', 'nova34')], processes).start(
                    lambda *args: reports.put(args))
            report = reports.get(timeout=60)
        return report, ['TOX_INSTALLER' in call.kwargs
                        for call in processes.run.call_args_list]

    def test_with_uv(self):
        self.assertEqual((('nova34', None), [True]), self.install(0))

    def test_with_pip_where_uv_fails(self):
        self.assertEqual((('nova34', None), [True, False]),
                         self.install(1, 0))

    def test_neither_works(self):
        (place, log), _ = self.install(1, 1)
        self.assertEqual('nova34', place)
        self.assertTrue(log.exists())


class PromtoolTestCase(base.BaseTestCase):

    def provide(self, apt='exit 1'):
        """Fetch promtool with an apt-get of ours.

        :param apt: what apt-get does, in the shell
        :returns: (what is returned, commands of apt-get, what was printed)
        """
        test = tools.load('test')
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, path in (('LOGS', 'logs'), ('PROMETHEUS', 'prometheus'),
                           ('PROMTOOL', 'prometheus/usr/bin/promtool')):
            self.useFixture(fixtures.MockPatchObject(test, name, top / path))
        programs = top / 'bin'
        programs.mkdir()
        for name, script in (
                ('apt-get', f'echo $1 >> {top}/asked\n{apt}'),
                ('dpkg-deb', 'mkdir -p usr/bin; cp $2 usr/bin/promtool')):
            (programs / name).write_text(f'#!/bin/sh\n{script}\n')
            (programs / name).chmod(0o755)
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', f'{programs}:/usr/bin:/bin'))
        self.useFixture(fixtures.MockPatch(
            'shutil.which', return_value=None))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            path = pathlib.Path(test.provide_promtool(test.Processes()))
            # A second time there is nothing to do.
            again = pathlib.Path(test.provide_promtool(test.Processes()))
        self.assertEqual(path, again)
        return path, (top / 'asked').read_text().split(), out.getvalue()

    def test_is_fetched_once(self):
        path, asked, _ = self.provide(apt='echo it > $2_1.deb')
        self.assertEqual('it\n', path.read_text())
        self.assertEqual(['download'], asked)

    def test_debian_12_has_it_in_prometheus(self):
        path, asked, _ = self.provide(apt="""
case $* in
'download prometheus') echo it > $2_1.deb;;
'download promtool') exit 100;;
esac""")
        self.assertEqual('it\n', path.read_text())
        self.assertEqual(['download', 'update', 'download', 'download'], asked)

    def test_lists_of_packages_are_updated_if_need_be(self):
        path, asked, _ = self.provide(apt="""
cd $(dirname $0)
case $1 in
download) test -e updated && echo it > "$OLDPWD/$2_1.deb";;
update) touch updated;;
esac""")
        self.assertEqual('it\n', path.read_text())
        self.assertEqual(['download', 'update', 'download'], asked)

    def test_that_it_cannot_be_had_is_said(self):
        path, _, printed = self.provide()
        self.assertFalse(path.exists())
        self.assertIn('cannot fetch promtool', printed)

    def test_agents_are_unpacked_once(self):
        test = tools.load('test')
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(test, 'LOGS', top / 'logs'))
        self.useFixture(fixtures.MockPatchObject(
            test, 'AGENTS', top / 'agents'))
        processes = mock.Mock()
        processes.run.side_effect = lambda command, *_, **__: (
            pathlib.Path(command[2]).mkdir(), [])
        with contextlib.redirect_stdout(io.StringIO()):
            for _ in range(2):
                self.assertEqual(str(top / 'agents'),
                                 test.provide_agents(processes))
        processes.run.assert_called_once()
        self.assertEqual(
            [str(test.FETCH_DEBIAN), 'fence-agents', str(top / 'agents')],
            processes.run.call_args.args[0])

    def test_the_one_of_the_machine(self):
        test = tools.load('test')
        with mock.patch('shutil.which', return_value='/x/promtool'):
            self.assertEqual('/x/promtool', test.provide_promtool(None))


class ProgramsTestCase(base.BaseTestCase):

    def provide(self, missing=(), user=0, status=0):
        """Have programs installed.

        :returns: (what was called, what was printed)
        """
        test = tools.load('test')
        processes = mock.Mock()
        processes.run.return_value = status, []
        self.useFixture(fixtures.MockPatchObject(
            test, 'LOGS', pathlib.Path(
                self.useFixture(fixtures.TempDir()).path)))
        with (mock.patch('shutil.which', lambda name: name not in missing),
              mock.patch('os.geteuid', return_value=user),
              contextlib.redirect_stdout(io.StringIO()) as out):
            test.provide_programs(processes)
        return [' '.join(call.args[0]) for call
                in processes.run.call_args_list], out.getvalue()

    def test_what_is_there(self):
        self.assertEqual(([], ''), self.provide())

    def test_what_is_missing(self):
        called, _ = self.provide(['ss', 'systemd-analyze'])
        self.assertEqual(
            ['apt-get update', 'apt-get install --yes '
             '--no-install-recommends iproute2 systemd'], called)

    def test_what_cannot_be_had_is_said(self):
        _, printed = self.provide(['ss'], status=100)
        self.assertIn('cannot install', printed)
        for how in {'user': 1000}, {'missing': ['ss', 'apt-get']}:
            called, printed = self.provide(**{'missing': ['ss'], **how})
            self.assertEqual([], called)
            self.assertIn('apt-get install iproute2', printed)


class DeployersTestCase(base.BaseTestCase):

    def provide(self, script):
        """Fetch kolla with a script of ours, twice.

        :returns: (what is returned, how often it ran, what was printed)
        """
        test = tools.load('test')
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        fetch = top / 'fetch'
        fetch.write_text(f'#!/bin/sh\necho >> {top}/ran\n{script}\n')
        fetch.chmod(0o755)
        for name, path in (('LOGS', top / 'logs'), ('FETCH_DEPLOYERS', fetch),
                           ('DEPLOYERS', top / 'deployers')):
            self.useFixture(fixtures.MockPatchObject(test, name, path))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            paths = {test.provide_deployers(test.Processes())
                     for _ in range(2)}
        self.assertEqual({str(top / 'deployers')}, paths)
        return (top / 'deployers', len((top / 'ran').read_text()),
                out.getvalue())

    def test_they_are_fetched_once_by_the_pip_of_tox(self):
        path, ran, _ = self.provide('mkdir $1; echo $PYTHON > $1/python')
        self.assertEqual(1, ran)
        self.assertIn('.tools/tox/bin/python', (path / 'python').read_text())

    def test_that_they_cannot_be_had_is_said(self):
        path, ran, printed = self.provide('exit 1')
        self.assertFalse(path.exists())
        self.assertEqual(2, ran)
        self.assertIn('cannot fetch kolla', printed)


class ReportTestCase(base.BaseTestCase):

    def report(self, *counts, tests=()):
        test = tools.load('test')
        job = test.Job('unit', 'py3-nova34', 'nova34')
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = test.report(
                [test.Outcome(job, passed, failed, 1.0, tests)
                 for passed, failed in counts], 2.0)
        return status, out.getvalue().splitlines()

    def test_the_last_line_sums_up(self):
        for failed, status in ((0, 0), (1, 1)):
            reported, lines = self.report((3, failed), (4, 0))
            self.assertEqual(status, reported)
            self.assertEqual(f'7 passed, {failed} failed', lines[-1])

    def test_the_slowest_tests(self):
        _, lines = self.report((9, 0), tests=[
            (float(seconds), f'test_{seconds}') for seconds in range(20)])
        listed = [line.split() for line in lines if ' test_' in line]
        self.assertEqual(
            [[f'{seconds}.0', 's', 'py3-nova34', f'test_{seconds}']
             for seconds in range(19, 4, -1)], listed)
