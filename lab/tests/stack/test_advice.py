# SPDX-License-Identifier: Apache-2.0

"""What pages, findings and log lines advise is done, and helps.

Each command is run, as it is written there, in the state for which it is
advised; afterwards the check finds nothing. Which commands there are, and
which no test runs: nova_ironic_multihost/tests/unit/doc/test_advice.py.
"""

import datetime
import json
import re
import uuid

from lab.tests.stack import command
from lab.tests.stack import operating
from nova_ironic_multihost.rules import liveness

#: A command in a sentence of a finding.
COMMAND = re.compile(
    r'"((?:openstack|nova-manage|nova-ironic-multihost repair) [^"]+)"')

SQL = re.compile('UPDATE compute_nodes SET deleted [^;]+')


class AdviceTestCase(operating.OperatingTestCase):
    """One lab has it all; each test begins without servers."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        up = command.Command('up', '--reset', *command.SMALL)
        if up.status:
            raise RuntimeError(up.errors)

    def setUp(self):
        super().setUp()
        self.lab('delete', '--all')
        self.lab('check', '--wait', str(operating.PATIENCE))

    def test_what_shows_where_one_is(self):
        server = self.boot()
        node, host = server['node'], server['host']
        hypervisors, computes, servers, owner, shown = self.read(
            'openstack hypervisor list',
            'openstack compute service list --service nova-compute --long',
            f'openstack server list --all-projects --host {host}',
            f'openstack hypervisor show {node} -c service_host',
            f'openstack server show {server["id"]}')
        self.assertEqual([9, 3], [len(hypervisors), len(computes)])
        self.assertIn(server['id'], {one['ID'] for one in servers})
        self.assertEqual({'service_host': host}, owner)
        self.assertEqual(node, shown['OS-EXT-SRV-ATTR:hypervisor_hostname'])
        nodes, vifs, ports = self.read(
            'openstack baremetal node list --long',
            f'openstack baremetal node vif list {node}',
            f'openstack port list --device-id {server["id"]}')
        self.assertEqual(9, len(nodes))
        self.assertEqual([one['ID'] for one in ports],
                         [one['ID'] for one in vifs])

        provider, = self.read(
            f'openstack resource provider show --allocations {node}')
        self.assertEqual([server['id']], list(provider['allocations']))
        providers, traits = self.read(
            'openstack --os-placement-api-version 1.6 resource provider list',
            'openstack --os-placement-api-version 1.6 '
            f'resource provider trait list {node}')
        self.assertEqual(9, len(providers))
        self.assertIn({'name': 'OWNER_NOVA'}, traits)

        migrations, events = self.read(
            f'openstack server migration list --server {server["id"]}',
            f'openstack server event list {server["id"]}')
        self.assertEqual([0, 1], [len(migrations), len(events)])
        event, = self.read(
            'openstack --os-compute-api-version 2.84 server event show '
            f'{server["id"]} {events[0]["Request ID"]}')
        self.assertEqual('create', event['action'])

    def test_aggregates(self):
        [host] = self.read('openstack compute service list')[0][-1:]
        # nova knows a host by its first node.
        self.until(lambda: self.row(host['Host'])['Nodes'])
        self.follow('openstack aggregate create rack-7',
                    f'openstack aggregate add host rack-7 {host["Host"]}')
        [aggregate] = self.read('openstack --os-compute-api-version 2.41 '
                                'aggregate show rack-7 -c uuid')
        self.until(lambda: self.row(host['Host'])['Nodes'] == len(self.read(
            'openstack --os-placement-api-version 1.14 resource provider list '
            f'--member-of {aggregate["uuid"]}')[0]))
        self.follow(f'openstack aggregate remove host rack-7 {host["Host"]}')

    def test_allocations(self):
        server = self.boot()
        allocation = 'openstack resource provider allocation'
        inventory = 'openstack resource provider inventory'
        [[found]] = self.read(f'{inventory} list {server["node"]}')
        self.assertEqual(1, found['reserved'])
        name = found['resource_class']
        self.follow(f'{allocation} delete {server["id"]}')
        self.repaired(f'instance-without-allocation:{server["id"]}')

        # It has not 1 of 1 resource class.
        self.follow(f'{allocation} delete {server["id"]}',
                    f'{inventory} set {server["node"]} --amend '
                    f'--resource {name}:total=2 --resource {name}:reserved=0 '
                    f'--resource {name}:max_unit=2')
        _, said, _ = self.ask('repair', '-f', 'json')
        [advised] = COMMAND.findall(json.loads(said)[0]['Sentence'])
        self.assertEqual('nova-manage placement heal_allocations --instance '
                         + server['id'], advised)
        self.follow(advised)
        self.is_clean()

        node = self.free_node()
        ghost = uuid.uuid4()
        self.follow(f'{allocation} set {ghost} --allocation rp={node},{name}=1'
                    f' --project-id {ghost} --user-id {ghost}')
        finding = f'allocation-without-instance:{ghost}'
        self.assertEqual([f'nova-ironic-multihost repair {finding}'],
                         self.advised('allocation-without-instance'))
        _, said, _ = self.ask('repair', finding, '-f', 'json')
        [advised] = COMMAND.findall(json.loads(said)[0]['Sentence'])
        self.assertEqual(
            f'openstack resource provider allocation delete {ghost}', advised)
        self.follow(advised)
        self.is_clean()

    def test_provider_without_node(self):
        stray = str(uuid.uuid4())
        self.follow(f'openstack resource provider create --uuid {stray} '
                    f'{stray}')
        self.repaired(f'provider-without-node:{stray}')

    def test_machines_of_nobody(self):
        node = self.free_node()
        for state, how in (
                ('available', 'openstack baremetal node unset '
                 '--instance-uuid'),
                ('clean failed', 'openstack baremetal node unset '
                 '--instance-uuid'),
                ('active', 'openstack baremetal node undeploy')):
            with self.subTest(state):
                self.sql('UPDATE ironic.nodes SET instance_uuid = UUID(), '
                         f"provision_state = '{state}', "
                         'target_provision_state = NULL, '
                         f"updated_at = UTC_TIMESTAMP() WHERE uuid = '{node}'")
                self.advised('leaked-machine')
                [leak] = self.listed('leaks')
                [advised] = COMMAND.findall(leak['Next'])
                self.assertEqual(f'{how} {node}', advised)
                self.follow(advised)
                self.until(lambda: not self.listed('leaks'))
        self.is_clean()

    def test_second_record(self):
        node = self.free_node()
        owner = self.shown('node', 'show', node)['owner']
        other = next(host for host in sorted(self.each('Host'))
                     if host != owner)
        second = uuid.uuid4()
        self.sql(
            'BEGIN NOT ATOMIC CREATE TEMPORARY TABLE nova_cell1.copied AS '
            f"SELECT * FROM nova_cell1.compute_nodes WHERE uuid = '{node}'; "
            f"UPDATE nova_cell1.copied SET id = 0, uuid = '{second}', "
            f"host = '{other}', service_id = NULL; "
            'INSERT INTO nova_cell1.compute_nodes '
            'SELECT * FROM nova_cell1.copied; END')
        self.follow('openstack --os-placement-api-version 1.20 '
                    f'resource provider create --uuid {second} {second}')
        found = []

        def is_found():
            found[:] = [one for one in self.found()
                        if one['Kind'] == 'second-record']
            return found

        self.until(is_found, self.found)
        [found] = found
        [statement] = SQL.findall(found['Sentence'])
        self.sql(statement.replace('compute_nodes',
                                   'nova_cell1.compute_nodes'))
        [advised] = COMMAND.findall(found['Sentence'])
        self.assertEqual(f'openstack resource provider delete {second}',
                         advised)
        self.follow(advised)
        self.is_clean()

    def test_server_without_a_machine(self):
        server = self.boot()
        self.follow(f'openstack baremetal node undeploy {server["node"]}')
        self.until(lambda: 'instance-without-machine' in self.kinds())
        self.follow(f'openstack server delete {server["id"]}')
        self.is_clean()

    def test_node_that_stays_barred(self):
        node = self.free_node()
        owner = self.shown('node', 'show', node)['owner']
        self.sql(
            'INSERT INTO placement.resource_provider_traits '
            '(trait_id, resource_provider_id) SELECT t.id, p.id '
            'FROM placement.traits t, placement.resource_providers p '
            "WHERE t.name = 'COMPUTE_STATUS_DISABLED' "
            f"AND p.uuid = '{node}'")
        self.assertEqual({'free-node-barred'}, self.kinds())
        self.follow(*(
            f'openstack compute service set --{how} {owner} nova-compute'
            for how in ('disable', 'enable')))
        self.is_clean()

    def test_stopped_and_started_with_novas_driver(self):
        self.addCleanup(self.lab, 'up', '--reset', *command.SMALL)
        self.lab('up', '--reset', '--driver', 'stock', *command.SMALL)
        long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(
            hours=1)
        self.sql('UPDATE nova_cell1.services SET disabled = 1, '
                 f"disabled_reason = '{liveness.stop_marker_text(long_ago)}' "
                 "WHERE host = 'compute-1'")
        advised = self.advised('still-stopping')
        self.assertEqual(['openstack compute service set --enable compute-1 '
                          'nova-compute'], advised)
        self.follow(*advised)
        self.is_clean()

    def test_dead_by_hand_and_back(self):
        server = self.boot()
        dead = server['host']
        self.lab('compute', 'kill', dead)
        # Nobody is at work on it, so it stays.
        self.stick(server, 'rebooting')
        self.until(lambda: {'stuck', 'instance-on-dead-host'}
                   <= self.kinds())
        self.follow(f'openstack server set --state active {server["id"]}')
        self.assertNotIn('stuck', self.kinds())
        self.follow(
            'openstack --os-compute-api-version 2.11 compute service set '
            f'--down {dead} nova-compute',
            'openstack compute service set --disable --disable-reason '
            f"'nova-ironic-multihost: fenced' {dead} nova-compute")
        self.is_clean()
        self.lab('compute', 'start', dead)
        self.follow(
            'openstack --os-compute-api-version 2.11 compute service set '
            f'--up {dead} nova-compute',
            f'openstack compute service set --enable {dead} nova-compute')
        self.takes_part(dead)

        # The new owner dies, too, and a delete is stuck.
        dead = self.shown('node', 'show', server['node'])['owner']
        self.lab('compute', 'kill', dead)
        self.stick(server, 'deleting')
        self.until(lambda: {'stuck', 'instance-on-dead-host'}
                   <= self.kinds())
        self.follow(f'openstack server set --state error {server["id"]}',
                    f'openstack server delete {server["id"]}')
        self.is_clean()

        # It does not come back.
        self.follow(
            f'openstack compute service set --disable {dead} nova-compute')
        self.until(lambda: not self.row(dead)['Nodes'])
        [service] = [one for one in self.read(
            'openstack compute service list --service nova-compute')[0]
            if one['Host'] == dead]
        self.follow(f'openstack compute service delete {service["ID"]}')
        self.is_clean()
        self.assertEqual(2, len(self.rows()))

        # It does.
        self.lab('compute', 'start', dead)
        self.follow('nova-manage cell_v2 discover_hosts --by-service')
        self.takes_part(dead)

    def takes_part(self, host):
        """Wait until it has what the ring gives it, which may be nothing."""
        self.until(lambda: self.row(host)['State'] == 'up' and all(
            node['Owner'] == node['Preferred']
            for node in self.listed('node', 'list', '--state', 'free')))

    def test_delete_that_is_called_off(self):
        server = self.boot()
        self.lock(server['node'], "'gone'")
        self.follow(f'openstack server delete {server["id"]}')
        self.until(lambda: self.state(server).startswith('error'),
                   lambda: self.state(server))
        self.follow(f'openstack server set --state active {server["id"]}')
        self.lock(server['node'], 'NULL')
        self.is_clean()
        self.assertEqual('active\tNULL', self.state(server))

    def boot(self):
        """Have a server."""
        return self.lab('boot', '--json').answer[0]

    def free_node(self):
        """Return one that no server has."""
        return next(row['UUID'] for row in self.listed(
            'node', 'list', '--state', 'free'))

    def stick(self, server, task):
        """Have a server that has been in a task state for hours."""
        self.sql(f"UPDATE nova_cell1.instances SET task_state = '{task}', "
                 'updated_at = UTC_TIMESTAMP() - INTERVAL 2 HOUR '
                 f"WHERE uuid = '{server['id']}'")

    def lock(self, node, conductor):
        """Have Ironic's lock of a node held by nobody, or let go."""
        self.sql(f'UPDATE ironic.nodes SET reservation = {conductor} '
                 f"WHERE uuid = '{node}'")

    def state(self, server):
        """Return what nova's database says of a server."""
        return self.sql('SELECT vm_state, task_state FROM '
                        'nova_cell1.instances WHERE deleted = 0 AND '
                        f"uuid = '{server['id']}'")

    def found(self):
        """Return what the check finds."""
        _, said, errors = self.ask('check', '--allocations', '-f', 'json')
        self.assertTrue(said, errors)
        return json.loads(said)

    def kinds(self):
        """Return the kinds of what the check finds."""
        return {one['Kind'] for one in self.found()}

    def advised(self, kind):
        """Return the commands in the only finding, which is of a kind."""
        found = []

        def only():
            found[:] = self.found()
            return [kind] == [one['Kind'] for one in found]

        self.until(only, lambda: found)
        return COMMAND.findall(found[0]['Sentence'])

    def repaired(self, finding):
        """Repair the only finding, by the command in its sentence."""
        kind, _, _ = finding.partition(':')
        advised = f'nova-ironic-multihost repair {finding}'
        self.assertEqual([advised], self.advised(kind))
        status, said, errors = self.ask(*advised.split()[1:], '-f', 'json')
        self.assertEqual(0, status, errors)
        self.assertEqual(['repaired'],
                         [one['Result'] for one in json.loads(said)])
        self.is_clean()

    def is_clean(self):
        """See that the check finds nothing any more."""
        self.until(lambda: not self.found(), self.found)
