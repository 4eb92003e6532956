# SPDX-License-Identifier: Apache-2.0

"""The configuration files of every service of the lab.

Pure: from settings to text. What is not obvious about a value stands
beside it.
"""

import io
import pathlib
import re

from lab import errors
from lab import settings as places

DRIVERS = {
    'ours': 'ironic_multihost.IronicMultiHostDriver',
    'stock': 'ironic.IronicDriver',
    'virtual': 'fake.FakeDriver',
}
#: Services that are named before their options, as in 'ironic:'.
_NAMED = 'ironic', 'placement'
#: Section and option of the port on which a nova-compute tells how it goes.
METRICS_PORT = 'ironic_multihost', 'metrics_port'
#: The API of each project: name, type and path below its port.
CATALOG = (
    ('keystone', 'identity', '/v3'),
    ('placement', 'placement', ''),
    ('glance', 'image', ''),
    ('neutron', 'network', ''),
    ('ironic', 'baremetal', ''),
    ('nova', 'compute', '/v2.1'),
)


def ini(sections):
    """Render a configuration file.

    :param sections: dict of section name to dict of option to value;
        booleans are written the way oslo.config writes them, and a list
        is an option that is given several times
    :returns: the text
    """
    text = io.StringIO()
    for section, values in sections.items():
        text.write(f'[{section}]\n')
        for option, value in values.items():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, bool):
                    item = str(item).lower()
                text.write(f'{option} = {item}\n')
        text.write('\n')
    return text.getvalue()


def overrides(options, service='nova'):
    """Read 'SECTION.OPTION=VALUE' strings.

    :param service: 'nova', or one that is named before its options
    :returns: dict of section to dict of option to value
    :raises LabError: for a string of another form
    """
    sections = {}
    for text in options:
        named, _, rest = text.partition(':')
        if named not in _NAMED:
            named, rest = 'nova', text
        if named != service:
            continue
        name, equals, value = rest.partition('=')
        section, dot, option = name.partition('.')
        if not (equals and dot and section and option):
            raise errors.LabError(
                f'"{text}" is not SECTION.OPTION=VALUE, as in '
                'DEFAULT.update_resources_interval=60.')
        sections.setdefault(section, {})[option] = value
    return sections


def number(options, section, option, default):
    """The value of a numeric option of nova.

    :param options: 'SECTION.OPTION=VALUE' strings that nova was given
    :param default: what it is without one of them
    """
    return int(overrides(options).get(section, {}).get(option, default))


def merged(sections, more):
    """Sections with the values of more put over them."""
    return {name: sections.get(name, {}) | more.get(name, {})
            for name in [*sections, *(n for n in more if n not in sections)]}


def write(directory, files):
    """Write rendered files below a directory.

    :param files: dict of relative path to text
    """
    for name, text in files.items():
        path = pathlib.Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def differing(directory, files):
    """Names of the files that are not what they are to be.

    :param files: dict of relative path to text
    """
    found = []
    for name, text in files.items():
        path = pathlib.Path(directory) / name
        if not path.exists() or path.read_text() != text:
            found.append(name)
    return found


def shared(settings, options=()):
    """Files of all services but the computes.

    :param options: 'SECTION.OPTION=VALUE' strings for nova, and for Ironic
        with 'ironic:' before them
    :returns: dict of path relative to the configuration directory to text
    """
    return {
        'mariadb.cnf': ini(_mariadb(settings)),
        'mariadb-first.sql': _first_sql(),
        'mariadb-place.sql': _place_sql(settings),
        'rabbitmq.conf': _rabbitmq(settings),
        'rabbitmq-plugins': '[].\n',
        'keystone/keystone.conf': ini(_keystone(settings)),
        'placement/placement.conf': ini(merged(
            _placement(settings), overrides(options, 'placement'))),
        'glance/glance-api.conf': ini(_glance(settings)),
        'neutron/neutron.conf': ini(_neutron(settings)),
        'ironic/ironic.conf': ini(
            merged(_ironic(settings), overrides(options, 'ironic'))),
        **ironic_policy(),
        'nova/nova.conf': ini(
            merged(_nova_control(settings), overrides(options))),
    }


def ironic_policy(nova_sees_nodes=True):
    """The file of Ironic's policy, which Ironic reads again when it changes.

    :param nova_sees_nodes: False takes away what nova's user, like the
        other services', is allowed to: it is shown no node then, and each
        one that it asks for is not there
    :returns: dict of relative path to text
    """
    rule = ('role:service and project_name:service' if nova_sees_nodes
            else '!')
    return {'ironic/policy.yaml': f'service_role: "{rule}"\n'}


def compute(settings, name, driver, options=()):
    """The file of one nova-compute.

    A port for metrics that all of them are given is that of the first one;
    those of the others follow.

    :param name: its host name
    :param driver: a key of :data:`DRIVERS`
    :param options: 'SECTION.OPTION=VALUE' strings
    :returns: dict of relative path to text
    """
    sections = _nova(settings)
    given = overrides(options)
    home = settings.data / name
    sections['DEFAULT'] |= {
        'compute_driver': DRIVERS[driver],
        'host': name,
        'state_path': home,
        # Default 60 s at random before the first audit of each process.
        'periodic_fuzzy_delay': 0,
        'update_resources_interval': places.AUDIT,
        'running_deleted_instance_poll_interval': 5,
    }
    sections['oslo_concurrency'] = {'lock_path': home / 'locks'}
    section, option = METRICS_PORT
    if first := number(options, section, option, 0):
        given[section][option] = first + _place(name) - 1
    return {f'nova/{name}.conf': ini(merged(sections, given))}


def _place(name):
    """The number at the end of a compute's name; 1 if there is none."""
    digits = re.search(r'[1-9][0-9]*$', name)
    return int(digits[0]) if digits else 1


def openrc(settings):
    """Shell lines that let the clients of the venv in."""
    variables = {
        'OS_CLIENT_CONFIG_FILE': settings.clouds,
        'OS_CLOUD': 'lab-admin',
        'OS_BAREMETAL_CLOUD': 'lab-system-admin',
        # Proxies of the environment know nothing of this machine's loopback.
        'NO_PROXY': places.HOST,
        'no_proxy': places.HOST,
    }
    lines = [f"export {name}='{value}'" for name, value in variables.items()]
    return '\n'.join(
        [f"export PATH='{settings.venv / 'bin'}':$PATH", *lines, ''])


def clouds(settings):
    """A clouds.yaml with the admin in its project and in system scope.

    nova and placement answer the first; only the second sees all nodes.
    """
    scopes = {
        'lab-admin': ('project_name: admin', 'project_domain_id: default'),
        'lab-system-admin': ('system_scope: all',)}
    lines = ['clouds:']
    for name, scope in scopes.items():
        lines += [
            f'  {name}:',
            f'    region_name: {places.REGION}',
            '    identity_api_version: 3',
            '    auth:',
            f'      auth_url: {settings.url("keystone")}/v3',
            '      username: admin',
            f'      password: {places.PASSWORD}',
            '      user_domain_id: default',
            *(f'      {line}' for line in scope)]
    return '\n'.join([*lines, ''])


def _mariadb(settings):
    return {'mariadbd': {
        'datadir': settings.data / 'mariadb',
        # In the abstract namespace: paths of sockets may not be long.
        'socket': f'@lab-mariadb-{settings.port("mariadb")}',
        'pid_file': settings.data / 'mariadb.pid',
        'bind_address': places.HOST,
        'port': settings.port('mariadb'),
        'skip_name_resolve': 1,
        'max_connections': 1000,
        'character_set_server': 'utf8mb3',
        # A lab may lose its data, it must not wait for disks.
        'innodb_flush_log_at_trx_commit': 0,
        'innodb_doublewrite': 0,
        'innodb_buffer_pool_size': '256M',
        'innodb_log_file_size': '64M',
        'performance_schema': 0,
    }}


def _first_sql():
    """What the first start of MariaDB runs, as the superuser."""
    account = f"'{places.USER}'@'{places.HOST}'"
    operator = f"'{places.OPERATOR}'@'{places.HOST}'"
    statements = [
        f"CREATE USER {account} IDENTIFIED BY '{places.PASSWORD}'",
        f'GRANT ALL ON *.* TO {account} WITH GRANT OPTION',
        # Who has these may write to a database that is read only.
        f'REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM {account}',
        f"CREATE USER {operator} IDENTIFIED BY '{places.PASSWORD}'",
        f'GRANT ALL ON *.* TO {operator}',
        # Those of the package have no password.
        "DELETE FROM mysql.global_priv WHERE User IN ('root', '')",
        'FLUSH PRIVILEGES',
    ]
    statements += [f'CREATE DATABASE {name} CHARACTER SET utf8mb3'
                   for name in places.DATABASES]
    # The server reads one statement per line.
    return ''.join(statement + ';\n' for statement in statements)


def _place_sql(settings):
    """What each later start of MariaDB runs: where this lab is.

    The prepared databases may be those of a lab in another place and with
    other ports.
    """
    images = str(settings.data / 'glance' / 'images')
    images = images.replace('\\', r'\\').replace("'", "''")
    statements = [
        'UPDATE keystone.endpoint JOIN keystone.service'
        ' ON service.id = endpoint.service_id'
        f" SET endpoint.url = '{settings.url(name)}{path}'"
        f" WHERE service.type = '{kind}'"
        for name, kind, path in CATALOG]
    statements += [
        'UPDATE nova_api.cell_mappings'
        f" SET database_connection = '{settings.database_url(database)}'"
        f" WHERE name = '{cell}'"
        for cell, database in (('cell0', 'nova_cell0'),
                               ('cell1', 'nova_cell1'))]
    statements += [
        'UPDATE nova_api.cell_mappings'
        f" SET transport_url = '{transport(settings)}' WHERE name = 'cell1'",
        'UPDATE glance.image_locations'
        f" SET value = CONCAT('file://{images}/', image_id)"]
    # The server reads one statement per line.
    return ''.join(statement + ';\n' for statement in statements)


def _rabbitmq(settings):
    return '\n'.join([
        f'listeners.tcp.1 = {places.HOST}:{settings.port("rabbitmq")}',
        f'default_user = {places.USER}',
        f'default_pass = {places.PASSWORD}',
        'loopback_users.lab = true',
        'disk_free_limit.absolute = 50MB',
        'log.console = true',
        'log.console.level = warning',
        'log.file = false',
        ''])


def _credentials(settings, user):
    """Password authentication of a service user in project service."""
    return {
        'auth_type': 'password',
        'auth_url': settings.url('keystone') + '/v3',
        'username': user,
        'password': places.PASSWORD,
        'user_domain_id': 'default',
        'project_name': 'service',
        'project_domain_id': 'default',
        'region_name': places.REGION,
    }


def _memcached(settings):
    return f'{places.HOST}:{settings.port("memcached")}'


def _authtoken(settings, user):
    return _credentials(settings, user) | {
        'www_authenticate_uri': settings.url('keystone') + '/v3',
        'memcached_servers': _memcached(settings),
        'interface': 'public',
        'service_token_roles': 'service',
        'service_token_roles_required': True,
    }


def transport(settings, port='rabbitmq'):
    """URL of the message bus.

    :param port: where it is reached, a port or the name of one
    """
    number = port if isinstance(port, int) else settings.port(port)
    return (f'rabbit://{places.USER}:{places.PASSWORD}@{places.HOST}:'
            f'{number}/')


def _logging():
    # Standard error of each process is its log file.
    return {'use_stderr': True, 'debug': False}


def _database(settings, name, pool=20):
    return {'connection': settings.database_url(name),
            'max_pool_size': pool, 'max_overflow': 40}


def _keystone(settings):
    return {
        'DEFAULT': _logging(),
        'database': _database(settings, 'keystone'),
        'cache': {
            'enabled': True,
            'backend': 'dogpile.cache.pymemcache',
            'memcache_servers': _memcached(settings),
        },
        'token': {'provider': 'fernet'},
        # The least: each client of each process logs in, a lot at the start.
        'identity': {'password_hash_rounds': 4},
        'fernet_tokens': {
            'key_repository': settings.data / 'keystone' / 'fernet'},
        'fernet_receipts': {
            'key_repository': settings.data / 'keystone' / 'receipts'},
        'credential': {
            'key_repository': settings.data / 'keystone' / 'credential'},
    }


def _placement(settings):
    return {
        'DEFAULT': _logging(),
        'api': {'auth_strategy': 'keystone'},
        # Or MariaDB lets two consumers have one node.
        'placement': {'allocation_conflict_retry_count': 1},
        'placement_database': _database(settings, 'placement'),
        'keystone_authtoken': _authtoken(settings, 'placement'),
    }


def _glance(settings):
    home = settings.data / 'glance'
    return {
        'DEFAULT': _logging() | {'enabled_backends': 'images:file'},
        'database': _database(settings, 'glance'),
        'glance_store': {'default_backend': 'images'},
        'images': {'filesystem_store_datadir': home / 'images'},
        'os_glance_staging_store': {
            'filesystem_store_datadir': home / 'staging'},
        'os_glance_tasks_store': {'filesystem_store_datadir': home / 'tasks'},
        'keystone_authtoken': _authtoken(settings, 'glance'),
        'oslo_concurrency': {'lock_path': home / 'locks'},
        'oslo_messaging_notifications': {'driver': 'noop'},
        'paste_deploy': {
            'flavor': 'keystone',
            'config_file':
                settings.venv / 'etc' / 'glance' / 'glance-api-paste.ini',
        },
    }


def _neutron(settings):
    home = settings.data / 'neutron'
    return {
        'DEFAULT': _logging() | {
            'auth_strategy': 'keystone',
            'api_paste_config':
                settings.venv / 'etc' / 'neutron' / 'api-paste.ini',
            'core_plugin': 'ml2',
            'service_plugins': '',
            'state_path': home,
            'transport_url': transport(settings),
            'dhcp_agent_notification': False,
            'notify_nova_on_port_status_changes': False,
            'notify_nova_on_port_data_changes': False,
        },
        # The smallest neutron: it answers, and it plugs nothing.
        'ml2': {'type_drivers': 'local', 'tenant_network_types': 'local',
                'mechanism_drivers': '', 'extension_drivers': ''},
        'database': _database(settings, 'neutron'),
        'keystone_authtoken': _authtoken(settings, 'neutron'),
        'oslo_concurrency': {'lock_path': home / 'locks'},
        'oslo_messaging_notifications': {'driver': 'noop'},
    }


def _ironic(settings):
    home = settings.data / 'ironic'
    interfaces = {
        f'enabled_{kind}_interfaces': f'no-{kind}'
        for kind in ('bios', 'console', 'firmware', 'inspect', 'raid',
                     'vendor')}
    interfaces |= {f'enabled_{kind}_interfaces': 'fake'
                   for kind in ('boot', 'deploy', 'management', 'power',
                                'rescue')}
    interfaces |= {f'enabled_{kind}_interfaces': 'noop'
                   for kind in ('network', 'storage')}
    client = _credentials(settings, 'ironic')
    return {
        'DEFAULT': _logging() | interfaces | {
            'auth_strategy': 'keystone',
            'enabled_hardware_types': 'fake-hardware',
            # API and conductor are one process and need no bus.
            'rpc_transport': 'none',
            'host': 'lab-ironic',
            'my_ip': places.HOST,
            'state_path': home,
            'tempdir': home,
        },
        'oslo_policy': {
            'policy_file': settings.conf / 'ironic' / 'policy.yaml'},
        'api': {'host_ip': places.HOST, 'port': settings.port('ironic'),
                'max_limit': 1000},
        'conductor': {'workers_pool_size': 100},
        'database': _database(settings, 'ironic'),
        'dhcp': {'dhcp_provider': 'none'},
        'keystone_authtoken': _authtoken(settings, 'ironic'),
        'service_catalog': client,
        'glance': client,
        'neutron': client,
        'nova': client,
        'oslo_concurrency': {'lock_path': home / 'locks'},
        'oslo_messaging_notifications': {'driver': 'noop'},
    }


def _nova(settings):
    """What all nova services have in common."""
    client = _credentials(settings, 'nova')
    return {
        'DEFAULT': _logging() | {
            'my_ip': places.HOST,
            'transport_url': transport(settings),
            'report_interval': 2,
            'service_down_time': places.SERVICE_DOWN_TIME,
        },
        'glance': client,
        # As a service of the service project, which sees all nodes because
        # Ironic's policy says so: that is what can go wrong.
        'ironic': client | {'api_max_retries': 5, 'api_retry_interval': 1,
                            'timeout': 120},
        'keystone_authtoken': _authtoken(settings, 'nova'),
        'neutron': client,
        'oslo_messaging_notifications': {'driver': 'noop'},
        'placement': client | {'timeout': 60},
        'service_user': client | {'send_service_user_token': True},
        'vnc': {'enabled': False},
    }


def _nova_control(settings):
    """API, conductor and scheduler; nova-compute has no database."""
    home = settings.data / 'nova'
    sections = _nova(settings)
    sections['DEFAULT'] |= {'state_path': home, 'host': 'lab-control'}
    return sections | {
        'api_database': _database(settings, 'nova_api'),
        'database': _database(settings, 'nova_cell1'),
        'conductor': {'workers': 1},
        # All baremetal nodes weigh the same, so that requests at the same
        # time would all try the same few nodes and run out of retries.
        'filter_scheduler': {'host_subset_size': 999,
                             'shuffle_best_same_weighed_hosts': True},
        'scheduler': {'max_attempts': 10, 'workers': 1},
        'oslo_concurrency': {'lock_path': home / 'locks'},
        'quota': {'instances': -1, 'cores': -1, 'ram': -1},
    }
