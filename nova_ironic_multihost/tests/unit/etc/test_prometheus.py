# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import json
import pathlib

import fixtures
from oslotest import base
import yaml

from nova_ironic_multihost.client.commands import exporter
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.tests.unit.etc import promtool
from nova_ironic_multihost.tests.unit.etc import series

ROOT = pathlib.Path(__file__).resolve().parents[4]
RULES = ROOT / 'etc' / 'prometheus' / 'nova-ironic-multihost-rules.yaml'
DOC = ROOT / 'doc' / 'source'

CLOUD = 'nova_ironic_multihost_cloud_'
PROCESS = 'nova_ironic_multihost_'
EXPORTER = 'job="exporter", instance="one:9798"'
COMPUTE = 'job="nova-compute", instance="compute-1:9106"'
OTHER = 'job="nova-compute", instance="compute-2:9106"'
HOST = f'{EXPORTER}, host="compute-1"'
UP = f'up{{{COMPUTE}}}'

#: Minutes that are played; what is broken breaks after START.
LENGTH, START, MOMENT = 120, 30, 3

#: Something that changes by nothing for as long as it is played.
ALWAYS = '{}x120'


def oldest(operation, state):
    return (f'{CLOUD}oldest_seconds{{{EXPORTER}, operation="{operation}", '
            f'state="{state}"}}')


def healthy():
    """{series: values} of a cloud with two computes that are well."""
    told = {
        f'{CLOUD}nodes{{{EXPORTER}}}': ALWAYS.format(30),
        f'{CLOUD}servers_busy{{{EXPORTER}}}': '0 1 2 1 0x116',
        f'{CLOUD}survey_success{{{EXPORTER}}}': ALWAYS.format(1),
        f'{CLOUD}survey_seconds{{{EXPORTER}}}': ALWAYS.format(2),
        f'{CLOUD}survey_timestamp_seconds{{{EXPORTER}}}': '0+60x120'}
    for kind in findings.KINDS:
        told[f'{CLOUD}findings{{{EXPORTER}, kind="{kind}"}}'] = (
            ALWAYS.format(0))
    for wait, state in itertools.product(Wait, exporter.PROGRESS):
        told[oldest(wait.value, state)] = '0 60 120 60 0x116'
    for host in 'compute-1', 'compute-2':
        for name, value in (('up', 1), ('fenced', 0), ('enabled', 1),
                            ('silence_seconds', 5)):
            told[f'{CLOUD}compute_{name}{{{EXPORTER}, host="{host}"}}'] = (
                ALWAYS.format(value))
        for state, value in ('free', 10), ('used', 5), ('leaked', 0):
            told[f'{CLOUD}compute_nodes{{{EXPORTER}, host="{host}", '
                 f'state="{state}"}}'] = ALWAYS.format(value)
    for who in COMPUTE, OTHER:
        told[f'up{{{who}}}'] = ALWAYS.format(1)
        for name, value in (
                ('info', 1), ('members', 2),
                ('members_checksum', 0xffffffff), ('brake_engaged', 0),
                ('takeover_oldest_pending_seconds', 0),
                ('listing_seconds', 1), ('listing_age_seconds', 9),
                ('audit_seconds', 5), ('audit_age_seconds', 50),
                ('peer_polls_failed_total', 0)):
            told[f'{PROCESS}{name}{{{who}}}'] = ALWAYS.format(value)
        told[f'{PROCESS}operations_refused_total{{{who}}}'] = '0+1x120'
        told[f'{PROCESS}nodes{{{who}, reason="keep"}}'] = ALWAYS.format(15)
        for name, results in (('moves', ('adopted', 'pulled', 'failed')),
                              ('takeovers', ('done', 'failed'))):
            for result in results:
                # Nodes may move.
                told[f'{PROCESS}{name}_total{{{who}, result="{result}"}}'] = (
                    ALWAYS.format(0) if result == 'failed' else '0+1x120')
    return told


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is broken, and what is to be told of it.

    :ivar told: labels of the alert that say what it is about
    :ivar broken: series -> value from START on, or its values as promtool
        has them, 'gone' for none
    :ivar after: minutes after START at which nothing is told yet; it is
        told in the next one
    """

    told: dict
    broken: dict
    after: int


def nodes(state):
    return f'{CLOUD}compute_nodes{{{HOST}, state="{state}"}}'


def finding(kind):
    return f'{CLOUD}findings{{{EXPORTER}, kind="{kind}"}}'


#: (name of the alert, what is special about it) -> Fault.
FAULTS = {
    ('ComputeDown', ''): Fault(
        {'host': 'compute-1'},
        {f'{CLOUD}compute_up{{{HOST}}}': 0,
         f'{CLOUD}compute_silence_seconds{{{HOST}}}': 500,
         nodes('free'): 0, finding(findings.ON_DEAD_HOST): 5}, 5),
    ('ServersNotTakenOver', ''): Fault(
        {'host': 'compute-1'},
        {f'{CLOUD}compute_up{{{HOST}}}': 0,
         f'{CLOUD}compute_fenced{{{HOST}}}': 1,
         f'{CLOUD}compute_silence_seconds{{{HOST}}}': 500,
         finding(findings.ON_DEAD_HOST): 5}, 15),
    ('ServersNotTakenOver', 'its service is deleted'): Fault(
        {'host': 'compute-1'},
        {f'{CLOUD}compute_up{{{HOST}}}': 'gone',
         f'{CLOUD}compute_fenced{{{HOST}}}': 'gone',
         f'{CLOUD}compute_enabled{{{HOST}}}': 'gone',
         f'{CLOUD}compute_silence_seconds{{{HOST}}}': 'gone',
         finding(findings.ON_DEAD_HOST): 5}, 15),
    ('FencedComputeRuns', ''): Fault(
        {'host': 'compute-1'},
        {f'{CLOUD}compute_up{{{HOST}}}': 0,
         f'{CLOUD}compute_fenced{{{HOST}}}': 1,
         nodes('used'): 0, nodes('free'): 0}, 10),
    ('NobodyLeft', ''): Fault(
        {},
        {f'{CLOUD}compute_enabled{{{HOST}}}': 0,
         f'{CLOUD}compute_up{{{EXPORTER}, host="compute-2"}}': 0,
         # None of them can move.
         oldest('move', 'waiting'): '0x30 60+60x89',
         f'{CLOUD}compute_nodes{{{EXPORTER}, host="compute-2", '
         'state="used"}': 0}, 5),
    ('NobodyLeft', 'no service at all'): Fault(
        {},
        {f'{CLOUD}compute_{name}{{{EXPORTER}, host="{host}"}}': 'gone'
         for name in ('up', 'fenced', 'enabled', 'silence_seconds')
         for host in ('compute-1', 'compute-2')}
        | {f'{CLOUD}compute_nodes{{{EXPORTER}, host="{host}", '
           f'state="{state}"}}': 'gone'
           for host in ('compute-1', 'compute-2')
           for state in ('free', 'used', 'leaked')}, 5),
    ('BuildsLate', 'nobody begins one'): Fault(
        {}, {oldest('build', 'waiting'): '0x30 60+60x89'}, 15),
    ('BuildsLate', 'a machine is not deployed'): Fault(
        {}, {oldest('build', 'running'): '0x30 60+60x89'}, 65),
    ('DeletesLate', 'nobody begins one'): Fault(
        {}, {oldest('delete', 'waiting'): '0x30 60+60x89'}, 35),
    ('DeletesLate', 'a machine is not torn down'): Fault(
        {}, {oldest('delete', 'running'): '0x30 60+60x89'}, 35),
    ('MovesLate', ''): Fault(
        {},
        {oldest('move', 'waiting'): '0x30 60+60x89',
         f'{CLOUD}compute_up{{{HOST}}}': 0, nodes('used'): 0}, 10),
    ('LeakedMachines', ''): Fault(
        {'kind': 'leaked-machine'},
        {finding('leaked-machine'): 2, nodes('leaked'): 2}, 60),
    ('FindingsPersist', ''): Fault(
        {'kind': 'stuck'}, {finding('stuck'): 1}, 30),
    ('FindingsPersist', 'a note'): Fault(
        {'kind': 'still-stopping'}, {finding('still-stopping'): 1}, 30),
    ('SurveyFailing', ''): Fault(
        {}, {f'{CLOUD}survey_success{{{EXPORTER}}}': 0}, 15),
    ('SurveyFailing', 'nobody asks'): Fault(
        {}, {f'{CLOUD}survey_timestamp_seconds{{{EXPORTER}}}':
             ALWAYS.format(1800)}, 45),
    ('SurveyFailing', 'no exporter'): Fault(
        {}, {name: 'gone' for name in healthy() if EXPORTER in name}, 15),
    ('NotScraped', ''): Fault(
        {}, {name: 'gone' for name in healthy()
             if COMPUTE in name and name != UP} | {UP: 0}, 30),
    ('MembersDiffer', ''): Fault(
        {}, {f'{PROCESS}members_checksum{{{OTHER}}}': 0xfffffffe}, 10),
    ('BrakeEngaged', ''): Fault(
        {},
        {f'{PROCESS}brake_engaged{{{COMPUTE}}}': 1}, 5),
    ('TakeoverPending', ''): Fault(
        {},
        {f'{PROCESS}takeover_oldest_pending_seconds{{{COMPUTE}}}':
         '0x30 60+60x89'}, 65),
    ('ListingStale', 'and audits fail with it'): Fault(
        {},
        {f'{PROCESS}listing_age_seconds{{{COMPUTE}}}': '9x30 60+60x89',
         f'{PROCESS}audit_age_seconds{{{COMPUTE}}}': '50x30 60+60x89'}, 10),
    ('AuditsStale', ''): Fault(
        {},
        {f'{PROCESS}audit_age_seconds{{{COMPUTE}}}': '50x30 60+60x89'}, 35),
    ('PeerPollsFailing', ''): Fault(
        {},
        {f'{PROCESS}peer_polls_failed_total{{{COMPUTE}}}': '0x30 1+1x89'}, 12),
    ('MovesFailing', 'free nodes'): Fault(
        {},
        {f'{PROCESS}moves_total{{{COMPUTE}, result="failed"}}':
         '0x30 1+1x89'}, 15),
    ('MovesFailing', 'servers'): Fault(
        {},
        {f'{PROCESS}takeovers_total{{{COMPUTE}, result="failed"}}':
         '0x30 1+1x89'}, 15),
}


class AlertsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.file = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'played.yaml'

    def world(self, broken=None, minutes=None):
        """The series of a cloud, as promtool wants them.

        :param broken: as in a Fault
        :param minutes: for how long, None for good
        """
        told = healthy()
        for name, value in (broken or {}).items():
            # It is broken where there is something of that name.
            assert name in told, name
            was = told[name].partition('x')[0]
            if isinstance(value, str) and value != 'gone':
                told[name] = value
                continue
            # Prometheus notices at the next scrape what is not there any more.
            value = 'stale _' if value == 'gone' else value
            broken_for = LENGTH - START if minutes is None else minutes
            told[name] = (f'{was}x{START} {value}x{broken_for - 1} '
                          f'{was}x{LENGTH - START - broken_for}')
        return [{'series': name, 'values': values}
                for name, values in told.items()]

    def firing(self, minute, *alerts):
        """Exactly these are told at that minute.

        :param alerts: (name, labels that say what it is about)
        """
        told = []
        for name, labels in alerts:
            labels = labels | {'alertname': f'IronicMultihost{name}'}
            pairs = ', '.join(
                f'{label}="{value}"' for label, value in labels.items())
            told.append(f'{{{pairs}}}')
        return {
            'expr': 'count by (alertname, host, kind) '
                    '(ALERTS{alertstate="firing"})',
            'eval_time': f'{minute}m',
            'exp_samples': [{'labels': labels, 'value': 1}
                            for labels in told]}

    def play(self, *tests):
        self.file.write_text(json.dumps({
            'rule_files': [str(RULES)], 'evaluation_interval': '1m',
            'tests': tests}))
        promtool.run(self, 'test', 'rules', self.file)

    def test_rules_are_valid(self):
        promtool.run(self, 'check', 'rules', RULES)

    def test_a_healthy_cloud_alerts_nobody(self):
        self.play({
            'interval': '1m', 'input_series': self.world(),
            'promql_expr_test': [
                self.firing(minute) for minute in (1, 20, 120, LENGTH)]})

    def test_each_fault_is_told_of_and_no_other(self):
        self.play(*({
            'name': ' '.join(key), 'interval': '1m',
            'input_series': self.world(fault.broken),
            'promql_expr_test': [
                self.firing(START + fault.after),
                *(self.firing(minute, (key[0], fault.told))
                  for minute in (START + fault.after + 1, LENGTH))]}
            for key, fault in FAULTS.items()))

    def test_what_passes_is_not_told_of(self):
        self.play(*({
            'name': ' '.join(key), 'interval': '1m',
            'input_series': self.world(fault.broken, MOMENT),
            'promql_expr_test': [
                self.firing(START + minute) for minute in range(1, 9)]}
            for key, fault in FAULTS.items()))

    def test_counters_keep_what_has_passed(self):
        """What failed for some minutes stays in them for good."""
        for name, values in (
                ('peer_polls_failed_total{%s}', '0x30 6+6x3 24x86'),
                ('moves_total{%s, result="failed"}', '0x30 8x89'),
                ('takeovers_total{%s, result="failed"}', '0x30 8x89')):
            broken = {f'{PROCESS}{name % COMPUTE}': values}
            self.play({
                'name': name, 'interval': '1m',
                'input_series': self.world(broken),
                'promql_expr_test': [
                    self.firing(minute)
                    for minute in range(START + 1, START + 40)]})

    def test_who_is_not_to_be_scraped_is_not_missed(self):
        gone = {name: 'gone' for name in healthy() if COMPUTE in name}
        self.play({
            'interval': '1m', 'input_series': self.world(gone),
            'promql_expr_test': [self.firing(LENGTH)]})

    def test_what_is_said(self):
        self.play({
            'interval': '1m',
            'input_series': self.world(FAULTS['ComputeDown', ''].broken),
            'alert_rule_test': [{
                'eval_time': f'{LENGTH}m',
                'alertname': 'IronicMultihostComputeDown',
                'exp_alerts': [{
                    'exp_labels': {
                        'severity': 'critical', 'job': 'exporter',
                        'instance': 'one:9798', 'host': 'compute-1'},
                    'exp_annotations': {
                        'summary': 'compute-1 is down, and has servers',
                        'description':
                            'nova calls the compute service on compute-1 '
                            'down. Its 5 servers run, and nobody can manage '
                            'them. Start it again; or make sure that it is '
                            'dead and force it down, and others take its '
                            'servers over.',
                        'runbook_url': 'user/runbook.html#computedown'}}]}]})


class RulesTestCase(base.BaseTestCase):
    """What can be said of the rules without Prometheus."""

    def setUp(self):
        super().setUp()
        self.rules = {
            rule['alert'].removeprefix('IronicMultihost'): rule
            for group in yaml.safe_load(RULES.read_text())['groups']
            for rule in group['rules']}

    def test_each_has_its_fault_planted(self):
        self.assertEqual({name for name, _ in FAULTS}, self.rules.keys())

    def test_they_ask_for_what_there_is(self):
        for name, rule in self.rules.items():
            self.assertEqual([], series.unknown(rule['expr']), name)

    def test_none_is_for_a_moment(self):
        for name, rule in self.rules.items():
            self.assertRegex(rule['for'], r'^([5-9]|[1-9]\d)m$|^1h$', name)

    def test_each_says_what_to_do(self):
        page = (DOC / 'user' / 'runbook.rst').read_text()
        for name, rule in self.rules.items():
            self.assertIn(rule['labels']['severity'], ('critical', 'warning'))
            told = rule['annotations']
            self.assertEqual({'summary', 'description', 'runbook_url'},
                             told.keys(), name)
            self.assertIn(f'\n.. _{name}:\n', page, name)


class PromisedTestCase(base.BaseTestCase):

    def test_what_is_promised_and_not_there_is_a_failure(self):
        self.useFixture(fixtures.EnvironmentVariable(
            promtool.VARIABLE, '/nowhere/promtool'))
        error = self.assertRaises(
            self.failureException, promtool.run, self, '--version')
        self.assertIn('There is no /nowhere/promtool. Install', str(error))

    def test_what_is_not_promised_may_be_missing(self):
        self.useFixture(fixtures.EnvironmentVariable(promtool.VARIABLE))
        self.useFixture(fixtures.EnvironmentVariable('PATH', '/nowhere'))
        self.assertRaises(
            self.skipException, promtool.run, self, '--version')
