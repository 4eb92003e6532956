# SPDX-License-Identifier: Apache-2.0

import csv
import io
import json
from unittest import mock

import fixtures

from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.client.commands import base
from nova_ironic_multihost.tests import views


class Terminal(io.StringIO):
    """Keeps what is printed on it."""

    def isatty(self):
        return True


class CommandTestCase(base.ShellTestCase):

    def json(self, *argv):
        status, out, err = self.shell(*argv, '-f', 'json')
        self.assertEqual(0, status, err)
        return json.loads(out)


class HealthyTestCase(CommandTestCase):
    """Two computes, three nodes, one server; nothing is wrong."""

    def test_list(self):
        east, west = self.json('list', '--long')
        self.assertEqual({
            'Host': 'east', 'State': 'up', 'Status': 'enabled', 'Nodes': 2,
            'Free': 1, 'Used': 1, 'Balance': 1, 'Leaked': 0,
            'Taking over': 0, 'Partition': 'all', 'Zone': None,
            'Last heartbeat': '2026-01-01T00:00:10Z'}, east)
        self.assertEqual(('west', 1), (west['Host'], west['Free']))

    def test_fits_a_terminal(self):
        self.cloud.services[0].update(host='compute-000001.example',
                                      forced_down=True, status='disabled')
        self.cloud.hypervisors[0]['service']['host'] = 'compute-000001.example'
        for line in self.shell('list')[1].splitlines():
            self.assertLessEqual(len(line), 80)

    def test_colours_on_a_terminal(self):
        self.cloud.services[0].update(state='down')
        self.useFixture(fixtures.EnvironmentVariable('NO_COLOR'))
        with mock.patch.object(io, 'StringIO', Terminal):
            self.assertIn(' \x1b[31mdown\x1b[0m ', self.shell('list')[1])
            self.assertIn(
                '\x1b[31mdown\x1b[0m', self.shell('list', '--nova')[1])
            self.assertEqual('down', self.json('list')[0]['State'])
            sorted_by = self.json('list', '--sort-column', 'State')
            self.assertEqual(['down', 'up'],
                             [one['State'] for one in sorted_by])
            self.useFixture(fixtures.EnvironmentVariable('NO_COLOR', '1'))
            self.assertNotIn('\x1b', self.shell('list')[1])

    def test_formats(self):
        found = self.shell('list', '-f', 'csv', '-c', 'Host', '-c', 'Free')[1]
        self.assertEqual([['Host', 'Free'], ['east', '1'], ['west', '1']],
                         list(csv.reader(io.StringIO(found))))
        self.assertIn('- Balance: 1.0\n', self.shell('list', '-f', 'yaml')[1])

    def test_list_of_what_nova_says(self):
        self.cloud.services += [
            clouds.service('far'),
            clouds.service('Kvm', state='down', status='disabled')]
        self.cloud.away = {'far'}
        for url in clouds.IRONIC, clouds.PLACEMENT:
            self.cloud.http.get(url, status_code=503)
        self.assertEqual(
            (0, 'east up enabled\nfar unknown \nKvm down disabled\n'
             'west up enabled\n'),
            self.shell('list', '--nova', '-f', 'value')[:2])
        self.assertEqual({'/os-services': 1}, dict(self.cloud.asked))

    def test_list_of_what_nova_says_when_ironic_does_not_answer(self):
        self.cloud.http.get(f'{clouds.IRONIC}/nodes', status_code=503)
        status, out, err = self.shell('list', '-f', 'value')
        self.assertEqual((2, 'east up enabled\nwest up enabled\n'),
                         (status, out))
        self.assertIn('Only the columns of nova', err)
        self.assertIn('Ironic answered /nodes with HTTP 503', err)
        self.cloud.http.get(f'{clouds.NOVA}/os-services', status_code=503)
        status, out, err = self.shell('list', '-f', 'value')
        self.assertEqual((2, ''), (status, out))
        self.assertIn('nova answered', err)

    def test_times_that_are_none(self):
        for time in 'nan', 'inf', '1e12', '-1':
            status, _, err = self.shell('check', f'--wait={time}')
            self.assertEqual(2, status)
            self.assertIn('0 or more seconds', err)

    def test_check(self):
        status, out, err = self.shell('check', '-f', 'json')
        self.assertEqual((0, []), (status, json.loads(out)))
        self.assertIn('each node has exactly one owner', err)
        self.assertEqual('', self.shell('check')[1])

    def test_check_of_computes_that_must_be_up(self):
        status, out, _ = self.shell('check', '--host', 'nix', '-f', 'value')
        self.assertEqual(1, status)
        self.assertIn('compute-missing nix', out)

    def test_check_of_allocations(self):
        self.cloud.allocations['n-1'] = ['gone']
        self.assertEqual(0, self.shell('check')[0])
        self.assertEqual(1, self.shell('check', '--allocations')[0])

    def test_check_tells_who_does_not_end(self):
        self.cloud.services[0] = clouds.service(
            'east', status='disabled', disabled_reason=(
                'nova-ironic-multihost: stopping since 2026-01-01T00:00:00Z. '
                'Its next start enables it again. To keep it disabled disable'
                ' it with a reason of your own.'))
        status, out, _ = self.shell('check', '-f', 'value', '-c', 'Kind')
        self.assertEqual((1, 'still-stopping\n'), (status, out))

    def test_leaks(self):
        self.assertEqual((0, '[]\n', 'nova-ironic-multihost: none: each '
                          'machine has a server\n'),
                         self.shell('leaks', '-f', 'json'))

    def test_nodes(self):
        owners = {one['UUID']: one['Owner']
                  for one in self.json('node', 'list')}
        self.assertEqual({'n-0': 'east', 'n-1': 'east', 'n-2': 'west'},
                         owners)

    def test_plan_without_a_change(self):
        self.assertEqual([], [
            one for one in self.json('plan') if one['Held nodes']])


class TroubledTestCase(CommandTestCase):
    """One of everything that can be wrong."""

    CLOUD = clouds.TroubledCloud

    def test_list(self):
        self.assertEqual(
            {'compute-1': ('up', 'enabled', 'rack-a', 2, 0),
             'compute-2': ('down', 'enabled', 'rack-a', 0, 0),
             'compute-3': ('fenced', 'enabled', None, 0, 0),
             'compute-4': ('up', 'disabled', None, 0, 0),
             'compute-5': ('up', 'enabled', None, 0, 1)},
            {one['Host']: (one['State'], one['Status'], one['Zone'],
                           one['Leaked'], one['Taking over'])
             for one in self.json('list', '--long')})

    def test_fenced_and_alive(self):
        def read(cloud, seen):
            return views.changed(seen, 'services', 2, alive=True)

        with mock.patch.object(services, 'with_heartbeats', read):
            self.assertEqual('fenced, alive', self.json('list')[2]['State'])
            out = self.shell('check', '-f', 'value')[1]
        self.assertIn(
            'fenced-alive compute-3 compute-3 is fenced and sends '
            "heartbeats: run 'nova-ironic-multihost unfence compute-3', or "
            'power it off\n', out)

    def test_nodes_are_sorted_by_name(self):
        self.cloud.nodes.reverse()
        self.cloud.nodes[0]['name'] = None
        names = [one['Name'] for one in self.json('node', 'list')]
        self.assertEqual([*sorted(names[:-1]), None], names)

    def test_check(self):
        status, out, err = self.shell('check', '-f', 'value', '-c', 'Kind')
        self.assertEqual(1, status)
        self.assertEqual(2, out.count('instance-on-dead-host'))
        self.assertIn('7 findings', err)

    def test_nodes_of_a_host(self):
        self.assertEqual(
            ['n-0', 'n-1', 'n-2', 'n-3'],
            [one['UUID'] for one in self.json(
                'node', 'list', '--host', 'Compute-1')])

    def test_nodes_of_nobody_known(self):
        status, out, err = self.shell('node', 'list', '--host', 'compute-l')
        self.assertEqual((2, ''), (status, out))
        self.assertIn('"compute-l"', err)
        self.assertIn('compute-1, compute-2', err)

    def test_nodes_in_a_state(self):
        for state, nodes in (('leaked', ['n-2']),
                             ('unknown server', ['n-3']),
                             ('used', ['n-0', 'n-4', 'n-6']),
                             ('no server', [])):
            self.assertEqual(nodes, [one['UUID'] for one in self.json(
                'node', 'list', '--state', state)])

    def test_nodes_that_move(self):
        moving = {one['UUID']: one['Next'] for one in self.json(
            'node', 'list', '--moving')}
        self.assertNotIn('n-0', moving)
        self.assertNotIn('n-4', moving)
        self.assertIn('rule 3', moving['n-6'])
        self.assertIn('rule 7', moving['n-11'])
        self.assertIn('rule 9', moving['n-8'])

    def test_more_of_nodes(self):
        found = {one['UUID']: one for one in self.json(
            'node', 'list', '--long')}
        self.assertEqual(
            ('s-0', 'active', 'all', 'rack-a', False),
            tuple(found['n-0'][name] for name in (
                'Server', 'Provision state', 'Partition', 'Zone', 'Barred')))
        self.assertIs(True, found['n-8']['Barred'])
        self.assertNotIn('Server', self.json('node', 'list')[0])

    def test_node_without_a_name(self):
        for one in self.cloud.nodes[1:]:
            one['name'] = f'called-{one["uuid"]}'
        self.cloud.nodes[0]['name'] = None
        self.assertIn('no node ""', self.shell('node', 'show', '')[2])

    def test_node(self):
        found = self.json('node', 'show', 'rack1-u00')
        self.assertEqual(
            ('n-0', 'compute-1', 'used', 's-0', 'compute-1', None),
            tuple(found[name] for name in (
                'uuid', 'owner', 'state', 'server', 'server_host', 'next')))
        self.assertIn('(rule 1)', found['why'])
        self.assertEqual('2026-01-01T00:00:05Z',
                         found['provision_state_since'])
        for name in 'n-0', 's-0', 'web':
            self.cloud.servers[0]['name'] = 'web'
            self.assertEqual(found, self.json('node', 'show', name))

    def came_by(self, node):
        found = self.json('node', 'show', node)
        return found['came_by'], found['owner_since']

    def test_why_a_node_came_and_when(self):
        for node in 'n-0', 'n-8':
            self.assertEqual(('not known', None), self.came_by(node))
        [preferred] = [one['Preferred'] for one in self.json('node', 'list')
                       if one['UUID'] == 'n-8']
        self.cloud.hypervisors[8]['service']['host'] = preferred
        self.assertEqual(('ring: the hash ring prefers this host', None),
                         self.came_by('n-8'))
        self.cloud.built['s-0'] = 'Compute-1', '2026-01-01T00:00:03.000000'
        self.assertEqual(('build: its server was built there',
                          '2026-01-01T00:00:03Z'), self.came_by('n-0'))
        self.cloud.built['s-0'] = 'compute-9', '2026-01-01T00:00:03.000000'
        self.assertEqual(('takeover: its server was built on compute-9', None),
                         self.came_by('n-0'))

    def test_node_of_a_server_that_is_none(self):
        for one in self.cloud.servers:
            one['name'] = 'web'
        err = self.shell('node', 'show', 'web')[2]
        self.assertIn('uuid: s-0, s-4, s-6.', err)
        self.cloud.servers.append(clouds.server('s-9'))
        status, out, err = self.shell('node', 'show', 's-9')
        self.assertEqual((2, ''), (status, out))
        self.assertIn('no bare metal server of this name that has a node', err)
        self.cloud.servers[-1]['OS-EXT-SRV-ATTR:hypervisor_hostname'] = 'n-1'
        self.assertEqual('n-1', self.json('node', 'show', 's-9')['uuid'])

    def test_node_of_a_fenced_one(self):
        found = self.json('node', 'show', 'n-6')
        self.assertEqual('taken over by compute-5, was spawning',
                         found['server_task'])
        self.assertIn('not up', found['why'])
        self.assertIn('takes it', found['next'])
        self.assertIn('(rule 3)', found['next'])

    def test_node_of_a_dead_one(self):
        self.assertIn('takes it when compute-2 is fenced',
                      self.json('node', 'show', 'n-4')['next'])

    def test_node_of_nobody(self):
        found = self.json('node', 'show', 'n-11')
        self.assertEqual((None, 'no compute service has a record of it'),
                         (found['owner'], found['why']))
        out = self.shell('node', 'show', 'n-11')[1]
        self.assertIn('2026-01-01T00:00:05Z', out)

    def test_node_without_provider(self):
        del self.cloud.providers[0]
        self.assertIsNone(self.json('node', 'show', 'n-0')['barred'])

    def test_no_such_node(self):
        status, out, err = self.shell('node', 'show', 'nix')
        self.assertEqual((2, ''), (status, out))
        self.assertIn('no node "nix"', err)

    def test_leaks(self):
        [deleted, unknown] = self.json('leaks')
        self.assertEqual(('n-2', 'leaked', 'compute-1'), (
            deleted['Node'], deleted['Held for'], deleted['Freed by']))
        self.assertEqual(('n-3', None), (
            unknown['Node'], unknown['Freed by']))

    def test_plan(self):
        status, out, err = self.shell(
            'plan', '--remove', 'compute-1', '-f', 'json')
        self.assertEqual(0, status)
        self.assertIn(
            {'From': 'compute-1', 'To': 'compute-5', 'Free nodes': 1,
             'Held nodes': 2}, json.loads(out))
        self.assertIn('11 of 12 nodes would move (8 of them anyway)', err)
        self.assertIn('nobody would take', err)

    def test_plan_across_zones(self):
        held = {False: [None], True: ['compute-5']}
        for crossing, targets in held.items():
            moves = self.json(
                *['--move-across-zones'] * crossing,
                'plan', '--remove', 'compute-1')
            self.assertEqual(
                set(targets) | {'compute-5'},
                {move['To'] for move in moves
                 if move['From'] == 'compute-1'})

    def test_plan_with_other_rings(self):
        self.assertNotEqual(
            self.json('plan', '--add', 'new'),
            self.json('--ring-partitions', '1', 'plan', '--add', 'new'))

    def test_plan_that_makes_no_sense(self):
        status, _, err = self.shell('plan', '--remove', 'nix')
        self.assertEqual(2, status)
        self.assertIn('no compute service nix', err)
