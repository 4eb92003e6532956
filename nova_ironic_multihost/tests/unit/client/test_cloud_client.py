# SPDX-License-Identifier: Apache-2.0

import datetime
import re
import socket
from unittest import mock

import fixtures
from oslotest import base
import requests
import requests_mock
from requests_mock.contrib import fixture as requests_mock_fixture

from nova_ironic_multihost.client import api
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.tests import clouds


class SurveyTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(clouds.FakeCloud())

    def kinds(self, seen, now=1767225640):
        return [(f.kind, f.subject)
                for f in findings.inconsistencies(seen, now)]


class ReadTestCase(SurveyTestCase):

    def test_a_cloud_in_order(self):
        seen = self.cloud.survey().read()
        self.assertEqual((
            cloud_state.Service('east', seen=1767225610.0, id='id-east'),
            cloud_state.Service('west', seen=1767225610.0, id='id-west')),
            seen.services)
        self.assertEqual({'n-0': 'east', 'n-1': 'east', 'n-2': 'west'},
                         seen.owner_of)
        self.assertEqual({'n-0'}, seen.used_nodes)
        self.assertEqual((cloud_state.CloudServer(
            'east', node='n-0', uuid='s-0', name='s-0', updated=1767225620.0,
            project='project', user='user'),),
            seen.instances)
        self.assertEqual([], self.kinds(seen))

    def test_moment_is_that_of_the_heartbeats(self):
        """Whatever is asked afterwards takes minutes in a large cloud."""
        now = [1000.0]
        listed = self.cloud._servers

        def answer(request, context):
            now[0] += 300
            return listed(request, context)

        self.cloud.http.get(f'{clouds.NOVA}/servers/detail', json=answer)
        with mock.patch.object(api.time, 'time', lambda: now[0]):
            self.assertEqual(1000, self.cloud.survey().read().at)

    def test_states_of_computes(self):
        self.cloud.services = [
            clouds.service('east', status='disabled'),
            clouds.service('west', state='down', forced_down=True,
                           updated_at=None)]
        [east, west] = self.cloud.survey().read().services
        self.assertEqual((True, True, False),
                         (east.up, east.disabled, east.forced_down))
        self.assertEqual((False, False, True),
                         (west.up, west.disabled, west.forced_down))

    def test_the_clock_of_nova_counts(self):
        now = 1767225640
        for date, at in (
                ('Wed, 31 Dec 2025 22:00:40 GMT', now - 7200),
                ('Thu, 01 Jan 2026 02:00:40 GMT', now + 7200),
                ('', now), ('yesterday', now)):
            self.cloud.http.get(
                f'{clouds.NOVA}/os-services', headers={'Date': date},
                json=self.cloud._services)
            with mock.patch('time.time', return_value=now):
                self.assertEqual(at, self.cloud.survey().read().at)

    def test_why_a_compute_is_disabled(self):
        self.cloud.services = [
            clouds.service('east', status='disabled', disabled_reason='mine'),
            clouds.service('west', status='disabled')]
        self.assertEqual(['mine', ''], [
            s.reason for s in self.cloud.survey().read().services])

    def test_compute_that_was_told_to_end(self):
        words = liveness.stop_marker_text(datetime.datetime(2026, 5, 4))
        self.cloud.services = [
            clouds.service('east', status='disabled', disabled_reason=words),
            clouds.service('west', disabled_reason=None)]
        [east, west] = self.cloud.survey().read().services
        self.assertEqual((True, words), (east.disabled, east.stop_marker))
        self.assertEqual('', west.stop_marker)

    def test_what_a_cloud_of_several_pages_has(self):
        names = [f'n-{i}' for i in range(5)]
        self.cloud.nodes = [clouds.node(n, instance_uuid=n.replace('n', 's'))
                            for n in names]
        self.cloud.hypervisors = [clouds.hypervisor(n, 'east') for n in names]
        self.cloud.providers = [{'uuid': n, 'name': n} for n in names]
        self.cloud.servers = [clouds.server(f's-{i}', 'east', f'n-{i}')
                              for i in range(5)]
        with mock.patch.object(api, 'PAGE', 2):
            seen = self.cloud.survey().read()
        self.assertEqual(names, [n.uuid for n in seen.nodes])
        self.assertEqual(names, [r.node for r in seen.records])
        self.assertEqual(5, len(seen.instances))
        self.assertEqual([], self.kinds(seen))

    def test_nothing_is_asked_node_by_node(self):
        self.cloud.survey().read()
        self.assertEqual(
            {'/os-services': 2, '/os-hypervisors/detail': 2,
             '/servers/detail': 2, '/resource_providers': 2, '/nodes': 2,
             '/os-aggregates': 1},
            dict(self.cloud.asked))

    def test_computes_are_not_asked_for_their_uptime(self):
        # nova's API does that, one after the other, from 2.88 on.
        self.cloud.survey().read()
        self.assertEqual('compute 2.53',
                         self.cloud.versions['/os-hypervisors/detail'])

    def test_records_that_nova_hides(self):
        # A page of what is left may be short before the last one.
        self.cloud.hidden = {'n-0', 'n-1'}
        self.cloud.hypervisors += [clouds.hypervisor('n-3', 'west')]
        self.cloud.nodes += [clouds.node('n-3')]
        self.cloud.providers += [{'uuid': 'n-3', 'name': 'n-3'}]
        with mock.patch.object(api, 'PAGE', 3):
            seen = self.cloud.survey().read()
        self.assertEqual({'n-2': 'west', 'n-3': 'west'}, seen.owner_of)
        self.assertEqual({'east': None, 'west': True},
                         {s.host: s.mapped for s in seen.services})
        self.assertEqual([('node-without-record', 'n-0'),
                          ('node-without-record', 'n-1')], self.kinds(seen))

    def test_hypervisors_of_other_kinds_are_left_out(self):
        self.cloud.services += [clouds.service('KVM-1', state='down'),
                                clouds.service('new')]
        self.cloud.hypervisors += [
            clouds.hypervisor('kvm-id', 'Kvm-1', 'QEMU')]
        self.cloud.servers += [clouds.server('s-1', 'kvm-1', 'kvm-1'),
                               clouds.server('s-2', vm_state='building',
                                             task='scheduling')]
        self.cloud.providers += [{'uuid': 'kvm-id', 'name': 'kvm-1'},
                                 {'uuid': 'port-id', 'name': 'kvm-1:nic'}]
        seen = self.cloud.survey().read()
        self.assertEqual(['east', 'west', 'new'],
                         [s.host for s in seen.services])
        self.assertEqual(['s-0', 's-2'], [i.uuid for i in seen.instances])
        self.assertEqual({'kvm-1'}, seen.others)
        self.assertEqual([], self.kinds(seen))

    def test_providers_that_are_barred(self):
        self.cloud.barred = ['n-1']
        self.assertEqual([('free-node-barred', 'n-1')],
                         self.kinds(self.cloud.survey().read()))

    def test_servers_without_a_machine_of_theirs(self):
        self.cloud.servers += [
            clouds.server('s-1', vm_state='shelved_offloaded'),
            clouds.server('s-2', 'west', 'n-2', 'building', 'spawning')]
        self.assertEqual([], self.kinds(self.cloud.survey().read()))

    def test_servers_in_progress(self):
        self.cloud.servers = [
            clouds.server('s-0', 'east', 'n-0', task='deleting')]
        self.assertEqual(1, findings.busy(self.cloud.survey().read()))

    def test_allocations_are_read_on_demand(self):
        self.cloud.allocations['n-1'] = ['gone']
        self.cloud.allocations['n-2'] = []
        seen = self.cloud.survey().read()
        self.assertIsNone(seen.allocations)
        self.assertEqual([], self.kinds(seen))
        seen = self.cloud.survey().read(allocations=True)
        self.assertEqual([('allocation-without-instance', 'gone')],
                         self.kinds(seen))

    def test_allocations_of_a_provider_that_just_went(self):
        seen = self.cloud.survey().read(allocations=True)
        self.assertEqual((cloud_state.Allocation('s-0', 'n-0'),),
                         seen.allocations)

    def test_groups_and_shards(self):
        self.cloud.nodes[1] = clouds.node(
            'n-1', conductor_group='rack', shard='blue')
        self.assertEqual(
            [('', ''), ('rack', 'blue'), ('', '')],
            [(n.conductor_group, n.shard)
             for n in self.cloud.survey().read().nodes])

    def test_ironic_without_shards(self):
        self.cloud.latest = '1.46'
        self.assertIn('Ironic is too old', str(self.assertRaises(
            cloud_state.CloudError, self.cloud.survey().read)))

    def test_since_when_a_node_is_what_it_is(self):
        self.cloud.nodes[1] = clouds.node('n-1', provision_updated_at=None)
        self.assertEqual(
            [1767225605.0, None],
            [n.since for n in self.cloud.survey().read().nodes[:2]])


class ZonesTestCase(SurveyTestCase):

    def test_zones_that_somebody_has_given(self):
        self.cloud.aggregates = [('z', ['East', 'west']), (None, ['north'])]
        self.assertEqual({'east': 'z', 'west': 'z'},
                         self.cloud.survey().read().zones)


class MarkedTestCase(SurveyTestCase):

    def test_providers_with_a_trait(self):
        self.assertEqual({'n-0', 'n-2'},
                         self.cloud.survey().marked('OWNER_NOVA'))


class NovaTestCase(SurveyTestCase):
    """What is asked of nova alone, as when the others do not answer."""

    def setUp(self):
        super().setUp()
        for url in clouds.IRONIC, clouds.PLACEMENT:
            self.cloud.http.get(
                re.compile(re.escape(url)),
                exc=requests.exceptions.ConnectionError('refused'))

    def test_computes(self):
        self.cloud.services += [clouds.service('kvm')]
        self.assertEqual(['east', 'west', 'kvm'], [
            s.host for s in self.cloud.survey().computes('east')])
        # Not for records, which take 4 ms each of nova-api.
        self.assertEqual({'/os-services': 1}, dict(self.cloud.asked))

    def test_whether_a_host_is_one_of_bare_metal(self):
        machine = '0f834a14-9b6f-4a92-8d9c-1f0e7a6f3b11'
        self.cloud.servers = [
            clouds.server('s-0', 'east', machine),
            clouds.server('s-1', 'kvm-1', 'KVM-1.example.org'),
            clouds.server('s-2', 'kvm-2.example.org', 'kvm-2'),
            clouds.server('s-3', 'vmware', 'domain-c26'),
            clouds.server('s-4', 'claimed')]
        for host, found in (('east', True), ('kvm-1', False),
                            ('kvm-2.example.org', False), ('vmware', False),
                            ('claimed', None), ('empty', None)):
            self.cloud.asked.clear()
            self.assertIs(found, self.cloud.survey().bare_metal(host))
            self.assertEqual({'/servers/detail': 1}, dict(self.cloud.asked))

    def test_servers_on_their_way(self):
        self.cloud.migrations = [
            ('s-0', 'east', 'accepted'), ('s-1', 'east', 'failed'),
            ('s-2', 'west', 'accepted'), ('s-3', 'east', 'pre-migrating')]
        self.assertEqual({'s-0', 's-3'}, set(
            self.cloud.survey().migrations(host='east').values()))

    def test_what_is_changed(self):
        [east, _] = self.cloud.survey().computes('east')
        self.cloud.survey().change(east, {'forced_down': True})
        [east, west] = self.cloud.survey().computes('east')
        self.assertEqual((True, False), (east.forced_down, west.forced_down))
        self.assertLessEqual('compute 2.53',
                             self.cloud.versions['/os-services/id-east'])

    def test_what_is_changed_while_another_cell_is_away(self):
        self.cloud.services += [clouds.service('far')]
        self.cloud.away = {'far'}
        cloud = self.cloud.survey()
        for body, state in (
                ({'forced_down': True, 'status': 'disabled',
                  'disabled_reason': 'fan'}, (True, True, 'fan')),
                ({'forced_down': False}, (False, True, 'fan')),
                ({'status': 'enabled'}, (False, False, '')),
                ({'status': 'disabled', 'disabled_reason': 'x'},
                 (False, True, 'x')),
                ({'forced_down': True}, (True, True, 'x')),
                ({'forced_down': False, 'status': 'enabled'},
                 (False, False, ''))):
            east = cloud.computes('east')[0]
            cloud.change(east, body)
            east = cloud.computes('east')[0]
            self.assertEqual(
                state, (east.forced_down, east.disabled, east.reason))
        self.cloud.away = {'far', 'east'}
        self.assertIn('/os-services/id-east with HTTP 500', str(
            self.assertRaises(cloud_state.Unanswered, cloud.change, east,
                              {'forced_down': True})))

    def test_nothing_to_be_changed(self):
        cloud = self.cloud.survey()
        cloud.change(cloud.computes('east')[0], {})
        self.assertEqual([], self.cloud.changes)

    def test_a_proxy_that_does_not_wait_for_nova(self):
        body = {'forced_down': True, 'status': 'disabled',
                'disabled_reason': 'fan'}

        def late(request, context):
            self.cloud.services[0].update(body)
            context.status_code = 504
            return {}

        self.cloud.http.put(f'{clouds.NOVA}/os-services/id-east', json=late)
        cloud = self.cloud.survey()
        cloud.change(cloud.computes('east')[0], body)
        self.assertEqual('fan', cloud.computes('east')[0].reason)

    def test_changes_that_nova_refuses(self):
        cloud = self.cloud.survey()
        [east, _] = cloud.computes('east')
        for status, answer, words in (
                (400, {'badRequest': {'message': 'It has\n done.'}},
                 'HTTP 400: It has done.'),
                (400, ['secret'], 'HTTP 400. Look into its log'),
                (403, {}, 'role admin in a project'),
                (404, {'itemNotFound': {'message': 'no'}}, 'HTTP 404: no.'),
                (406, {}, 'too old'),
                (500, {'computeFault': {'message': 'secret'}},
                 'HTTP 500. Look into its log')):
            self.cloud.http.put(clouds.CHANGE, json=answer,
                                status_code=status)
            told = str(self.assertRaises(
                cloud_state.CloudError, cloud.change, east,
                {'forced_down': True}))
            self.assertIn(words, told)
            self.assertNotIn('secret', told)


class DoubtTestCase(SurveyTestCase):
    """A node is held for a server that is not in the list."""

    def setUp(self):
        super().setUp()
        self.cloud.nodes[1] = clouds.node('n-1', instance_uuid='s-1')

    def test_nova_does_not_have_it(self):
        seen = self.cloud.survey().read()
        self.assertEqual([('leaked-machine', 'n-1')], self.kinds(seen))
        self.assertEqual(
            (1, 0), (self.cloud.asked['/servers/s-1'],
                     self.cloud.asked['/servers/s-0']))

    def test_nova_has_deleted_it(self):
        self.cloud.deleted = ['s-1']
        seen = self.cloud.survey().read()
        self.assertEqual(['n-1'], [n.uuid for n in seen.leaked()])
        self.assertEqual([('leaked-machine', 'n-1')], self.kinds(seen))

    def test_it_is_new_or_hidden(self):
        self.cloud.unlisted = [clouds.server('s-1', 'east', 'n-1')]
        self.assertEqual([], self.kinds(self.cloud.survey().read()))

    def then(self, nodes):
        """Let Ironic have other nodes once the servers are listed."""
        listed = self.cloud._servers

        def answer(request, context):
            self.cloud.nodes = nodes
            return listed(request, context)

        self.cloud.http.get(f'{clouds.NOVA}/servers/detail', json=answer)

    def test_it_went_between_two_looks(self):
        self.then([self.cloud.nodes[0], clouds.node('n-1'),
                   self.cloud.nodes[2]])
        seen = self.cloud.survey().read()
        self.assertEqual({'n-0'}, seen.used_nodes)
        self.assertEqual([], self.kinds(seen))

    def test_the_node_went_too(self):
        self.then([self.cloud.nodes[0], self.cloud.nodes[2]])
        seen = self.cloud.survey().read()
        self.assertEqual(['n-0', 'n-2'], [n.uuid for n in seen.nodes])


class ErrorTestCase(SurveyTestCase):

    def refused(self):
        return str(self.assertRaises(cloud_state.CloudError,
                                     self.cloud.survey().read))

    def test_account_that_sees_no_node(self):
        self.cloud.nodes = []
        told = self.refused()
        self.assertIn('records of 3', told)
        self.assertIn('--os-baremetal-cloud', told)

    def test_cloud_without_nodes(self):
        self.cloud.nodes = self.cloud.hypervisors = self.cloud.servers = []
        self.cloud.providers = []
        self.assertEqual([], self.kinds(self.cloud.survey().read()))

    def test_forbidden(self):
        for path, words in (
                (f'{clouds.NOVA}/os-services', 'role admin in a project'),
                (f'{clouds.NOVA}/servers/detail', 'role admin in a project'),
                (f'{clouds.PLACEMENT}/resource_providers', 'role admin'),
                (f'{clouds.IRONIC}/nodes', 'system scope')):
            with clouds.FakeCloud() as self.cloud:
                self.cloud.http.get(path, status_code=403)
                told = self.refused()
            self.assertIn(words, told)
            self.assertIn(path.rpartition('/')[2], told)

    def test_too_old_for_what_is_asked(self):
        for path, words in (
                (f'{clouds.NOVA}/os-services', 'nova is too old'),
                (f'{clouds.IRONIC}/nodes', 'Ironic is too old')):
            with clouds.FakeCloud() as self.cloud:
                self.cloud.http.get(path, status_code=406)
                told = self.refused()
            self.assertIn(words, told)
            self.assertIn('microversion', told)

    def test_answers_of_other_kinds(self):
        for answer, words in (
                ({'status_code': 401}, 'does not accept the token'),
                ({'status_code': 500, 'text': 'secret'}, 'HTTP 500'),
                ({'status_code': 404}, 'HTTP 404'),
                ({'text': '<html>secret</html>'}, 'not JSON'),
                ({'exc': requests.exceptions.ConnectionError('refused')},
                 f'Ironic does not answer at {clouds.IRONIC}'),
                ({'exc': requests.exceptions.Timeout('late')},
                 f'Ironic does not answer at {clouds.IRONIC}'),
                ({'exc': requests.exceptions.SSLError('certificate')},
                 'certificate')):
            self.cloud.http.get(f'{clouds.IRONIC}/nodes', **answer)
            told = self.refused()
            self.assertIn(words, told)
            self.assertNotIn('secret', told)

    def test_answers_that_are_not_as_the_api_has_them(self):
        for path, answer in (
                (f'{clouds.IRONIC}/nodes', {'error': 'away'}),
                (f'{clouds.NOVA}/os-services', ['away']),
                (f'{clouds.NOVA}/servers/detail', {'servers': [{}]}),
                (f'{clouds.PLACEMENT}/resource_providers', 'away')):
            with clouds.FakeCloud() as self.cloud:
                self.cloud.http.get(path, json=answer)
                told = self.refused()
            self.assertIn('what its APIs do not have', told)
            self.assertIn('endpoints in the catalog', told)

    def test_cell_that_does_not_answer(self):
        self.cloud.services += [clouds.service('far')]
        self.cloud.away = {'far'}
        self.assertIn('cell of far', self.refused())

    def test_cell_that_goes_away_while_the_others_are_asked(self):
        # nova has left its servers out, without a word.
        servers = self.cloud._servers

        def lose(request, context):
            self.cloud.away = {'east'}
            return servers(request, context)

        self.cloud.http.get(f'{clouds.NOVA}/servers/detail', json=lose)
        self.assertIn('cell of east', self.refused())

    def test_computes_besides_a_cell_that_does_not_answer(self):
        self.cloud.services += [clouds.service('far')]
        self.cloud.away = {'far'}
        cloud = self.cloud.survey()
        self.assertEqual(
            [('east', True), ('west', True), ('far', False)],
            [(s.host, s.reached) for s in cloud.computes('east')])
        self.assertIn('cell of far', str(self.assertRaises(
            cloud_state.CloudError, cloud.computes, 'Far')))

    def test_servers_of_which_nova_does_not_say_where_they_are(self):
        del self.cloud.servers[0]['OS-EXT-SRV-ATTR:host']
        self.assertIn('where server s-0 is', self.refused())

    def test_list_that_changes_while_it_is_read(self):
        shown = self.cloud._hypervisors

        def answer(request, context):
            found = shown(request, context)
            del self.cloud.hypervisors[0]
            return found

        self.cloud.http.get(f'{clouds.NOVA}/os-hypervisors/detail',
                            json=answer)
        with mock.patch.object(api, 'PAGE', 1):
            self.assertRaises(
                cloud_state.Unanswered, self.cloud.survey().read)


CLOUDS = """
clouds:
  one:
    auth: &auth
      auth_url: http://keystone.test/v3
      username: admin
      password: a-secret
      user_domain_id: default
      project_name: admin
      project_domain_id: default
  impatient:
    api_timeout: 7
    auth: *auth
  empty:
    region_name: Nowhere
"""


class ConnectTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        path = self.useFixture(fixtures.TempDir()).join('clouds.yaml')
        with open(path, 'w') as clouds:
            clouds.write(CLOUDS)
        self.useFixture(fixtures.EnvironmentVariable(
            'OS_CLIENT_CONFIG_FILE', path))
        self.useFixture(fixtures.EnvironmentVariable('OS_CLOUD'))
        self.http = self.useFixture(requests_mock_fixture.Fixture())

    def refused(self, *clouds):
        def read():
            return cloud_client.connect(*clouds).read()

        told = str(self.assertRaises(cloud_state.CloudError, read))
        self.assertNotIn('a-secret', told)
        return told

    def keystone(self, **answer):
        self.http.get('http://keystone.test/v3', json={'version': {
            'id': 'v3.14', 'status': 'stable', 'links': [
                {'rel': 'self', 'href': 'http://keystone.test/v3'}]}})
        self.http.post('http://keystone.test/v3/auth/tokens', **answer)

    def test_no_such_entry(self):
        told = self.refused('nix')
        self.assertIn('nix', told)
        self.assertIn('--os-cloud', told)

    def test_no_such_entry_for_ironic(self):
        self.assertIn('--os-baremetal-cloud', self.refused('one', 'nix'))

    def test_entry_without_credentials(self):
        self.assertIn('credentials', self.refused('empty'))

    def test_entry_of_the_environment(self):
        self.useFixture(fixtures.EnvironmentVariable('OS_CLOUD', 'nix'))
        self.assertIn('nix', self.refused())

    def test_wrong_password(self):
        self.keystone(status_code=401, json={'error': {
            'message': 'It requires authentication.', 'code': 401,
            'title': 'Unauthorized'}})
        told = self.refused('one')
        self.assertIn('Keystone refuses the credentials', told)

    def test_keystone_is_down(self):
        self.http.get('http://keystone.test/v3',
                      exc=requests.exceptions.ConnectionError('refused'))
        self.http.post('http://keystone.test/v3/auth/tokens',
                       exc=requests.exceptions.ConnectionError('refused'))
        self.assertIn('Keystone does not answer at http://keystone.test/v3: '
                      'refused. ', self.refused('one'))

    def test_keystone_has_too_much_to_do(self):
        for status in 408, 429, 503, 504:
            self.keystone(status_code=status)
            self.assertRaises(
                cloud_state.Unanswered, cloud_client.connect('one').computes)

    def test_no_answer_is_waited_for_without_end(self):
        self.keystone(status_code=401)
        self.refused('one')
        self.assertEqual(api.PATIENCE, self.http.last_request.timeout)
        self.refused('impatient')
        self.assertEqual(7, self.http.last_request.timeout)

    def authenticated(self, **urls):
        """Let keystone accept, and its catalog have these services."""
        self.keystone(
            status_code=201, headers={'X-Subject-Token': 'token'},
            json={'token': {
                'methods': ['password'], 'user': {
                    'id': 'u', 'name': 'admin',
                    'domain': {'id': 'default', 'name': 'Default'}},
                'issued_at': '2026-01-01T00:00:00.000000Z',
                'expires_at': '2226-01-01T00:00:00.000000Z',
                'catalog': [{'type': name, 'id': name, 'name': name,
                             'endpoints': [
                                 {'id': name, 'interface': 'public',
                                  'region': '', 'url': url}]}
                            for name, url in urls.items()]}})

    def closed(self):
        """Return the URL of a port that refuses connections."""
        bound = socket.socket()
        self.addCleanup(bound.close)
        # Without listen().
        bound.bind(('127.0.0.1', 0))
        url = 'http://127.0.0.1:{1}'.format(*bound.getsockname())
        self.http.register_uri(
            requests_mock.ANY, re.compile(re.escape(url)), real_http=True)
        return url

    def test_keystone_refuses_connections(self):
        for path in '', '/v3':
            url = self.closed() + path
            self.useFixture(fixtures.EnvironmentVariable('OS_AUTH_URL', url))
            for name in 'USERNAME', 'PASSWORD', 'PROJECT_NAME':
                self.useFixture(fixtures.EnvironmentVariable(
                    f'OS_{name}', 'a-secret'))
            for name in 'USER', 'PROJECT':
                self.useFixture(fixtures.EnvironmentVariable(
                    f'OS_{name}_DOMAIN_ID', 'default'))
            self.assertEqual(
                f'Keystone does not answer at {url}: Connection refused. '
                'Start it, or look at the URL and at proxies (no_proxy).',
                self.refused('envvars'))

    def test_a_service_refuses_connections(self):
        url = self.closed()
        self.authenticated(baremetal=f'{url}/bm', compute=f'{url}/nova',
                           placement=f'{url}/placement')
        client = cloud_client.connect('one')
        for ask, words in (
                (client.read, f'Ironic does not answer at {url}/bm: '),
                (client.computes, f'nova does not answer at {url}/nova: '),
                (lambda: client.marked('TRAIT'),
                 f'placement does not answer at {url}/placement: ')):
            told = str(self.assertRaises(cloud_state.Unanswered, ask))
            self.assertEqual(f'{words}Connection refused. ',
                             told[:told.index('Start')])

    def test_a_cause_is_that_of_its_request(self):
        url = self.closed()
        self.authenticated(baremetal=f'{url}/bm', compute='http://nova.test')
        self.http.get('http://nova.test/os-services',
                      exc=requests.exceptions.Timeout)
        client = cloud_client.connect('one')
        try:
            client.read()
        except cloud_state.CloudError:
            # As list does.
            told = str(self.assertRaises(
                cloud_state.CloudError, client.computes))
        self.assertIn('nova does not answer at http://nova.test: ', told)
        self.assertNotIn('refused', told)

    def test_proxy_without_a_service_behind_it(self):
        self.authenticated(baremetal=clouds.IRONIC)
        self.http.get(f'{clouds.IRONIC}/nodes', status_code=503)
        client = cloud_client.connect('one')
        told = str(self.assertRaises(cloud_state.Unanswered, client.read))
        self.assertEqual('Ironic answered /nodes with HTTP 503. '
                         'Look into its log.', told)

    def test_region_without_ironic(self):
        self.authenticated(compute=clouds.NOVA)
        self.assertIn('catalog has no baremetal service',
                      self.refused('one'))
