# SPDX-License-Identifier: Apache-2.0

"""What nova's tracker and placement have of a cloud at rest.

:mod:`.filling` puts in what has to be known before the tracker begins. Here
the rows become those that nova's own driver and tracker would have written by
now, so that an audit finds nothing to write: servers with their flavor,
records with their statistics, and for each node a resource provider with its
inventory, its traits and the allocation of its server.
"""

import json
import uuid

from benchmarks import filling
from lab import cloud

#: What each node of nova's driver has besides its own traits, in nova 34:
#: IronicDriver.capabilities and ResourceTracker._get_traits.
TRAITS = (
    'COMPUTE_IMAGE_TYPE_AMI', 'COMPUTE_IMAGE_TYPE_QCOW2',
    'COMPUTE_IMAGE_TYPE_RAW', 'COMPUTE_NET_ATTACH_INTERFACE', 'COMPUTE_NODE',
    'OWNER_NOVA')

#: Of whom the servers are.
OWNER = 'bench'

#: The class of the lab's own flavor, in Ironic.
LAB_CLASS = 'baremetal'

#: SQL: the name that nova gives to the resource class of a node n.
CLASS = "CONCAT('CUSTOM_', UPPER(REPLACE(n.resource_class, '-', '_')))"

FLAVOR = json.dumps({'old': None, 'new': None, 'cur': {
    'nova_object.name': 'Flavor', 'nova_object.namespace': 'nova',
    'nova_object.version': '1.2', 'nova_object.changes': [],
    'nova_object.data': {
        'id': 1, 'name': 'bench', 'memory_mb': 1024, 'vcpus': 1,
        'root_gb': 10, 'ephemeral_gb': 0, 'flavorid': 'bench', 'swap': 0,
        'rxtx_factor': 1.0, 'vcpu_weight': 0, 'disabled': False,
        'is_public': True, 'description': None,
        'created_at': '2026-01-01T00:00:00Z', 'updated_at': None,
        'deleted_at': None, 'deleted': False,
        'extra_specs': {
            'resources:CLASS': '1', 'resources:DISK_GB': '0',
            'resources:MEMORY_MB': '0', 'resources:VCPU': '0'}}}})

#: Of an image.
METADATA = {
    'image_base_image_ref': '11111111-1111-4111-8111-111111111111',
    'image_container_format': 'bare', 'image_disk_format': 'raw',
    'image_min_disk': '10', 'image_min_ram': '0',
    'image_owner_specified.openstack.object': 'images/bench',
    'owner_user_name': OWNER, 'owner_project_name': OWNER,
    'boot_roles': 'member,reader'}

#: What ResourceTracker counts on a node with a server.
COUNTERS = {
    'num_instances': '1', 'num_vm_active': '1', 'num_task_None': '1',
    'num_os_type_None': '1', f'num_proj_{OWNER}': '1', 'io_workload': '0'}

PCI_POOLS = json.dumps({
    'nova_object.name': 'PciDevicePoolList', 'nova_object.namespace': 'nova',
    'nova_object.version': '1.1', 'nova_object.data': {'objects': []},
    'nova_object.changes': ['objects']})


class Tracked:
    """The cloud of :class:`.filling.Filling` as nova's tracker leaves it.

    :param settings: of a lab that is up and filled.
    :param progress: :class:`lab.progress.Progress`.
    """

    def __init__(self, settings, progress):
        self._settings = settings
        self._progress = progress

    def complete(self, fitting=0):
        """Put in what is missing.

        :param fitting: how many of the free nodes are for the lab's own
            flavor, and none other is.
        """
        with (self._progress.step('put servers, records and providers as '
                                  'they are at rest'),
              self._connect('ironic') as (connection, cursor)):
            self._define(fitting)
            connection.begin()
            cursor.execute(
                'UPDATE nodes SET maintenance = 0, power_state = '
                "IF(instance_uuid IS NULL, 'power off', 'power on')")
            cursor.execute(
                'UPDATE nodes SET resource_class = %s WHERE instance_uuid '
                'IS NULL ORDER BY id DESC LIMIT %s', (LAB_CLASS, fitting))
            self._fill_servers(cursor)
            self._fill_records(cursor)
            self._fill_providers(cursor)
            connection.commit()

    def waiting(self, nodes):
        """Put in servers that are about to be claimed on some nodes.

        :param nodes: their uuids, one for each server.
        :returns: uuids of the servers, in that order.
        """
        servers = [str(uuid.uuid4()) for _ in nodes]
        with self._connect('nova_cell1') as (connection, cursor):
            connection.begin()
            cursor.executemany(
                'INSERT INTO instances (created_at, uuid, node, user_id, '
                'project_id, hostname, deleted) VALUES (UTC_TIMESTAMP(), %s, '
                "%s, %s, %s, 'server', 0)",
                [(server, node, OWNER, OWNER) for server, node
                 in zip(servers, nodes, strict=True)])
            self._fill_servers(cursor)
            cursor.execute(
                "UPDATE instances SET vm_state = 'building', power_state = "
                '0, node = NULL, compute_id = NULL, launched_on = NULL, '
                'launched_at = NULL WHERE host IS NULL')
            connection.commit()
        return servers

    def free(self, host=None):
        """Return {uuid: resource class} of the nodes without a server.

        :param host: only of those that are recorded on this host.
        """
        with self._connect('ironic') as (_, cursor):
            cursor.execute(
                f'SELECT n.uuid, {CLASS} FROM nodes n LEFT JOIN '
                'nova_cell1.compute_nodes c ON c.uuid = n.uuid AND '
                'c.deleted = 0 WHERE n.instance_uuid IS NULL AND '
                '(%s IS NULL OR c.host = %s) ORDER BY n.id', (host, host))
            return dict(cursor.fetchall())

    def marked(self):
        """Return how many nodes placement has as disabled."""
        with self._connect('placement') as (_, cursor):
            cursor.execute(
                'SELECT COUNT(*) FROM resource_provider_traits o JOIN traits '
                't ON t.id = o.trait_id WHERE t.name = '
                "'COMPUTE_STATUS_DISABLED'")
            (found,), = cursor.fetchall()
            return found

    def free_of(self, host):
        """Return how many nodes without a server are recorded on a host."""
        with self._connect('ironic') as (_, cursor):
            cursor.execute(
                'SELECT COUNT(*) FROM nova_cell1.compute_nodes c JOIN nodes n '
                'ON n.uuid = c.uuid WHERE n.instance_uuid IS NULL AND '
                'c.deleted = 0 AND c.host = %s', (host,))
            (found,), = cursor.fetchall()
            return found

    def used_of(self, host):
        """Return the uuids of the nodes with servers of a host."""
        with self._connect('nova_cell1') as (_, cursor):
            cursor.execute('SELECT node FROM instances WHERE deleted = 0 AND '
                           'host = %s', (host,))
            return [node for node, in cursor.fetchall()]

    def manageable(self, nodes, hosts):
        """Return how many servers can be managed on some hosts.

        They are there and at rest, and so is the record of their node.

        :param nodes: uuids of those with the servers.
        """
        with self._connect('nova_cell1') as (_, cursor):
            cursor.execute(
                'SELECT COUNT(*) FROM instances i JOIN compute_nodes c '
                'ON c.uuid = i.node AND c.host = i.host WHERE i.deleted = 0 '
                'AND c.deleted = 0 AND i.task_state IS NULL AND i.node IN %s '
                'AND i.host IN %s', (nodes, hosts))
            (found,), = cursor.fetchall()
            return found

    def change(self, count, seed):
        """Change some nodes in Ironic so that nova has to record it.

        :param seed: a number; each makes a change of its own.
        """
        properties = {**filling.PROPERTIES, 'capabilities':
                      f'{filling.PROPERTIES["capabilities"]},bench:{seed}'}
        with self._connect('ironic') as (_, cursor):
            cursor.execute(
                'UPDATE nodes SET properties = %s, updated_at = '
                'UTC_TIMESTAMP() ORDER BY MD5(CONCAT(uuid, %s)) LIMIT %s',
                (json.dumps(properties), str(seed), count))

    def recorded(self, seed):
        """Return of how many nodes nova has recorded a change."""
        with self._connect('nova_cell1') as (_, cursor):
            cursor.execute(
                'SELECT COUNT(*) FROM compute_nodes WHERE stats LIKE %s',
                (f'%"bench": "{seed}"%',))
            (found,), = cursor.fetchall()
            return found

    def _connect(self, name):
        return filling.Connection(self._settings.database(name))

    def _define(self, fitting):
        """Let placement know classes and traits."""
        placement = cloud.Cloud(self._settings).placement
        with self._connect('ironic') as (_, cursor):
            cursor.execute(f'SELECT DISTINCT {CLASS} FROM nodes n')
            for name, in cursor.fetchall():
                placement('PUT', f'/resource_classes/{name}')
        for name in filling.TRAITS:
            placement('PUT', f'/traits/{name}')
        if fitting:
            placement('PUT', f'/resource_classes/CUSTOM_{LAB_CLASS.upper()}')

    def _fill_servers(self, cursor):
        """Complete all servers that have no flavor yet, by their node."""
        missing = (
            'FROM nova_cell1.instances i JOIN ironic.nodes n ON n.uuid = '
            'i.node LEFT JOIN nova_cell1.{0} x ON x.instance_uuid = i.uuid '
            'WHERE x.id IS NULL')
        cursor.execute(
            'UPDATE nova_cell1.instances i LEFT JOIN nova_cell1.'
            'compute_nodes c ON c.uuid = i.node SET i.compute_id = c.id, '
            'i.launched_on = i.host, i.launched_at = UTC_TIMESTAMP(), '
            'i.user_id = %s, i.project_id = %s, i.memory_mb = 1024, '
            "i.vcpus = 1, i.root_gb = 10, i.ephemeral_gb = 0, i.image_ref = "
            "%s, i.kernel_id = '', i.ramdisk_id = '', i.launch_index = 0, "
            "i.display_name = 'server', i.availability_zone = 'nova', "
            "i.reservation_id = 'r-bench', i.root_device_name = '/dev/sda', "
            "i.config_drive = '', i.instance_type_id = 1, i.progress = 0, "
            'i.locked = 0, i.cleaned = 0, i.hidden = 0, '
            'i.auto_disk_config = 0, i.shutdown_terminate = 0, '
            'i.disable_terminate = 0 WHERE i.memory_mb IS NULL',
            (OWNER, OWNER, METADATA['image_base_image_ref']))
        for key, value in METADATA.items():
            cursor.execute(
                'INSERT INTO nova_cell1.instance_system_metadata '
                '(created_at, instance_uuid, `key`, value, deleted) '
                'SELECT UTC_TIMESTAMP(), i.uuid, %s, %s, 0 '
                + missing.format('instance_extra'), (key, value))
        cursor.execute(
            'INSERT INTO nova_cell1.instance_info_caches (created_at, '
            'network_info, instance_uuid, deleted) SELECT UTC_TIMESTAMP(), '
            "'[]', i.uuid, 0 " + missing.format('instance_info_caches'))
        cursor.execute(
            'INSERT INTO nova_cell1.instance_extra (created_at, deleted, '
            'instance_uuid, pci_requests, flavor) SELECT UTC_TIMESTAMP(), 0, '
            f"i.uuid, '[]', REPLACE(%s, 'CLASS', {CLASS}) "
            + missing.format('instance_extra'), (FLAVOR,))

    def _fill_records(self, cursor):
        stats = {'failed_builds': '0', **capabilities(), 'uptime': None}
        used = '(n.instance_uuid IS NOT NULL)'
        # Reserved for the host itself are 512 MB, by default.
        cursor.execute(
            'UPDATE nova_cell1.compute_nodes c '
            'JOIN nova_cell1.services s ON s.host = c.host '
            "AND s.`binary` = 'nova-compute' "
            'JOIN ironic.nodes n ON n.uuid = c.uuid '
            'SET c.service_id = s.id, c.updated_at = UTC_TIMESTAMP(), '
            "c.host_ip = '127.0.0.1', c.supported_instances = %s, "
            "c.pci_stats = %s, c.metrics = '[]', c.disk_available_least = 0, "
            'c.ram_allocation_ratio = 1, c.cpu_allocation_ratio = 4, '
            'c.disk_allocation_ratio = 1, c.current_workload = 0, '
            f'c.running_vms = {used}, c.vcpus_used = {used}, '
            f'c.memory_mb_used = 512 + 1024 * {used}, '
            f'c.free_ram_mb = -512 - 1024 * {used}, '
            f'c.local_gb_used = 10 * {used}, c.free_disk_gb = -10 * {used}, '
            'c.stats = IF(n.instance_uuid IS NULL, %s, %s)',
            (json.dumps([['x86_64', 'baremetal', 'hvm']]), PCI_POOLS,
             json.dumps(stats), json.dumps({**stats, **COUNTERS})))

    def _fill_providers(self, cursor):
        joined = ('FROM ironic.nodes n JOIN placement.resource_providers p '
                  'ON p.uuid = n.uuid ')
        cursor.execute(
            'INSERT INTO placement.resource_providers (created_at, '
            'updated_at, uuid, name, generation) SELECT UTC_TIMESTAMP(), '
            'UTC_TIMESTAMP(), uuid, uuid, 2 FROM ironic.nodes ORDER BY id')
        cursor.execute('UPDATE placement.resource_providers SET '
                       'root_provider_id = id')
        cursor.execute(
            'INSERT INTO placement.inventories (created_at, '
            'resource_provider_id, resource_class_id, total, reserved, '
            'min_unit, max_unit, step_size, allocation_ratio) '
            'SELECT UTC_TIMESTAMP(), p.id, k.id, 1, '
            f'n.instance_uuid IS NOT NULL, 1, 1, 1, 1 {joined}'
            f'JOIN placement.resource_classes k ON k.name = {CLASS}')
        cursor.execute(
            'INSERT INTO placement.resource_provider_traits (created_at, '
            'trait_id, resource_provider_id) '
            f'SELECT UTC_TIMESTAMP(), t.id, p.id {joined}'
            'JOIN ironic.node_traits o ON o.node_id = n.id '
            'JOIN placement.traits t ON t.name = o.trait '
            f'UNION SELECT UTC_TIMESTAMP(), t.id, p.id {joined}'
            'JOIN placement.traits t ON t.name IN %s', (TRAITS,))
        for table in ('projects', 'users'):
            cursor.execute(
                f'INSERT IGNORE INTO placement.{table} (created_at, '
                'external_id) VALUES (UTC_TIMESTAMP(), %s)', (OWNER,))
        cursor.execute(
            'INSERT INTO placement.consumers (created_at, updated_at, uuid, '
            'project_id, user_id, generation) SELECT UTC_TIMESTAMP(), '
            'UTC_TIMESTAMP(), n.instance_uuid, o.id, u.id, 1 '
            'FROM ironic.nodes n JOIN placement.projects o ON o.external_id '
            '= %s JOIN placement.users u ON u.external_id = %s '
            'WHERE n.instance_uuid IS NOT NULL', (OWNER, OWNER))
        cursor.execute(
            'INSERT INTO placement.allocations (created_at, '
            'resource_provider_id, consumer_id, resource_class_id, used) '
            'SELECT UTC_TIMESTAMP(), p.id, n.instance_uuid, k.id, 1 '
            f'{joined}JOIN placement.resource_classes k ON k.name = {CLASS} '
            'WHERE n.instance_uuid IS NOT NULL')


def capabilities():
    """Return what nova's driver says of each node, see _node_resource."""
    return {'cpu_arch': filling.PROPERTIES['cpu_arch'], **dict(
        one.split(':') for one
        in filling.PROPERTIES['capabilities'].split(','))}
