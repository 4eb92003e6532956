# SPDX-License-Identifier: Apache-2.0

"""What tools/failover makes of a cloud that it watches."""

import contextlib
import io
import json
import sys

import fixtures
from oslotest import base

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.tests.unit import tools
from nova_ironic_multihost.tests import views

failover = tools.load('failover')

#: Seconds from a stop until nova calls the host down, from there until the
#: others take its nodes, and from a start until it is up and takes some back.
NOTICED, TAKEN, UP, BACK = 8, 14, 3, 25


def moved(seen, node, host):
    return views.changed(seen, 'records', node, host=host)


class World:
    """A cloud of which compute-2 is stopped and started.

    :ivar log: what was run
    :ivar breaks: {moment: function that changes what is seen}; moments are
        'before', 'stopped' and 'started'
    """

    def __init__(self):
        self.now = views.NOW
        self.log = []
        self.stopped = self.started = None
        self.breaks = {}
        self.errors = {}

    def run(self, command):
        self.now += 5
        self.log.append(command)
        if command in self.errors:
            raise self.errors[command]
        if command == 'stop':
            self.stopped = self.now
        elif command == 'start':
            # What the command itself takes counts for the start.
            self.started = self.now - 5

    def sleep(self, seconds):
        self.now += seconds

    def read(self):
        phase = ('before' if self.stopped is None else
                 'stopped' if self.started is None else 'started')
        seen = getattr(self, f'_{phase}')()
        return self.breaks.get(phase, lambda seen: seen)(seen)

    def _before(self):
        return views.consistent()

    def _stopped(self):
        seen = views.consistent()
        if self.now >= self.stopped + NOTICED:
            seen = views.changed(seen, 'services', 1, up=False)
        if self.now >= self.stopped + TAKEN:
            seen = moved(moved(seen, 1, 'compute-1'), 4, 'compute-3')
        return seen

    def _started(self):
        seen = views.consistent()
        if self.now < self.started + UP:
            seen = views.changed(seen, 'services', 1, up=False)
        if self.now < self.started + BACK:
            seen = moved(seen, 1, 'compute-1')
        return moved(seen, 4, 'compute-3')

    # Hosts are told apart whatever the case.
    def play(self, within=60, still=30, host='Compute-2'):
        return failover.Failover(
            self.read, self.run, host, within, still,
            clock=lambda: self.now, sleep=self.sleep).play('stop', 'start')


class FailoverTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.world = World()

    def kinds(self, report):
        return {finding.kind for finding in report.findings}

    def test_as_it_must_be(self):
        report = self.world.play()
        self.assertEqual(
            failover.Report(
                'Compute-2', passed=True, free=2, taken_over=TAKEN, moves=2,
                up_again=5, at_rest=BACK, moves_back=1), report)
        self.assertEqual(['stop', 'start'], self.world.log)
        self.assertEqual(self.world.started + BACK + 30, self.world.now)

    def test_nodes_in_use_may_stay(self):
        def in_use(seen):
            seen = views.changed(seen, 'nodes', 1, instance_uuid='server-1',
                                 provision_state='active')
            seen = views.with_more(seen, 'instances', cloud_state.CloudServer(
                uuid='server-1', host='compute-2', node='node-1'))
            seen = views.with_more(seen, 'allocations',
                                   cloud_state.Allocation('server-1',
                                                          'node-1'))
            return moved(seen, 1, 'compute-2')

        self.world.breaks = dict.fromkeys(
            ['before', 'stopped', 'started'], in_use)
        report = self.world.play()
        self.assertTrue(report.passed)
        self.assertEqual((1, 1, 1), (report.free, report.used, report.moves))

    def test_nothing_is_stopped_if_something_is_wrong_before(self):
        self.world.breaks['before'] = lambda seen: views.without(
            seen, 'providers', 5)
        report = self.world.play()
        self.assertEqual((False, 'before'), (report.passed, report.failed))
        self.assertEqual({'node-without-provider'}, self.kinds(report))
        self.assertEqual([], self.world.log)

    def test_nothing_is_stopped_if_the_host_is_unknown(self):
        report = self.world.play(host='nix')
        self.assertEqual({'compute-missing'}, self.kinds(report))
        self.assertEqual([], self.world.log)

    def test_nothing_is_stopped_if_nobody_could_take_over(self):
        def alone(seen):
            seen = views.changed(seen, 'services', 0, disabled=True)
            return views.changed(seen, 'services', 2, disabled=True)

        self.world.breaks['before'] = alone
        report = self.world.play()
        self.assertEqual({'no-other-compute'}, self.kinds(report))
        self.assertEqual([], self.world.log)

    def test_gives_what_is_wrong_before_time_to_pass(self):
        self.world.breaks['before'] = lambda seen: (
            views.without(seen, 'records', 5)
            if self.world.now < views.NOW + 20 else seen)
        self.assertTrue(self.world.play().passed)

    def test_nodes_that_stay_behind(self):
        self.world.breaks['stopped'] = lambda seen: moved(
            seen, 4, 'compute-2')
        report = self.world.play(within=20)
        self.assertEqual((False, 'stopped', None, 1), (
            report.passed, report.failed, report.taken_over, report.moves))
        [finding] = report.findings
        self.assertEqual(('record-on-dead-host', 'compute-2'),
                         (finding.kind, finding.subject))
        self.assertEqual(['stop', 'start'], self.world.log)

    def test_nodes_that_move_too_late(self):
        self.assertEqual('stopped', self.world.play(within=TAKEN - 1).failed)

    def test_host_that_does_not_stop(self):
        self.world.breaks['stopped'] = lambda seen: views.changed(
            seen, 'services', 1, up=True)
        report = self.world.play()
        self.assertEqual({'compute-still-up'}, self.kinds(report))
        self.assertIn('stop command', report.findings[0].sentence)

    def test_something_else_breaks_meanwhile(self):
        self.world.breaks['stopped'] = lambda seen: views.without(
            seen, 'providers', 0)
        report = self.world.play()
        self.assertEqual(('stopped', {'node-without-provider'}),
                         (report.failed, self.kinds(report)))

    def test_host_that_does_not_return(self):
        self.world.breaks['started'] = lambda seen: views.changed(
            views.changed(seen, 'records', 1, host='compute-1'),
            'services', 1, up=False)
        report = self.world.play()
        self.assertEqual(('started', None, {'compute-not-up'}), (
            report.failed, report.up_again, self.kinds(report)))

    def test_nodes_that_never_rest(self):
        hosts = ['compute-1', 'compute-3']
        self.world.breaks['started'] = lambda seen: moved(
            seen, 1, hosts[int(self.world.now) // 10 % 2])
        report = self.world.play()
        self.assertEqual(('started', {'not-at-rest'}),
                         (report.failed, self.kinds(report)))
        self.assertGreater(report.moves_back, 3)

    def test_rest_begins_anew_with_each_finding(self):
        self.world.breaks['started'] = lambda seen: (
            views.without(seen, 'providers', 0)
            if 40 <= self.world.now - self.world.started < 45 else seen)
        report = self.world.play()
        self.assertEqual((True, 45), (report.passed, report.at_rest))

    def test_command_that_fails(self):
        for command in 'stop', 'start':
            self.world = World()
            self.world.errors[command] = failover.CommandError(command)
            error = self.assertRaises(failover.CommandError, self.world.play)
            self.assertEqual(command, str(error))
            # A command that failed may have stopped it all the same.
            self.assertEqual(['stop', 'start'], self.world.log)

    def test_starts_it_again_whatever_happens(self):
        for error in cloud_state.CloudError('down'), KeyboardInterrupt():
            self.world = World()

            def fail(seen, error=error):
                raise error

            self.world.breaks['stopped'] = fail
            self.assertRaises(type(error), self.world.play)
            self.assertEqual(['stop', 'start'], self.world.log)


class RunTestCase(base.BaseTestCase):

    def run_command(self, command):
        with open(self.useFixture(fixtures.TempDir()).join('err'),
                  'w+') as err:
            with contextlib.redirect_stderr(err):
                failover.run(command)
            err.seek(0)
            return err.read()

    def test_what_a_command_prints_goes_to_standard_error(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertIn('hello\n', self.run_command('echo hello; true'))
        self.assertEqual('', out.getvalue())

    def test_command_that_fails_is_named(self):
        error = self.assertRaises(
            failover.CommandError, self.run_command, 'exit 3')
        self.assertIn('"exit 3"', str(error))
        self.assertIn('status 3', str(error))


class MainTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.signals = self.useFixture(fixtures.MockPatch(
            'signal.signal')).mock
        self.connect = self.useFixture(fixtures.MockPatchObject(
            cloud_client, 'connect')).mock
        self.play = self.useFixture(fixtures.MockPatchObject(
            failover.Failover, 'play')).mock

    def main(self, *more):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = failover.main([
                '--host', 'compute-2', '--stop', 'stop it', '--start',
                'start it', '--within', '60', *more])
        return status, out.getvalue(), err.getvalue()

    def test_passed(self):
        self.play.return_value = failover.Report(
            'compute-2', passed=True, free=2, used=1, taken_over=14.04,
            moves=2, up_again=3, at_rest=25, moves_back=1)
        status, out, err = self.main('--os-cloud', 'a',
                                     '--os-baremetal-cloud', 'b')
        self.assertEqual((0, ''), (status, err))
        for words in ('2 nodes without and 1 node with a server', '14.0 s',
                      'in 2 moves', 'up after 3.0 s', 'rest after 25.0 s',
                      'in 1 move.'):
            self.assertIn(words, out)
        self.assertEqual('passed', out.splitlines()[-1])
        self.play.assert_called_once_with('stop it', 'start it')
        self.connect.assert_called_once_with('a', 'b')

    def test_failed(self):
        for failed in 'before', 'stopped', 'started':
            self.play.return_value = failover.Report(
                'compute-2', failed=failed, findings=(
                    findings.Finding('kind', 'whom', 'What is wrong.'),))
            status, out, _ = self.main()
            self.assertEqual(1, status)
            self.assertIn('kind: What is wrong.\n', out)
            self.assertTrue(out.splitlines()[-1].startswith('failed'))

    def test_json(self):
        self.play.return_value = failover.Report(
            'compute-2', failed='stopped', free=2, findings=(
                findings.Finding('kind', 'whom', 'What is wrong.'),))
        status, out, _ = self.main('--json')
        self.assertEqual(1, status)
        told = json.loads(out)
        self.assertEqual((False, 'stopped', 2, None), (
            told['passed'], told['failed'], told['free'],
            told['taken_over']))
        self.assertEqual('whom', told['findings'][0]['subject'])

    def test_what_cannot_be_tried(self):
        for error in (cloud_state.CloudError('Do this.'),
                      failover.CommandError('Do this.')):
            self.play.side_effect = error
            self.assertEqual((2, '', 'tools/failover: Do this.\n'),
                             self.main('--json'))

    def test_polite_kill_is_like_ctrl_c(self):
        self.play.side_effect = KeyboardInterrupt
        status, _, err = self.main()
        self.assertEqual(2, status)
        self.assertIn('interrupted', err)
        [[number, handler]] = [call[0] for call
                               in self.signals.call_args_list]
        self.assertEqual(15, number)
        self.assertRaises(KeyboardInterrupt, handler, number,
                          sys._getframe())
