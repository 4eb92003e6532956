# SPDX-License-Identifier: Apache-2.0

"""Faults are planted in a lab one after the other: which alerts fire?

Those of etc/prometheus, whose minutes are seconds here. Each one fires for
its fault, and with it nothing but what follows from that. Meanwhile the
commands for operators tell what is planted.
"""

import os
import signal
import time

from lab import configuration
from lab import processes
from lab.tests.stack import operating

#: An alert that waits for a minute waits for a second. Much faster, and it
#: fires before compute services that have just started see each other.
FASTER = 60

#: More than service_down_time, so that everybody seems to be down.
AHEAD = 90

#: No instance can be taken over: the database says no.
REFUSAL = """
CREATE TRIGGER nova_cell1.refusal BEFORE UPDATE ON nova_cell1.instances
FOR EACH ROW BEGIN IF NOT (NEW.host <=> OLD.host) THEN
SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'planted'; END IF; END"""


class AlertsTestCase(operating.OperatingTestCase):

    def setUp(self):
        super().setUp()
        self.come_up('--set', 'DEFAULT.rpc_response_timeout=5')
        self.lab('monitor', '--faster', str(FASTER))
        self.processes = processes.Processes(self.place.run, self.place.logs)
        self.addCleanup(self.lab, 'down')
        self.before = set()

    def test_each_fault_is_told_of_and_no_other(self):
        self.boot()
        self.until(lambda: not self.query('ALERTS'))
        self.begin = time.time()
        self.lose_exporter_and_two_computes()
        self.see_that_they_are_down()
        self.blind_one()
        self.refuse_takeovers()
        self.lose_conductor()
        self.lose_ironic()

    def lose_exporter_and_two_computes(self):
        self.processes.kill(['exporter'])
        for host in self.dead, self.blind:
            self.lab('compute', 'kill', host)
        # Nobody is at work on it, so it stays.
        self.sql("UPDATE nova_cell1.instances SET task_state = 'rebooting', "
                 'updated_at = UTC_TIMESTAMP() - INTERVAL 2 HOUR '
                 f"WHERE uuid = '{self.server}'")
        self.tells(('SurveyFailing', ''))

    def see_that_they_are_down(self):
        self.lab('monitor', '--faster', str(FASTER))
        self.tells(('ComputeDown', self.dead), ('ComputeDown', self.blind),
                   # Two of three are down, so the third takes nothing.
                   passing={('FindingsPersist', 'stuck'), ('MovesLate', ''),
                            *self.not_scraped(self.dead, self.blind)})
        self.assertEqual({self.dead, self.blind}, self.hosts('down'))
        # Held for a server that there never was.
        self.leaked = self.sql(
            'SELECT hypervisor_hostname FROM nova_cell1.compute_nodes '
            f"WHERE deleted = 0 AND host = '{self.takeover_target}' "
            'AND NOT EXISTS (SELECT 1 FROM nova_cell1.instances '
            'WHERE node = hypervisor_hostname) LIMIT 1')
        self.sql('UPDATE ironic.nodes SET instance_uuid = UUID(), '
                 'updated_at = UTC_TIMESTAMP() '
                 f"WHERE uuid = '{self.leaked}'")

    def blind_one(self):
        """One comes back, with a wrong clock, and Ironic shows it nothing."""
        self.let_nova_see(False)
        self.lab('compute', 'start', self.blind, '--ahead', str(AHEAD))
        self.assertLessEqual(
            {'instance-on-dead-host', 'stuck', 'leaked-machine'},
            {found['Kind'] for found in self.listed('check', status=1)})
        [leak] = self.listed('leaks')
        self.assertEqual((self.leaked, self.takeover_target),
                         (leak['Node'], leak['Owner']))
        self.assertIn('unset --instance-uuid', leak['Next'])
        self.tells(('ComputeDown', self.dead), ('FindingsPersist', 'stuck'),
                   ('BrakeEngaged', self.blind), ('MembersDiffer', ''),
                   *self.not_scraped(self.dead),
                   passing={('ComputeDown', self.blind), ('MovesLate', ''),
                            ('LeakedMachines', 'leaked-machine'),
                            *self.not_scraped(self.blind)})
        self.assertIn('Brake of vanished nodes: engaged',
                      self.report(self.blind))
        self.let_nova_see(True)

    def refuse_takeovers(self):
        """Two are fenced, and nobody can take their servers."""
        self.sql("UPDATE nova_cell1.instances SET task_state = NULL "
                 f"WHERE uuid = '{self.server}'")
        self.sql(REFUSAL)
        for host in self.dead, self.blind:
            self.lab('compute', 'fence', host)
        self.assertEqual(({self.dead}, {self.blind}), (
            self.hosts('fenced'), self.hosts('fenced, alive')))
        shown = self.shown('node', 'show', self.node)
        self.assertEqual((self.dead, 'used', self.server), tuple(
            shown[name] for name in ('owner', 'state', 'server')))
        self.assertIn(f'{self.takeover_target} takes it', shown['next'])
        self.assertIn(
            (self.dead, None),
            {(row['From'], row['To']) for row
             in self.listed('plan', '--remove', self.takeover_target)})
        self.tells(('ServersNotTakenOver', self.dead),
                   ('ServersNotTakenOver', self.blind),
                   ('FencedComputeRuns', self.blind),
                   ('MovesFailing', self.takeover_target),
                   # nova shows when it was fenced as a sign of life, and that
                   # is longer than the seconds that are minutes here.
                   passing={('FencedComputeRuns', self.dead),
                            ('MembersDiffer', ''), ('MovesLate', ''),
                            ('TakeoverPending', self.takeover_target),
                            ('LeakedMachines', 'leaked-machine')})

    def lose_conductor(self):
        self.lab('service', 'kill', 'nova-conductor')
        self.tells(
            *self.without_a_conductor(),
            ('AuditsStale', self.takeover_target), ('AuditsStale', self.blind),
            passing={('FencedComputeRuns', self.blind),
                     ('MovesFailing', self.takeover_target)})

    def lose_ironic(self):
        self.lab('service', 'kill', 'ironic')
        self.tells(
            *self.without_a_conductor(),
            ('ListingStale', self.takeover_target),
            ('ListingStale', self.blind),
            ('SurveyFailing', ''),
            passing={
                ('AuditsStale', self.takeover_target),
                ('AuditsStale', self.blind),
            },
        )

    def boot(self):
        """Have a server on each of two compute services, or all three."""
        servers = {}
        while len(servers) < 2:
            for server in self.lab('boot', '--count', '2', '--json').answer:
                servers[server['host']] = server
        self.dead, self.blind, *others = sorted(servers)
        self.server = servers[self.dead]['id']
        self.node = servers[self.dead]['node']
        self.takeover_target, = {'compute-1', 'compute-2', 'compute-3'} - {
            self.dead, self.blind}
        self.heir_is_down = [('ComputeDown', host) for host in others]

    def tells(self, *expected, passing=frozenset()):
        """Wait until these alerts fire; no other may do so.

        :param expected: (name, what it is about)
        :param passing: those that may for some time, or soon
        """
        expected = set(expected)
        try:
            self.until(lambda: expected <= self.firing(),
                       lambda: f'{expected - self.firing()} are not told of')
            now = time.time()
            fired = self.firing(f'[{now - self.begin + 1:.0f}s]')
            self.assertLessEqual(fired, self.before | expected | passing)
        except AssertionError:
            self.keep_logs()
            raise
        self.begin, self.before = now, self.firing()

    def firing(self, span=''):
        """{(name, what it is about)} of the alerts that fire.

        :param span: or have fired at any time since, as a range
        """
        alerts = 'ALERTS{alertstate="firing"}'
        found = self.query(
            f'max_over_time({alerts}{span})' if span else alerts)
        return {(labels['alertname'].removeprefix('IronicMultihost'),
                 labels.get('host') or labels.get('kind', ''))
                for labels in (one['metric'] for one in found)}

    def hosts(self, state):
        """The compute services in a state."""
        return {row['Host'] for row in self.rows() if row['State'] == state}

    def without_a_conductor(self):
        """What is told for as long as there is none."""
        return [
            ('ServersNotTakenOver', self.dead),
            ('ServersNotTakenOver', self.blind),
            ('TakeoverPending', self.takeover_target),
            ('NobodyLeft', ''),
            ('LeakedMachines', 'leaked-machine'),
            ('PeerPollsFailing', self.takeover_target),
            ('PeerPollsFailing', self.blind),
            ('FindingsPersist', 'record-on-dead-host'),
            *self.heir_is_down,
        ]

    @staticmethod
    def not_scraped(*hosts):
        """What is told, later, of those that are down."""
        return {('NotScraped', host) for host in hosts}

    def report(self, host):
        """What a nova-compute says of itself when it is asked."""
        os.kill(self.processes.pid(host), signal.SIGUSR2)
        log = self.processes.log(host)
        self.until(lambda: 'Since the process began' in log.read_text(),
                   lambda: f'There is no report in {log}.')
        return log.read_text().rpartition('Ironic multi-host')[2]

    def let_nova_see(self, nodes):
        configuration.write(self.place.conf,
                            configuration.ironic_policy(nodes))
