# SPDX-License-Identifier: Apache-2.0

"""A cloud of any size: rows are put into the databases of a lab.

Enrolling 100,000 nodes through the API would take a day. The rows are those
of a node that was enrolled, with other uuids and with what makes real nodes
large: cached steps, properties, traits.
"""

import dataclasses
import json
import random
import uuid

from nova_ironic_multihost.rules import ring

#: How many of the nodes have a server, and were never touched.
USED, UNTOUCHED = 0.62, 0.1

#: Rows in one statement.
ROWS = 500

#: Seconds from now to heartbeats of compute services: the first ones, those
#: when another one is down, and those that show that it is dead. All are
#: within the day after which nova takes anybody for down, and two that follow
#: each other, too, or our driver takes it for an outage.
FIRST, EARLIER, LATER = -86000, -1000, 80000

#: With these our driver takes them for one heartbeat after the other.
HEARTBEATS = ('DEFAULT.report_interval=80000',)

TRAITS = [f'CUSTOM_TRAIT_{number}' for number in range(12)]
PROPERTIES = {
    'cpus': '64', 'memory_mb': '262144', 'local_gb': '1920',
    'cpu_arch': 'x86_64', 'vendor': 'benchmark',
    'capabilities': 'boot_mode:uefi,secure_boot:true,boot_option:local,'
                    'cpu_vt:true,cpu_aes:true,cpu_hugepages:true'}
#: Of nova, what belongs to the servers of a cloud that was here before.
OF_INSTANCES = (
    'instance_actions_events', 'instance_actions', 'instance_faults',
    'instance_extra', 'instance_info_caches', 'instance_metadata',
    'instance_system_metadata', 'block_device_mapping', 'migrations',
    'virtual_interfaces')

#: Of placement, the same; classes and traits stay, as it has them in memory.
OF_PROVIDERS = (
    'allocations', 'consumers', 'inventories', 'resource_provider_traits',
    'resource_provider_aggregates', 'resource_providers')

#: As much as Ironic keeps of the steps that a driver has, about 4 kB.
INTERNAL = {
    'agent_cached_clean_steps': {
        'deploy': [{'step': f'step_{number}', 'priority': number,
                    'interface': 'deploy', 'reboot_requested': False,
                    'abortable': True, 'requires_ramdisk': True,
                    'argsinfo': {'note': 'x' * 220}}
                   for number in range(10)]}}


@dataclasses.dataclass(frozen=True)
class Machine:
    """A node of the cloud.

    :param uuid: of the node.
    :param owner: host of its record.
    :param instance: uuid of the server on it, or None.
    """

    uuid: str
    owner: str
    instance: str | None


def machines(count, hosts, seed=1):
    """Return the nodes of a cloud at rest, each with whom it prefers.

    :param hosts: names of the compute services.
    """
    chance = random.Random(seed)
    preferences = ring.Ring(hosts, 1024)

    def new():
        return str(uuid.UUID(int=chance.getrandbits(128), version=4))

    return [Machine(node, preferences.host_for(node),
                    new() if chance.random() < USED else None)
            for node in (new() for _ in range(count))]


class Filling:
    """Fills the databases of a lab in which one node is enrolled.

    :param settings: of a lab that is up.
    :param progress: :class:`lab.progress.Progress`.
    """

    def __init__(self, settings, progress):
        self._settings = settings
        self._progress = progress

    def fill(self, found, hosts, seed=1):
        """Put a cloud in the place of what there is.

        :param found: what :func:`machines` returned.
        """
        with self._progress.step(f'put {len(found)} nodes into Ironic'):
            self._fill_ironic(found, random.Random(seed))
        with self._connect('placement') as (_, cursor):
            # Each is its own root.
            cursor.execute('UPDATE resource_providers SET '
                           'root_provider_id = NULL')
            for table in OF_PROVIDERS:
                cursor.execute(f'DELETE FROM {table}')
        self.record(found, hosts)

    def record(self, found, hosts):
        """Put compute services and the records of nodes into nova.

        In the place of what there is.
        """
        with self._progress.step(f'put {len(hosts)} compute services and '
                                 'their records into nova'):
            self._fill_cell(found, hosts)
            self._fill_api(hosts)

    def kill(self, host):
        """Let nova take a compute service for down."""
        self._beat(EARLIER)
        with self._connect('nova_cell1') as (_, cursor):
            cursor.execute(
                'UPDATE services SET last_seen_up = UTC_TIMESTAMP() - '
                'INTERVAL 30 DAY WHERE host = %s', (host,))

    def outlive(self):
        """Let the heartbeats of all others go on for so long that it is dead.

        Each of them has looked since it is down.
        """
        self._beat(LATER)

    def _beat(self, seconds):
        """Let all that are up have sent a heartbeat some seconds from now."""
        with self._connect('nova_cell1') as (_, cursor):
            cursor.execute(
                'UPDATE services SET last_seen_up = UTC_TIMESTAMP() + '
                "INTERVAL %s SECOND WHERE `binary` = 'nova-compute' AND "
                'last_seen_up > UTC_TIMESTAMP() - INTERVAL 1 DAY', (seconds,))

    def fence(self, host):
        """The same, and declare it dead."""
        self.kill(host)
        with self._connect('nova_cell1') as (_, cursor):
            cursor.execute('UPDATE services SET disabled = 1, forced_down = 1 '
                           'WHERE host = %s', (host,))

    def touch(self, count, seed):
        """Change some nodes, as Ironic does."""
        with self._connect('ironic') as (_, cursor):
            cursor.execute(
                'UPDATE nodes SET last_error = %s, updated_at = '
                'UTC_TIMESTAMP() ORDER BY MD5(CONCAT(uuid, %s)) LIMIT %s',
                (f'change {seed}', str(seed), count))

    def _connect(self, name):
        return Connection(self._settings.database(name))

    def _fill_ironic(self, found, chance):
        with self._connect('ironic') as (connection, cursor):
            cursor.execute('SELECT id FROM nodes ORDER BY id LIMIT 1')
            (template,), = cursor.fetchall()
            cursor.execute('SHOW COLUMNS FROM nodes')
            given = ('uuid', 'name', 'instance_uuid', 'properties',
                     'driver_internal_info', 'provision_state',
                     'updated_at', 'resource_class')
            same = [column for column, *_ in cursor.fetchall()
                    if column not in ('id', *given)]
            for child in ('node_traits', 'node_history'):
                cursor.execute(f'DELETE FROM {child}')
            cursor.execute('DELETE FROM nodes WHERE id != %s', (template,))
            # It may be one of those that are to come.
            cursor.execute('UPDATE nodes SET uuid = UUID(), name = NULL, '
                           'instance_uuid = NULL WHERE id = %s', (template,))
            cursor.execute(
                'CREATE TEMPORARY TABLE fresh (uuid CHAR(36) PRIMARY KEY, '
                'name VARCHAR(255), instance_uuid CHAR(36), properties TEXT, '
                'driver_internal_info TEXT, provision_state VARCHAR(15), '
                'updated_at DATETIME, resource_class VARCHAR(80))')
            for some in _portions(found):
                cursor.executemany(
                    'INSERT INTO fresh VALUES (%s, %s, %s, %s, %s, %s, '
                    'IF(%s, UTC_TIMESTAMP() - INTERVAL %s SECOND, NULL), %s)',
                    [(one.uuid, f'node-{one.uuid[:13]}', one.instance,
                      json.dumps(PROPERTIES), json.dumps(INTERNAL),
                      'active' if one.instance else 'available',
                      chance.random() >= UNTOUCHED,
                      chance.randint(600, 10_000_000),
                      f'baremetal-{chance.randint(1, 6)}') for one in some])
            columns = ', '.join(f'`{name}`' for name in given)
            kept = ', '.join(f'`{name}`' for name in same)
            cursor.execute(
                f'INSERT INTO nodes ({columns}, {kept}) SELECT '
                + ', '.join(f'fresh.`{name}`' for name in given) + ', '
                + ', '.join(f'one.`{name}`' for name in same)
                + ' FROM fresh JOIN nodes one ON one.id = %s '
                'ORDER BY fresh.uuid', (template,))
            cursor.execute('DELETE FROM nodes WHERE id = %s', (template,))
            cursor.execute('SELECT id FROM nodes')
            ids = [id_ for id_, in cursor.fetchall()]
            for some in _portions(ids):
                cursor.executemany(
                    'INSERT INTO node_traits (node_id, trait, version, '
                    "created_at) VALUES (%s, %s, '1.0', UTC_TIMESTAMP())",
                    [(id_, trait) for id_ in some for trait in chance.sample(
                        TRAITS, chance.randint(1, 6))])
            cursor.execute('ANALYZE TABLE nodes, node_traits')
            cursor.fetchall()
            connection.commit()

    def _fill_cell(self, found, hosts):
        with self._connect('nova_cell1') as (connection, cursor):
            for table in (*OF_INSTANCES, 'instances', 'compute_nodes',
                          'services'):
                cursor.execute(f'DELETE FROM {table} WHERE '
                               + ("`binary` = 'nova-compute'"
                                  if table == 'services' else '1'))
            cursor.executemany(
                'INSERT INTO services (created_at, last_seen_up, host, '
                '`binary`, topic, report_count, disabled, deleted, '
                'forced_down, version, uuid) VALUES (UTC_TIMESTAMP(), '
                'UTC_TIMESTAMP() + INTERVAL %s SECOND, %s, '
                "'nova-compute', 'compute', 1, 0, 0, 0, "
                '(SELECT MAX(version) FROM services AS known), %s)',
                [(FIRST, host, str(uuid.uuid4())) for host in hosts])
            for some in _portions(found):
                cursor.executemany(
                    'INSERT INTO compute_nodes (created_at, uuid, host, '
                    'hypervisor_hostname, hypervisor_type, '
                    'hypervisor_version, cpu_info, stats, vcpus, memory_mb, '
                    'local_gb, vcpus_used, memory_mb_used, local_gb_used, '
                    'deleted, mapped) VALUES (UTC_TIMESTAMP(), %s, %s, %s, '
                    "'ironic', 1, '', '{}', 0, 0, 0, 0, 0, 0, 0, 1)",
                    [(one.uuid, one.owner, one.uuid) for one in some])
                cursor.executemany(
                    'INSERT INTO instances (created_at, uuid, host, node, '
                    'vm_state, power_state, user_id, project_id, hostname, '
                    "deleted) VALUES (UTC_TIMESTAMP(), %s, %s, %s, 'active', "
                    "1, 'bench', 'bench', 'server', 0)",
                    [(one.instance, one.owner, one.uuid) for one in some
                     if one.instance])
            connection.commit()

    def _fill_api(self, hosts):
        with self._connect('nova_api') as (connection, cursor):
            cursor.execute('DELETE FROM host_mappings')
            cursor.executemany(
                'INSERT INTO host_mappings (created_at, cell_id, host) '
                'SELECT UTC_TIMESTAMP(), MAX(id), %s FROM cell_mappings',
                [(host,) for host in hosts])
            connection.commit()


class Connection:
    """Use as a context manager: a connection and its cursor.

    :param account: see :meth:`lab.settings.Settings.database`.
    """

    def __init__(self, account):
        self._account = account

    def __enter__(self):
        import pymysql

        self._connection = pymysql.connect(**self._account, autocommit=True)
        return self._connection, self._connection.cursor()

    def __exit__(self, *error):
        self._connection.close()


def _portions(rows):
    return (rows[first:first + ROWS] for first in range(0, len(rows), ROWS))
