# SPDX-License-Identifier: Apache-2.0

"""What is seen of a compute service, for people."""

from oslotest import base

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.telemetry import report
from nova_ironic_multihost.tests.unit.telemetry import pictures


class ReportTestCase(base.BaseTestCase):

    def lines(self, *args, **fields):
        return report.text(pictures.of(*args, **fields)).splitlines()

    def after(self, heading, lines):
        """Return what is indented below a line."""
        found = []
        for line in lines[lines.index(heading) + 1:]:
            if not line.startswith('  '):
                break
            found.append(line.strip())
        return found

    def test_who_it_is_and_how_it_goes(self):
        lines = self.lines(verdict=health.HealthState(False, 'It hangs: why.'))
        self.assertEqual(['Compute service: Me', 'Health: It hangs: why.'],
                         lines[:2])

    def test_what_is_not_known_yet(self):
        lines = self.lines()
        self.assertIn('Members: not known yet', lines)
        self.assertIn('Nodes: not known yet', lines)
        self.assertIn('an audit of all nodes: not done yet',
                      self.after('Work:', lines))

    def test_members(self):
        lines = self.lines(view=pictures.VIEW)
        self.assertEqual(['Me', 'You'], self.after('Members: 2', lines))

    def test_nodes_and_what_is_in_transition(self):
        lines = self.lines(reasons={
            'n1': Reason.KEPT, 'n2': Reason.QUEUED, 'n3': Reason.QUEUED})
        self.assertEqual(
            [f'1 {Reason.KEPT.value}', f'2 {Reason.QUEUED.value}'],
            self.after('Nodes: 3', lines))
        self.assertEqual([f'{Reason.QUEUED.value}: for example n2'],
                         self.after('In transition:', lines))
        lines = self.lines(reasons={'n1': Reason.KEPT})
        self.assertEqual(['nothing'], self.after('In transition:', lines))

    def test_brake(self):
        self.assertIn('Brake of vanished nodes: not engaged',
                      self.lines(reasons={}))
        self.assertIn('Brake of vanished nodes: engaged, 7 are missing',
                      self.lines(reasons={}, braked=True, missing=7))

    def test_pending_the_oldest_first_and_not_all(self):
        some = counters.Counters().with_pending(
            Pending.REST, {f'i{i:02}' for i in range(30)}, 99)
        some = some.with_pending(Pending.TURN, {'n1'}, 70)
        lines = self.lines(some)
        self.assertEqual(
            ['n1, for 30 s'], self.after(
                'Nodes with instances that wait to be taken over: 1', lines))
        shown = self.after(
            'Instances with an interrupted operation: 30', lines)
        self.assertEqual(report.SHOWN, len(shown))
        self.assertEqual('i00, for 1 s', shown[0])

    def test_work(self):
        some = counters.Counters().with_turns(
            Work.AUDIT, RunStats(95, 80, 80, 7)).with_turns(
                Work.PEER_POLL, RunStats(sign=60)).asked(1, 88)
        lines = self.after('Work:', self.lines(some))
        self.assertIn('an audit of all nodes: done 20.0 s ago, took 7.0 s, '
                      'last sign of it 5.0 s ago', lines)
        self.assertIn('a peer poll: not done yet, last sign of it 40.0 s ago',
                      lines)
        self.assertIn('a request to Ironic has been under way for 12.0 s',
                      lines)

    def test_events(self):
        lines = self.lines(counters.Counters().counted(Event.PULLED, 3))
        self.assertIn(f'3 times {Event.PULLED.value}',
                      self.after('Since the process began:', lines))
