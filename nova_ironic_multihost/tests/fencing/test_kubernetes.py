# SPDX-License-Identifier: Apache-2.0

import contextlib
import datetime
import functools
import io
import pathlib

import fixtures
import kubernetes_validate
import openstack
from oslotest import base
import requests
import yaml

from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.fencing import nova
from nova_ironic_multihost.tests.fencing import recipes

KUBERNETES = recipes.FENCING / 'kubernetes'
PROGRAM = KUBERNETES / 'fence-out-of-service'
API = 'https://10.0.0.1:443/api/v1'
TAINT = {'key': 'node.kubernetes.io/out-of-service', 'value': 'nodeshutdown',
         'effect': 'NoExecute'}
UNREACHABLE = {'key': 'node.kubernetes.io/unreachable', 'effect': 'NoExecute'}
HOST = 'nova-ironic-multihost/host'


def node(name, *taints, host=None, ready=None, labels=None):
    metadata = {'name': name} | (
        {'annotations': {HOST: host}} if host else {}) | (
        {'labels': labels} if labels else {})
    says = {None: 'Unknown' if taints else 'True', True: 'True',
            False: 'False'}[ready]
    return {'metadata': metadata,
            'spec': {'taints': list(taints)} if taints else {},
            'status': {'conditions': [{'type': 'Ready', 'status': says}]}}


def pod(name, node=None, ready=True, host=None, selector=None):
    metadata = {'name': name} | (
        {'annotations': {HOST: host}} if host else {})
    return {'metadata': metadata,
            'spec': ({'nodeName': node} if node else {}) | (
                {'nodeSelector': selector} if selector else {}),
            'status': {'conditions': [
                {'type': 'Ready', 'status': str(ready)}]} if node else {}}


class JobTestCase(base.BaseTestCase):
    """Of east, which nova calls down, and of west."""

    def setUp(self):
        super().setUp()
        self.program = recipes.load(PROGRAM)
        self.apis = self.useFixture(clouds.FakeCloud())
        self.apis.services[0]['state'] = 'down'
        self.useFixture(fixtures.MockPatchObject(
            openstack, 'connect',
            side_effect=lambda **_: self.apis.connection()))
        self.now = 0
        self.useFixture(fixtures.MockPatchObject(
            services, 'looks', functools.partial(
                services.looks, clock=lambda: self.now,
                sleep=lambda seconds: self.sleep(seconds))))
        self.beats = set()
        account = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (account / 'token').write_text(f'{nova.SECRET}\n')
        self.useFixture(fixtures.MockPatchObject(
            self.program, 'ACCOUNT', account))
        for name, value in (('KUBERNETES_SERVICE_HOST', '10.0.0.1'),
                            ('KUBERNETES_SERVICE_PORT', '443'),
                            ('NAMESPACE', 'openstack'),
                            ('SELECTOR', 'component=compute-ironic')):
            self.useFixture(fixtures.EnvironmentVariable(name, value))

    def sleep(self, seconds):
        self.now += seconds
        for service in self.apis.services:
            if service['host'] in self.beats:
                service['updated_at'] = (
                    datetime.datetime(2026, 1, 2) + datetime.timedelta(
                        seconds=self.now)).isoformat()

    def look(self, nodes, pods, status=0):
        """Run the job once: what it says."""
        self.nodes = self.apis.http.get(f'{API}/nodes', json={'items': nodes})
        self.pods = self.apis.http.get(
            f'{API}/namespaces/openstack/pods', json={'items': pods})
        return self.run_program(status)

    def run_program(self, status):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertEqual(status, self.program.main(), err.getvalue())
        self.assertNotIn(nova.SECRET, err.getvalue())
        return err.getvalue()

    def assertFenced(self, why):
        self.assertEqual([{
            'forced_down': True, 'status': 'disabled',
            'disabled_reason': f'{fencing.REASON}: Kubernetes: {why}'}],
            self.apis.changes)

    def test_a_node_that_is_out_of_service(self):
        for _ in range(2):
            self.look([node('a', UNREACHABLE, TAINT), node('b')],
                      [pod('east', 'a'), pod('west', 'b')])
        self.assertFenced('node a is out of service')

    def test_how_kubernetes_is_asked(self):
        self.look([node('a')], [pod('east', 'a')])
        self.assertEqual(['component=compute-ironic'],
                         self.pods.last_request.qs['labelselector'])
        for asked in self.nodes, self.pods:
            self.assertEqual(f'Bearer {nova.SECRET}',
                             asked.last_request.headers['Authorization'])
            self.assertEqual(str(self.program.ACCOUNT / 'ca.crt'),
                             asked.last_request.verify)

    def test_a_node_that_is_only_unreachable(self):
        self.look([node('a', UNREACHABLE), node('b')],
                  [pod('east', 'a'), pod('west', 'b')])
        self.assertEqual([], self.apis.changes)

    def test_a_pod_that_waits_for_a_node(self):
        pods = [pod('east'), pod('west', 'b')]
        self.look([node('a'), node('b')], pods)
        self.assertEqual([], self.apis.changes)
        self.look([node('a', TAINT), node('b')], pods)
        self.assertFenced('no node for its pod, and a is out of service')

    def test_a_pod_that_waits_may_run_where_nobody_answers(self):
        selector = {'control-plane': 'enabled'}
        pods = [pod('east', selector=selector), pod('west', 'b')]
        for silent in node('c', UNREACHABLE, labels=selector), node(
                'c', ready=False, labels=selector | {'rack': '1'}):
            told = self.look([node('a', TAINT), node('b'), silent], pods, 1)
            self.assertIn('may run on c', told)
        self.assertEqual([], self.apis.changes)
        # Nothing is to be done while nobody is out of service.
        self.assertEqual('', self.look([node('a'), silent], pods))
        # There it was not.
        self.look([node('a', TAINT), node('b'), node('c', UNREACHABLE)], pods)
        self.assertFenced('no node for its pod, and a is out of service')

    def test_a_taint_that_was_forgotten(self):
        nodes = [node('a', TAINT, host='east', ready=True), node('b')]
        for pods in [pod('east', 'a')], [pod('east')], [pod('west', 'b')]:
            told = self.look(nodes, pods, status=1)
            self.assertIn('take that away', told)
        self.assertEqual([], self.apis.changes)

    def test_a_pod_that_has_moved(self):
        self.look([node('a', TAINT, host='east'), node('b')],
                  [pod('east-old', 'a', host='east'),
                   pod('east-new', 'b', ready=False, host='East')])
        self.assertEqual([], self.apis.changes)

    def test_hosts_that_are_bound_to_a_node(self):
        self.look([node('a', TAINT, host='east, '), node('b')], [])
        self.assertFenced('node a is out of service')

    def test_hosts_that_are_bound_to_a_node_are_unfenced(self):
        self.test_hosts_that_are_bound_to_a_node()
        self.beats = {'east'}
        self.look([node('a', TAINT, host='east, '), node('b')], [])
        self.look([node('a', UNREACHABLE, host='east, '), node('b')], [])
        # It was bound to another node before.
        self.look([node('a', TAINT, host='east'), node('b', host='east')], [])
        self.assertTrue(self.apis.services[0]['forced_down'])
        # The name of a pod of a DaemonSet says nothing.
        told = self.look([node('a', host='east, '), node('b')],
                         [pod('nova-x7k2p', 'a')])
        self.assertIn('east is no longer fenced', told)
        self.assertEqual('enabled', self.apis.services[0]['status'])

    def test_one_that_nova_hears_from(self):
        self.apis.services[0]['state'] = 'up'
        told = self.look([node('a', TAINT)], [pod('east', 'a')], status=1)
        self.assertIn('east is not fenced, though node a', told)
        self.assertIn('Power it off', told)
        self.assertEqual([], self.apis.changes)

    def test_one_that_fails_does_not_keep_others(self):
        told = self.look(
            [node('a', TAINT)], [pod('abc', 'a'), pod('east', 'a')], status=1)
        self.assertIn('abc is not fenced', told)
        self.assertFenced('node a is out of service')

    def test_is_unfenced_when_it_is_back(self):
        self.beats = {'east'}
        self.look([node('a', TAINT)], [pod('east', 'a')])
        self.look([node('a', TAINT), node('b')],
                  [pod('east', 'b', ready=False)])
        self.assertTrue(self.apis.services[0]['forced_down'])
        self.beats.clear()
        told = self.look([node('a'), node('b')], [pod('East', 'b')], status=1)
        self.assertIn('east stays fenced: it is ready', told)
        self.assertTrue(self.apis.services[0]['forced_down'])
        self.beats = {'east'}
        told = self.look([node('a'), node('b')], [pod('East', 'b')])
        self.assertIn('east is no longer fenced', told)
        self.assertEqual({'forced_down': False, 'status': 'enabled'},
                         self.apis.changes[-1])
        self.assertEqual('', self.look([node('a')], [pod('east', 'a')]))

    def test_one_that_has_left_another_spelling_behind(self):
        """On a database that tells both apart."""
        self.beats = {'east'}
        self.apis.services.append(clouds.service(
            'East', state='down', updated_at='2025-01-01T00:00:00.000000'))
        self.look([node('a', TAINT)], [pod('east', 'a')])
        self.assertFenced('node a is out of service')
        self.assertIn('east is no longer fenced',
                      self.look([node('a')], [pod('east', 'a')]))
        self.assertFalse(self.apis.services[0]['forced_down'])

    def test_one_that_was_drained_when_its_node_died(self):
        self.beats = {'east'}
        for reason in 'new memory', None:
            self.apis.services[0].update(
                state='down', status='disabled', disabled_reason=reason)
            self.look([node('a', TAINT)], [pod('east', 'a')])
            self.assertTrue(self.apis.services[0]['forced_down'])
            self.look([node('a')], [pod('east', 'a')])
            self.assertEqual({'forced_down': False}, self.apis.changes[-1])
            self.assertEqual('disabled', self.apis.services[0]['status'])

    def test_those_who_do_not_return_hold_nobody_up(self):
        hosts = [f'c{index}' for index in range(9)]
        self.apis.services = [clouds.service(
            host, state='down', forced_down=True, status='disabled',
            disabled_reason=f'{fencing.REASON}: Kubernetes: node a')
            for host in hosts]
        self.beats = {'c8'}
        told = self.look([node('a')], [pod(host, 'a') for host in hosts], 1)
        self.assertFalse(self.apis.services[8]['forced_down'])
        self.assertEqual(8, told.count('stays fenced'))
        self.assertLessEqual(self.now, self.program.HEARD)

    def test_those_who_live_hold_up_no_fence(self):
        hosts = [f'c{index}' for index in range(9)]
        self.apis.services += [clouds.service(host) for host in hosts]
        clock = self.useFixture(fixtures.MockPatchObject(
            self.program.time, 'monotonic', side_effect=lambda: self.now))
        self.look([node('a', TAINT)],
                  [pod(host, 'a') for host in [*hosts, 'east']], status=1)
        self.assertTrue(self.apis.services[0]['forced_down'])
        self.assertLessEqual(self.now, self.program.PATIENCE)
        self.assertTrue(clock.mock.called)

    def test_those_who_are_fenced_hold_up_no_fence(self):
        # While a cell is away nova takes a minute for each question.
        hosts = [f'c{index}' for index in range(9)]
        self.apis.services += [clouds.service(
            host, state='down', forced_down=True, status='disabled',
            disabled_reason=f'{fencing.REASON}: Kubernetes: node a')
            for host in hosts]
        self.look([node('a', TAINT), node('b')],
                  [pod(host, 'a') for host in [*hosts, 'east']])
        self.assertFenced('node a is out of service')
        self.assertEqual(2, self.apis.asked['/os-services'])

    def test_another_cell_is_out_of_reach(self):
        self.apis.services.append(clouds.service('far'))
        self.apis.away = {'far'}
        self.beats = {'east'}
        self.look([node('a', TAINT)], [pod('east', 'a')])
        self.assertTrue(self.apis.services[0]['forced_down'])
        self.look([node('a')], [pod('east', 'a')])
        self.assertFalse(self.apis.services[0]['forced_down'])
        told = self.look([node('a')], [pod('far', 'a')], status=1)
        self.assertIn('Whether far is fenced is not known', told)

    def test_ipv6(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST', 'fd00:10:96::1'))
        for path, things in ('nodes', [node('a', TAINT)]), (
                'namespaces/openstack/pods', [pod('east', 'a')]):
            self.apis.http.get(
                f'https://[fd00:10:96::1]:443/api/v1/{path}',
                json={'items': things})
        self.run_program(0)
        self.assertFenced('node a is out of service')

    def test_a_node_with_a_long_name(self):
        name = '.'.join(['n' * 60] * 4)
        self.look([node(name, TAINT)], [pod('east', name)])
        [change] = self.apis.changes
        self.assertEqual(255, len(change['disabled_reason']))
        # It is known as one of ours nevertheless.
        self.beats = {'east'}
        self.look([node(name)], [pod('east', name)])
        self.assertEqual('enabled', self.apis.services[0]['status'])

    def test_what_others_have_fenced_stays(self):
        self.beats = {'east'}
        for status, reason in (
                ('disabled', fencing.REASON),
                ('disabled', f'{fencing.REASON}: mainboard'),
                ('enabled', None)):
            self.apis.services[0].update(
                forced_down=True, status=status, disabled_reason=reason)
            self.look([node('a')], [pod('east', 'a')])
        self.assertEqual([], self.apis.changes)

    def test_what_the_operator_fences_again_stays(self):
        self.look([node('a', TAINT)], [pod('east', 'a')])
        fencing.declare(
            self.apis.survey(), 'east', why='mainboard', renew=True)
        self.look([node('a', TAINT)], [pod('east', 'a')])
        self.beats = {'east'}
        self.look([node('a')], [pod('east', 'a')])
        self.assertTrue(self.apis.services[0]['forced_down'])

    def test_what_the_operator_fences_again_meanwhile_stays(self):
        self.look([node('a', TAINT)], [pod('east', 'a')])
        self.beats = {'east'}
        sleep = self.sleep

        def fence(seconds):
            if self.now == 0:
                fencing.declare(
                    self.apis.survey(), 'east', why='mainboard', renew=True)
            sleep(seconds)

        self.sleep = fence
        self.look([node('a')], [pod('east', 'a')])
        self.assertTrue(self.apis.services[0]['forced_down'])

    def test_nobody_answers(self):
        self.apis.http.get(f'{API}/nodes', status_code=403)
        self.assertIn('roles', self.run_program(1))
        self.apis.http.get(
            f'{API}/nodes', exc=requests.exceptions.ConnectTimeout('no'))
        self.assertIn('Kubernetes does not say', self.run_program(1))
        self.apis.http.get(f'{clouds.NOVA}/os-services', status_code=503)
        self.assertIn('503', self.look(
            [node('a', TAINT)], [pod('east', 'a')], status=1))
        self.assertIn('503', self.look(
            [node('a')], [pod('east', 'a')], status=1))

    def test_settings_that_are_wrong(self):
        self.assertIn('SELECTOR', self.look([node('a', TAINT)], [], 1))
        self.useFixture(fixtures.EnvironmentVariable('NAMESPACE'))
        self.assertIn('variable NAMESPACE', self.look([], [], 1))

    def test_answers_that_are_no_answers(self):
        """What they lack is no variable."""
        self.apis.http.get(f'{API}/nodes', json={'kind': 'Status'})
        self.assertNotIn('variable', self.run_program(1))
        self.assertIn('proxies', self.look(
            [{**node('a'), 'status': None}], [pod('east', 'a')], 1))
        self.apis.http.get(f'{clouds.NOVA}/os-services', json={'error': 1})
        told = self.look([node('a', TAINT)], [pod('east', 'a')], 1)
        self.assertIn("KeyError: 'services'", told)
        self.assertNotIn('variable', told)


class ManifestTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        text = (KUBERNETES / 'cronjob.yaml').read_text()
        self.things = list(yaml.safe_load_all(text))

    def test_kubernetes_understands_it(self):
        for thing in self.things:
            for version in '1.31', kubernetes_validate.latest_version():
                kubernetes_validate.validate(thing, version, strict=True)

    def test_it_may_do_what_it_does(self):
        rules = {(resource, verb) for thing in self.things
                 for rule in thing.get('rules', ())
                 for resource in rule['resources'] for verb in rule['verbs']}
        self.assertEqual({('nodes', 'list'), ('pods', 'list')}, rules)

    def test_a_job_that_does_not_end_keeps_no_other_back(self):
        [job] = [t for t in self.things if t['kind'] == 'CronJob']
        self.assertEqual('Allow', job['spec']['concurrencyPolicy'])

    def test_it_gives_what_the_program_needs(self):
        [job] = [t for t in self.things if t['kind'] == 'CronJob']
        [one] = job['spec']['jobTemplate']['spec']['template']['spec'][
            'containers']
        self.assertEqual(PROGRAM.name, pathlib.Path(one['command'][-1]).name)
        self.assertLessEqual(
            {'NAMESPACE', 'SELECTOR', 'OS_CLOUD', 'OS_CLIENT_CONFIG_FILE'},
            {variable['name'] for variable in one['env']})
