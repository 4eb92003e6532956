# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import exporter
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests import views


def told(seen, now=views.NOW):
    """{name without prefix: {values of labels: figure}} of a cloud."""
    found = findings.inconsistencies(seen, now, ['compute-1'])
    return {series.name.removeprefix(exporter.PREFIX): {
        tuple(sample.labels.values()): sample.value
        for sample in series.samples}
        for series in exporter.cloud_metrics(seen, found)}


class CloudTestCase(base.BaseTestCase):

    def found(self, seen, **more):
        """The findings that are not 0."""
        return {kind: count for (kind,), count
                in told(seen, **more)['findings'].items() if count}

    def nodes(self, seen, host):
        """(free, used, leaked) nodes of a host."""
        figures = told(seen)['compute_nodes']
        return tuple(figures[host, state] for state in exporter.STATES)

    def test_healthy(self):
        figures = told(views.consistent())
        self.assertEqual(
            dict.fromkeys(((kind,) for kind in findings.KINDS), 0.0),
            figures['findings'])
        computes = {(host,) for host in views.HOSTS}
        for name, value in ('up', 1.0), ('enabled', 1.0), ('fenced', 0.0), (
                'silence_seconds', 1.0):
            self.assertEqual(dict.fromkeys(computes, value),
                             figures[f'compute_{name}'])
        self.assertEqual({(): 6.0}, figures['nodes'])
        self.assertEqual({(): 0.0}, figures['servers_busy'])
        self.assertEqual({(): views.NOW}, figures['survey_timestamp_seconds'])
        self.assertEqual(
            {('compute-1', 'free'): 1.0, ('compute-1', 'used'): 1.0,
             ('compute-1', 'leaked'): 0.0}
            | {(host, state): 2.0 * (state == 'free')
               for host in ('compute-2', 'compute-3')
               for state in exporter.STATES}, figures['compute_nodes'])

    def test_oldest(self):
        def oldest(seen):
            return {key: seconds for key, seconds
                    in told(seen)['oldest_seconds'].items() if seconds}

        seen = views.consistent()
        self.assertEqual(
            {(operation, state) for state in ('waiting', 'running')
             for operation in ('build', 'delete', 'move', 'takeover')},
            told(seen)['oldest_seconds'].keys())
        self.assertEqual({}, oldest(seen))
        for number, (operation, state) in enumerate((
                ('build', {'vm_state': 'building'}),
                ('build', {'vm_state': 'building', 'task_state': 'spawning'}),
                ('delete', {'task_state': 'deleting'}),
                ('delete', {'task_state': 'soft-deleting'}),
                ('takeover', {'task_state': takeover.taking(
                    'deleting', host_key('compute-1'))}))):
            age = 10.0 * (number + 1)
            old = views.changed(
                seen, 'instances', 0, updated=views.NOW - age, **state)
            self.assertEqual({(operation, 'running'): age}, oldest(old))
            self.assertEqual({(operation, 'waiting'): age}, oldest(
                views.changed(old, 'instances', 0, host=None)))
            self.assertEqual(age, oldest(views.changed(
                old, 'services', 0, up=False))[operation, 'waiting'])
            seen = views.with_more(seen, 'instances', cloud_state.CloudServer(
                uuid=f's-{number}', updated=views.NOW))
        self.assertEqual({}, oldest(views.changed(
            seen, 'instances', 0, task_state='rebooting')))
        down = views.changed(seen, 'services', 1, up=False,
                             seen=views.NOW - 70)
        self.assertEqual({('move', 'waiting'): 70.0}, oldest(down))
        used = views.changed(views.changed(
            down, 'nodes', 1, instance_uuid='a'), 'nodes', 4,
            instance_uuid='b')
        self.assertEqual({}, oldest(used))
        fenced = views.changed(seen, 'services', 0, up=False,
                               forced_down=True, seen=views.NOW - 90)
        self.assertEqual(90.0, oldest(fenced)['takeover', 'waiting'])
        self.assertNotIn(('takeover', 'waiting'), oldest(views.changed(
            fenced, 'services', 0, forced_down=False)))

    def test_one_down(self):
        seen = views.changed(views.consistent(), 'services', 0, up=False,
                             seen=views.NOW - 500)
        figures = told(seen)
        self.assertEqual([0.0, 1.0, 1.0],
                         list(figures['compute_up'].values()))
        self.assertEqual(500.0,
                         figures['compute_silence_seconds']['compute-1',])
        self.assertEqual({'compute-not-up': 1, 'record-on-dead-host': 1,
                          'instance-on-dead-host': 1}, self.found(seen))
        self.assertEqual((1, 1, 0), self.nodes(seen, 'compute-1'))

    def test_fenced(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False,
                             forced_down=True, disabled=True)
        figures = told(seen)
        for name, value in ('fenced', 1.0), ('up', 0.0), ('enabled', 0.0):
            self.assertEqual(value, figures[f'compute_{name}']['compute-2',])

    def test_leaked(self):
        seen = views.without(views.consistent(), 'instances', 0)
        self.assertEqual((1, 0, 1), self.nodes(seen, 'compute-1'))
        self.assertEqual(1, self.found(seen)['leaked-machine'])

    def test_active_for_no_server_is_leaked(self):
        seen = views.changed(views.consistent(), 'nodes', 1,
                             provision_state='active')
        self.assertEqual((1, 0, 1), self.nodes(seen, 'compute-2'))

    def test_node_on_the_way_to_which_a_server_is_is_used(self):
        seen = views.with_more(views.consistent(), 'instances',
                               cloud_state.CloudServer(
                                   uuid='new', host='compute-2', node='node-4',
                                   vm_state='building', updated=views.NOW))
        self.assertEqual((1, 1, 0), self.nodes(seen, 'compute-2'))

    def test_stuck(self):
        seen = views.changed(views.consistent(), 'instances', 0,
                             task_state='deleting')
        self.assertEqual({(): 1.0}, told(seen)['servers_busy'])
        self.assertEqual({}, self.found(seen))
        self.assertEqual({'stuck': 1}, self.found(seen, now=views.NOW + 3600))

    def test_notes_are_counted(self):
        words = liveness.stop_marker_text(datetime.datetime(1970, 1, 1))
        seen = views.changed(views.consistent(), 'services', 0,
                             stop_marker=words)
        self.assertEqual({'still-stopping': 1}, self.found(seen))

    def test_record_of_a_host_without_service(self):
        seen = views.changed(views.consistent(), 'records', 1, host='Gone')
        self.assertEqual((1, 0, 0), self.nodes(seen, 'Gone'))
        self.assertEqual((1, 0, 0), self.nodes(seen, 'compute-2'))
        self.assertNotIn(('Gone',), told(seen)['compute_up'])

    def test_host_is_spelled_as_its_service_is(self):
        seen = views.changed(views.consistent(), 'records', 0,
                             host='COMPUTE-1')
        self.assertEqual((1, 1, 0), self.nodes(seen, 'compute-1'))
        self.assertNotIn(('COMPUTE-1', 'free'), told(seen)['compute_nodes'])

    def test_record_of_a_node_that_ironic_lacks_is_not_counted(self):
        seen = views.with_more(views.consistent(), 'records',
                               model.Record('gone', 'compute-2'))
        self.assertEqual((2, 0, 0), self.nodes(seen, 'compute-2'))

    def test_compute_that_was_never_heard_of(self):
        seen = views.changed(views.consistent(), 'services', 0, seen=None)
        figures = told(seen)
        self.assertNotIn(('compute-1',), figures['compute_silence_seconds'])
        self.assertIn(('compute-1',), figures['compute_up'])

    def test_as_many_samples_however_many_nodes_and_servers(self):
        seen = views.consistent()
        many = dataclasses.replace(
            seen, nodes=seen.nodes + tuple(
                cloud_state.Node(f'more-{n}') for n in range(100)))

        def count(cloud):
            return sum(map(len, told(cloud).values()))

        self.assertEqual(count(seen), count(many))


class SurveyTestCase(base.BaseTestCase):

    def test_success_and_failure(self):
        for success in True, False:
            self.assertEqual(
                [('nova_ironic_multihost_cloud_survey_success', {},
                  float(success)),
                 ('nova_ironic_multihost_cloud_survey_seconds', {}, 2.5)],
                [sample[:3] for series in exporter.survey_metrics(success, 2.5)
                 for sample in series.samples])
