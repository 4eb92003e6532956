# SPDX-License-Identifier: Apache-2.0

import json

from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.client.commands import base


class RepairTestCase(base.ShellTestCase):

    def repair(self, *argv, status=0):
        """Run the command: [(finding, result, sentence)]."""
        ended, out, err = self.shell('repair', *argv, '-f', 'json')
        self.assertEqual(status, ended, out + err)
        return [tuple(row.values()) for row in json.loads(out)]

    def one(self, *argv, status=0):
        """Run the command for one finding: (finding, result, sentence)."""
        [found] = self.repair(*argv, status=status)
        return found

    def provider(self, uuid, name=None):
        self.cloud.providers.append({'uuid': uuid, 'name': name or uuid})

    def deleted(self, server, node):
        """Leave an allocation of a deleted server, on a node of no host."""
        self.cloud.allocations[node] = [server]
        self.cloud.deleted.append(server)
        self.cloud.hypervisors = [
            one for one in self.cloud.hypervisors if one['id'] != node]

    def assertRefused(self, words, *argv):
        """Assert that it is refused, and that nothing was written."""
        _, result, sentence = self.one(*argv, status=1)
        self.assertEqual('refused', result)
        self.assertIn(words, sentence)
        self.assertEqual([], self.cloud.writes)


class CommandTestCase(RepairTestCase):

    def test_nothing_is_found(self):
        status, out, err = self.shell('repair', '-f', 'value')
        self.assertEqual((0, ''), (status, out))
        self.assertIn('0 findings, 0 left', err)

    def test_kind_that_there_is_not(self):
        status, out, err = self.shell('repair', 'leaked')
        self.assertEqual((2, ''), (status, out))
        self.assertIn('of the kinds allocation-without-instance, ', err)

    def test_name_that_is_empty(self):
        # "$KIND:$SUBJECT" with a variable that is not set.
        self.provider('n-9')
        for name in '', ':', ':n-9', 'provider-without-node:':
            status, out, err = self.shell('repair', name)
            self.assertEqual((2, ''), (status, out))
            self.assertIn('Name ', err)
        self.assertIn('"provider-without-node:" names no finding', err)
        self.assertEqual([], self.cloud.writes)

    def test_subject_that_is_not_found(self):
        self.provider('n-9')
        status, out, err = self.shell(
            'repair', 'provider-without-node:n-8', '-f', 'json')
        self.assertEqual((1, []), (status, json.loads(out)))
        self.assertIn('"check --allocations" finds no '
                      'provider-without-node:n-8', err)
        self.assertEqual([], self.cloud.writes)

    def test_of_all_findings_the_named_ones(self):
        self.provider('n-7')
        self.provider('n-8')
        self.deleted('ghost', 'n-1')
        self.assertEqual(
            'allocation-without-instance:ghost',
            self.one('allocation-without-instance')[0])
        self.cloud.providers += [
            {'uuid': f'n-{n}', 'name': f'n-{n}'} for n in range(10, 30)]
        self.cloud.nodes += [clouds.node(f'n-{n}') for n in range(10, 30)]
        self.assertEqual(
            'provider-without-node:n-8',
            self.one('provider-without-node:n-8')[0])
        self.assertEqual(
            [('PUT', '/allocations/ghost'),
             ('DELETE', '/resource_providers/n-8')], self.cloud.writes)

    def test_allocation_first_and_then_its_provider(self):
        self.provider('n-8', 'n-2')
        self.deleted('ghost', 'n-2')
        self.assertEqual(
            ['allocation-without-instance:ghost', 'second-provider:n-8'],
            [row[0] for row in self.repair(status=1)
             if row[1] == 'repaired'])

    def test_dry_run_writes_nothing(self):
        self.provider('n-9')
        self.provider('n-8', 'n-2')
        self.cloud.allocations = {}
        self.deleted('ghost', 'n-1')

        found = self.repair('--dry-run', status=1)
        self.assertEqual([], self.cloud.writes)
        self.assertEqual(
            {'allocation-without-instance:ghost',
             'instance-without-allocation:s-0', 'provider-without-node:n-9',
             'second-provider:n-8'}, {name for name, *_ in found})
        self.assertEqual({'can be repaired'},
                         {result for _, result, _ in found})
        # What was said is what is done.
        self.assertEqual(
            [(name, 'repaired', sentence) for name, _, sentence in found],
            self.repair(status=1))

    def test_service_that_does_not_answer(self):
        self.deleted('ghost', 'n-1')
        self.provider('n-9')
        self.cloud.http.put(
            f'{clouds.PLACEMENT}/allocations/ghost', status_code=503)
        # Nor are the others asked for.
        finding, result, sentence = self.one(status=2)
        self.assertEqual(('allocation-without-instance:ghost', 'failed'),
                         (finding, result))
        self.assertIn('HTTP 503', sentence)
        self.assertIn('Run the same command again', sentence)
        self.assertEqual([], self.cloud.writes)
        self.cloud.http.get(
            f'{clouds.PLACEMENT}/allocations/ghost', status_code=503)
        self.assertEqual(finding, self.one(status=2)[0])

    def test_error_of_one_finding(self):
        self.deleted('a-ghost', 'n-1')
        self.deleted('b-ghost', 'n-2')
        self.provider('n-9')
        self.cloud.http.get(
            f'{clouds.IRONIC}/nodes/n-2', status_code=403, json={})
        found = {name: (result, sentence) for name, result, sentence
                 in self.repair(status=1)}
        self.assertEqual(
            'repaired', found['allocation-without-instance:a-ghost'][0])
        result, sentence = found['allocation-without-instance:b-ghost']
        self.assertEqual('failed', result)
        self.assertIn('Ironic forbids this account /nodes/n-2', sentence)
        self.assertEqual('repaired', found['provider-without-node:n-9'][0])

    def test_odd_answer_to_one_finding(self):
        self.deleted('a-ghost', 'n-1')
        self.deleted('b-ghost', 'n-2')
        self.provider('n-9')
        self.cloud.http.get(
            f'{clouds.PLACEMENT}/allocations/b-ghost', json={'x': 1})
        done, failed = self.repair(status=2)
        self.assertEqual('repaired', done[1])
        self.assertEqual(('allocation-without-instance:b-ghost', 'failed'),
                         failed[:2])
        self.assertIn("KeyError: 'allocations'. That was not expected",
                      failed[2])
        self.assertEqual([('PUT', '/allocations/a-ghost')], self.cloud.writes)
        *_, err = self.shell('--debug', 'repair')
        self.assertIn('Traceback', err)

    def test_check_names_the_command(self):
        self.provider('n-9')
        self.provider('n-8', 'n-2')
        self.cloud.allocations = {'n-1': ['ghost']}
        found = json.loads(self.shell(
            'check', '--allocations', '-f', 'json')[1])
        self.assertEqual(4, len(found))
        for one in found:
            self.assertIn(
                f'"nova-ironic-multihost repair {one["Kind"]}:'
                f'{one["Subject"]}" mends it', one['Sentence'])
        [ghost] = [one for one in found if one['Subject'] == 'ghost']
        self.assertTrue(ghost['Sentence'].endswith(' mends it, or says how'))


class ProviderTestCase(RepairTestCase):

    def setUp(self):
        super().setUp()
        self.provider('n-9')

    def test_repaired(self):
        self.assertEqual(
            ('provider-without-node:n-9', 'repaired',
             'resource provider n-9 is deleted'), self.one())
        self.assertEqual([('DELETE', '/resource_providers/n-9')],
                         self.cloud.writes)
        self.assertEqual([], self.repair())

    def test_of_a_name_that_a_node_has(self):
        self.cloud.providers = [
            one for one in self.cloud.providers
            if one['uuid'] not in ('n-2', 'n-9')]
        self.provider('n-8', 'n-2')
        self.assertEqual(('second-provider:n-8', 'repaired'),
                         self.one(status=1)[:2])
        self.assertIn('1 other finding of "check"',
                      self.shell('repair')[2])
        self.assertEqual([('DELETE', '/resource_providers/n-8')],
                         self.cloud.writes)

    def test_many_are_hidden(self):
        self.provider('n-8')
        found = self.repair(status=1)
        self.assertEqual(['refused'] * 2, [row[1] for row in found])
        self.assertIn('account of system scope', found[0][2])
        self.assertIn('"openstack resource provider delete n-9"',
                      found[0][2])
        self.assertEqual([], self.cloud.writes)

    def test_record_of_a_host(self):
        self.cloud.hypervisors.append(clouds.hypervisor('n-9', 'old'))
        self.cloud.services.append(clouds.service('old', state='down'))
        self.assertRefused('old has a record of node n-9')
        self.assertRefused('"openstack compute service delete id-old"')

    def test_allocation_of_a_server_that_exists(self):
        self.cloud.allocations['n-9'] = ['s-0']
        self.cloud.allocations['n-0'] = []
        self.assertRefused('s-0 has an allocation of it')

    def test_changed_between_look_and_write(self):
        def allocate(method, path):
            self.cloud.allocations['n-9'] = ['s-0']

        self.cloud.before_write = allocate
        self.assertEqual('failed', self.one(status=1)[1])
        self.assertRefused('s-0 has an allocation of it')

    def test_node_that_is_back_by_now(self):
        self.cloud.nodes.append(clouds.node('n-9'))
        nodes = self.cloud.nodes
        self.cloud.nodes = [n for n in nodes if n['uuid'] != 'n-9']
        providers = self.cloud._provider

        def provider(request, context):
            self.cloud.nodes = nodes
            return providers(request, context)

        self.cloud.http.get(
            f'{clouds.PLACEMENT}/resource_providers/n-9', json=provider)
        self.assertEqual('gone', self.one('provider-without-node')[1])
        self.assertEqual([], self.cloud.writes)

    def test_lost_answer(self):
        self.cloud.lost = 1
        self.assertEqual('failed', self.one(status=2)[1])
        self.assertEqual([], self.repair())
        self.assertEqual(1, len(self.cloud.writes))

    def test_cell_that_goes_away(self):
        providers = self.cloud._provider

        def provider(request, context):
            self.cloud.away = {'west'}
            return providers(request, context)

        self.cloud.http.get(
            f'{clouds.PLACEMENT}/resource_providers/n-9', json=provider)
        self.assertIn('cell of west', self.one(status=2)[2])
        self.assertEqual([], self.cloud.writes)


class LeakedAllocationTestCase(RepairTestCase):

    KIND = 'allocation-without-instance'

    def setUp(self):
        super().setUp()
        self.deleted('ghost', 'n-1')

    def test_repaired(self):
        self.assertEqual(
            ('allocation-without-instance:ghost', 'repaired',
             'the allocations of ghost are deleted'), self.one(self.KIND))
        self.assertEqual([], self.cloud.allocations['n-1'])
        self.assertEqual([], self.repair(self.KIND))

    def test_server_whose_owner_is_up(self):
        self.cloud.hypervisors.append(clouds.hypervisor('n-1', 'east'))
        _, result, sentence = self.one(status=1)
        self.assertEqual('refused', result)
        self.assertIn('east frees node n-1 at its next audit', sentence)
        self.assertEqual([], self.cloud.writes)

    def test_server_whose_owner_is_down(self):
        self.cloud.hypervisors.append(clouds.hypervisor('n-1', 'east'))
        self.cloud.services[0] |= {'state': 'down'}
        self.assertEqual('repaired', self.one(self.KIND)[1])

    def test_consumer_that_nova_never_had(self):
        # An operator bars a node with an allocation, or another service
        # has it.
        self.cloud.deleted = ['another']
        _, result, sentence = self.one(self.KIND, status=1)
        self.assertEqual('refused', result)
        self.assertIn('nova has no server ghost, or has archived it', sentence)
        self.assertIn('"openstack resource provider allocation delete ghost"',
                      sentence)
        self.assertEqual([], self.cloud.writes)

    def test_migration_that_is_not_over(self):
        self.cloud.allocations['n-1'] = ['m-s-0']
        self.cloud.migrations = [('s-0', 'east', 'migrating')]
        self.assertRefused('m-s-0 is a migration of server s-0', self.KIND)

    def test_migration_that_is_over(self):
        self.cloud.allocations['n-1'] = ['m-s-0']
        self.cloud.migrations = [('s-0', 'east', 'confirmed')]
        self.assertEqual('refused', self.one(self.KIND, status=1)[1])

    def test_machine_that_runs(self):
        self.cloud.nodes[1] |= {'provision_state': 'active'}
        for held in 'ghost', None:
            self.cloud.nodes[1] |= {'instance_uuid': held}
            [leak] = self.repair(self.KIND, status=1)
            self.assertEqual('refused', leak[1])
            self.assertIn('"nova-ironic-multihost leaks"', leak[2])
        self.assertEqual([], self.cloud.writes)

    def test_node_that_may_have_a_machine(self):
        for state in ('deploying', 'wait call-back', 'deploy failed',
                      'deleting', 'error', 'cleaning', 'clean failed',
                      'rescue', 'inspect failed', 'adopting', ''):
            self.cloud.nodes[1] |= {'provision_state': state}
            self.assertRefused(f'node n-1 is {state}', self.KIND)
        self.cloud.nodes[1] |= {'provision_state': 'available',
                                'instance_uuid': 's-1'}
        self.assertRefused('node n-1 is held for server s-1', self.KIND)

    def test_node_without_a_machine(self):
        for state in 'available', 'manageable', 'enroll':
            self.cloud.allocations['n-1'] = ['ghost']
            self.cloud.nodes[1] |= {'provision_state': state}
            self.assertEqual('repaired', self.one(self.KIND)[1], state)

    def test_node_that_ironic_does_not_show(self):
        del self.cloud.nodes[1]
        # Whether nova shows a record of it or not.
        for records in [], [clouds.hypervisor('n-1', 'east')]:
            self.cloud.hypervisors += records
            self.assertRefused('n-1 is not shown by Ironic', self.KIND)
            self.assertRefused('--os-baremetal-cloud NAME', self.KIND)
            self.assertRefused('"openstack resource provider allocation '
                               'delete ghost"', self.KIND)

    def test_server_that_begins_to_be_built(self):
        # nova lists it after the allocations were read.
        self.cloud.allocations['n-1'] = ['s-9']
        self.cloud.unlisted = [clouds.server('s-9')]
        self.assertEqual('gone', self.one(self.KIND)[1])
        self.assertEqual([], self.cloud.writes)

    def test_changed_between_look_and_write(self):
        def change(method, path):
            self.cloud.before_write = lambda method, path: None
            self.cloud.generations['ghost'] += 1

        self.cloud.before_write = change
        _, result, sentence = self.one(self.KIND, status=1)
        self.assertEqual('failed', result)
        self.assertIn('consumer generation conflict', sentence)
        self.assertEqual('repaired', self.one(self.KIND)[1])
        self.assertEqual(1, len(self.cloud.writes))

    def test_lost_answer(self):
        self.cloud.lost = 1
        self.assertEqual('failed', self.one(self.KIND, status=2)[1])
        self.assertEqual([], self.repair(self.KIND))
        self.assertEqual(1, len(self.cloud.writes))


class LostAllocationTestCase(RepairTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.allocations = {}
        self.cloud.reserved = {'n-0'}

    def test_repaired(self):
        self.assertEqual(
            ('instance-without-allocation:s-0', 'repaired',
             'node n-0 is allocated to server s-0'), self.one())
        self.assertEqual({'n-0': ['s-0']}, self.cloud.allocations)
        self.assertEqual(
            [('PUT', '/resource_providers/n-0/inventories'),
             ('PUT', '/allocations/s-0')], self.cloud.writes)
        self.assertEqual([], self.repair())

    def test_of_a_node_that_is_not_reserved(self):
        self.cloud.reserved = set()
        self.assertEqual('repaired', self.one()[1])
        self.assertEqual([('PUT', '/allocations/s-0')], self.cloud.writes)

    def test_lost_answers(self):
        for lost, left in (1, {}), (2, {}):
            self.cloud.allocations = {}
            self.cloud.reserved = {'n-0'}
            self.cloud.lost = lost
            self.assertEqual('failed', self.one(status=2)[1])
            self.assertEqual((left, {'n-0'}), (
                self.cloud.allocations, self.cloud.reserved))
            self.assertEqual('repaired', self.one()[1])

    def test_server_in_the_middle_of_something(self):
        self.cloud.servers[0]['OS-EXT-STS:task_state'] = 'rebuilding'
        self.assertRefused('not at rest (rebuilding)',
                           'instance-without-allocation')

    def test_server_that_is_being_built(self):
        self.cloud.servers[0]['OS-EXT-STS:vm_state'] = 'building'
        self.assertRefused('not at rest (building)')

    def test_server_with_a_migration(self):
        self.cloud.migrations = [('s-0', 'east', 'accepted')]
        self.assertRefused('not at rest (a migration)')

    def test_machine_of_nobody(self):
        self.cloud.nodes[0] |= {
            'instance_uuid': None, 'provision_state': 'available'}
        _, result, sentence = self.one(
            'instance-without-allocation', status=1)
        self.assertEqual('refused', result)
        self.assertIn('Ironic does not hold node n-0', sentence)
        self.assertEqual([], self.cloud.writes)

    def test_node_of_another_server(self):
        self.cloud.allocations = {'n-0': ['other']}
        self.cloud.unlisted = [clouds.server('other')]
        self.cloud.http.get(f'{clouds.NOVA}/servers/other',
                            json={'server': clouds.server('other')})
        found = self.repair(status=1)[1]
        self.assertEqual('refused', found[1])
        self.assertIn('n-0 is allocated to other', found[2])
        self.assertEqual([], self.cloud.writes)

    def test_build_that_comes_between(self):
        def build(method, path):
            if path.startswith('/allocations'):
                self.cloud.allocations = {'n-0': ['s-9']}

        self.cloud.before_write = build
        self.assertEqual('failed', self.one(status=1)[1])
        self.assertEqual({'n-0'}, self.cloud.reserved)
        _, result, sentence = self.one(
            'instance-without-allocation', status=1)
        self.assertEqual('refused', result)
        self.assertIn('n-0 is allocated to s-9', sentence)

    def test_owner_that_reserves_it_again(self):
        def reserve(method, path):
            if path.startswith('/allocations'):
                self.cloud.before_write = lambda method, path: None
                self.cloud.reserved.add('n-0')
                self.cloud.generations['n-0'] += 1

        self.cloud.before_write = reserve
        self.assertEqual('failed', self.one(status=1)[1])
        self.assertEqual('repaired', self.one()[1])
        self.assertEqual({'n-0': ['s-0']}, self.cloud.allocations)

    def test_owner_that_reserves_it_first(self):
        def reserve(method, path):
            if path.startswith('/allocations'):
                self.cloud.reserved.add('n-0')
                self.cloud.generations['n-0'] += 1

        self.cloud.reserved = set()
        self.cloud.before_write = reserve
        self.assertEqual('failed', self.one(status=1)[1])
        self.assertEqual({'n-0'}, self.cloud.reserved)
        self.assertEqual([], self.cloud.writes)

    def test_allocation_that_fails(self):
        self.cloud.http.put(
            f'{clouds.PLACEMENT}/allocations/s-0', status_code=503)
        _, result, sentence = self.one(status=2)
        self.assertEqual('failed', result)
        self.assertIn('/allocations/s-0 with HTTP 503', sentence)
        self.assertEqual({'n-0'}, self.cloud.reserved)

    def test_placement_that_goes_away_between_the_writes(self):
        def away(request, context):
            self.cloud.http.get(
                f'{clouds.PLACEMENT}/resource_providers/n-0/inventories',
                status_code=502)
            context.status_code = 503

        self.cloud.http.put(
            f'{clouds.PLACEMENT}/allocations/s-0', json=away)
        _, result, sentence = self.one(status=2)
        self.assertEqual('failed', result)
        self.assertIn('/allocations/s-0 with HTTP 503', sentence)

    def test_node_without_an_inventory(self):
        self.cloud.http.get(
            f'{clouds.PLACEMENT}/resource_providers/n-0/inventories',
            json={'resource_provider_generation': 1, 'inventories': {}})
        _, result, sentence = self.one(status=1)
        self.assertEqual('refused', result)
        self.assertIn('"nova-manage placement heal_allocations --instance '
                      's-0"', sentence)
