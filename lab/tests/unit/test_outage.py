# SPDX-License-Identifier: Apache-2.0

import argparse

from oslotest import base

from lab import errors
from lab.experiments import outage
from lab import workload
from nova_ironic_multihost.tests import views

GOOD = {'answers_after': 0.0, 'up_after': 3.2, 'stuck': 0, 'not_deleted': 0,
        'residents_lost': [], 'taken_over': 0, 'moves': 0,
        'same_processes': True, 'record_or_provider_lost': 0, 'leaked': 0,
        'quiet': True, 'fenced': None, 'left_on_dead': 0, 'needless': 0}


def life(outcome='ACTIVE', **more):
    return workload.Life('x', 1.0, 2.0, outcome, **more)


def server(status='ACTIVE', task=None, host='compute-1'):
    return {'status': status, 'OS-EXT-STS:task_state': task,
            'OS-EXT-SRV-ATTR:host': host}


class OptionsTestCase(base.BaseTestCase):

    def choices(self, *argv):
        parser = argparse.ArgumentParser()
        outage.add_options(parser)
        return outage.choices(parser.parse_args(argv))

    def test_a_minute_without_a_conductor_unless_told_otherwise(self):
        self.assertEqual({'what': 'conductor', 'how': 'kill', 'seconds': 60,
                          'fence': False}, self.choices())

    def test_what_is_asked_for(self):
        self.assertEqual(
            {'what': 'rabbit', 'how': 'freeze', 'seconds': 5, 'fence': True},
            self.choices('--what', 'rabbit', '--how', 'freeze',
                         '--seconds', '5', '--fence'))

    def test_only_the_database_fails_over(self):
        self.assertEqual('failover', self.choices(
            '--what', 'database', '--how', 'failover')['how'])
        error = self.assertRaises(
            errors.LabError, self.choices, '--how', 'failover')
        self.assertIn('--how kill or freeze', str(error))


class TallyTestCase(base.BaseTestCase):

    def test_refused_requests_of_all_servers_add_up(self):
        self.assertEqual(5, outage.tally(
            [life(refused=2), life(), life('ERROR', refused=3)])['refused'])

    def test_each_fault_with_its_number(self):
        found = outage.tally([
            life('ERROR', fault='no host'), life('ERROR', fault='no host'),
            life('ERROR'), life('STUCK', left=True), life()])
        self.assertEqual((5, 1, 3, 1), tuple(found[name] for name in (
            'servers', 'active', 'error', 'late')))
        self.assertEqual({'no host': 2, 'ERROR without a message': 1},
                         found['error_faults'])

    def test_a_fault_is_the_same_whichever_server_it_names(self):
        uuids = ('c45f2db3-4d5a-4e10-af25-6b38d7d42dd2',
                 '010f56c9-e62f-42a1-9724-d736c3b28a54')
        self.assertEqual(
            {'Build of UUID failed': 2},
            outage.tally([life('ERROR', fault=f'Build of {uuid} failed')
                          for uuid in uuids])['error_faults'])

    def test_nothing_happened(self):
        found = outage.tally([])
        self.assertEqual((0, 0), (found['servers'], found['refused']))


class UnfinishedTestCase(base.BaseTestCase):

    def unfinished(self, *servers):
        found = outage.unfinished(servers)
        return found['stuck'], found['stuck_deletes'], found['unplaced']

    def test_servers_at_rest(self):
        self.assertEqual((0, 0, 0), self.unfinished(
            server(), server('ERROR'), server('ERROR', host=None)))

    def test_in_the_middle_of_something(self):
        self.assertEqual((3, 1, 0), self.unfinished(
            server('BUILD'), server(task='rebooting_hard'),
            server(task='deleting')))

    def test_a_build_that_no_compute_has_heard_of(self):
        self.assertEqual((0, 0, 1), self.unfinished(
            server('BUILD', 'scheduling', host=None)))


class ObservationTestCase(base.BaseTestCase):

    def test_at_rest(self):
        self.assertTrue(outage.at_rest(views.consistent()))

    def test_something_goes_on(self):
        for changes in ({'task_state': 'deleting'}, {'vm_state': 'building'},
                        {'vm_state': 'deleted'},
                        # The machine is still held.
                        {'deleted': True}):
            self.assertFalse(outage.at_rest(views.changed(
                views.consistent(), 'instances', 0, **changes)), changes)

    def test_a_build_that_no_compute_will_end_is_not_waited_for(self):
        self.assertTrue(outage.at_rest(views.changed(
            views.consistent(), 'instances', 0, host=None,
            vm_state='building', task_state='scheduling')))

    def test_a_node_counts_once_whatever_it_has_lost(self):
        seen = views.consistent()
        self.assertEqual(0, outage.lost(seen))
        seen = views.without(seen, 'records', 1)
        self.assertEqual(1, outage.lost(seen))
        self.assertEqual(1, outage.lost(views.without(seen, 'providers', 1)))
        self.assertEqual(2, outage.lost(views.without(seen, 'providers', 2)))


class ProcessesTestCase(base.BaseTestCase):

    def test_the_same(self):
        self.assertTrue(
            outage.compared({'a': 1}, {'a': 1})['same_processes'])

    def test_says_which_have_gone(self):
        found = outage.compared({'a': 1, 'b': 2, 'c': 3},
                                {'a': 1, 'b': None, 'c': 4})
        self.assertFalse(found['same_processes'])
        self.assertEqual(['b died', 'c was restarted'],
                         found['other_processes'])


class DeadTestCase(base.BaseTestCase):

    def test_what_is_left_on_it(self):
        seen = views.changed(
            views.consistent(), 'instances', 0, host='Compute-1')
        nodes = len(seen.owned_by('compute-1'))
        self.assertEqual(nodes + 1, outage.left_on(seen, 'compute-1'))
        self.assertEqual(nodes, outage.left_on(
            views.changed(seen, 'instances', 0, deleted=True), 'compute-1'))
        self.assertEqual(0, outage.left_on(seen, None))

    def test_its_nodes_move_and_no_others(self):
        figures = GOOD | {'fenced': 'compute-1', 'moves': 10}
        self.assertEqual([], outage.failures(figures))
        for figure in 'needless', 'left_on_dead':
            [sentence] = outage.failures(figures | {figure: 2})
            self.assertIn('2', sentence)


class FailuresTestCase(base.BaseTestCase):

    def test_builds_may_fail_meanwhile(self):
        self.assertEqual([], outage.failures(GOOD))

    def test_each_bad_figure_has_its_sentence(self):
        for figure, value in (
                ('answers_after', None), ('up_after', None), ('stuck', 2),
                ('not_deleted', 1), ('residents_lost', ['a is ERROR']),
                ('taken_over', 1), ('moves', 3), ('same_processes', False),
                ('record_or_provider_lost', 1), ('leaked', 1),
                ('quiet', False)):
            with self.subTest(figure):
                [sentence] = outage.failures(GOOD | {figure: value})
                if value not in (None, False) and figure != 'residents_lost':
                    self.assertIn(str(value), sentence)

    def test_says_what_became_of_residents(self):
        [sentence] = outage.failures(GOOD | {'residents_lost': ['a is gone']})
        self.assertIn('a is gone', sentence)
