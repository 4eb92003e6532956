# SPDX-License-Identifier: Apache-2.0

"""The real Ironic as a fixture: API and conductor, sqlite, fake hardware."""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid

import fixtures
from ironicclient import client
import requests
from testtools import content

#: Seconds that Ironic may need for anything we ask of it; generous, because
#: it is only ever waited for in full when something is broken.
DEADLINE = 300

#: Where an Ironic has its files: what tempfile takes for it during a test is
#: gone after the test.
_TEMPORARY = tempfile.gettempdir()

#: Of the Ironic API: has all that nova asks for (1.46) and shards (1.82).
API_VERSION = '1.82'

_CONFIG = """\
[DEFAULT]
auth_strategy = noauth
rpc_transport = none
host = localhost
my_ip = 127.0.0.1
state_path = {directory}
enabled_hardware_types = fake-hardware
enabled_bios_interfaces = no-bios
enabled_boot_interfaces = fake
enabled_console_interfaces = no-console
enabled_deploy_interfaces = fake
enabled_firmware_interfaces = no-firmware
enabled_inspect_interfaces = no-inspect
enabled_management_interfaces = fake
enabled_network_interfaces = noop
enabled_power_interfaces = fake
enabled_raid_interfaces = no-raid
enabled_rescue_interfaces = no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor

[api]
host_ip = 127.0.0.1
port = {port}

[conductor]
automated_clean = false
sync_power_state_interval = 0
sync_power_state_workers = 1
periodic_max_workers = 4
workers_pool_size = 50

[database]
connection = sqlite:///{directory}/ironic.sqlite
sqlite_synchronous = false

# Ironic asks glance whether an image is a whole disk. There is no glance;
# told so at once, it goes on, and fake hardware does not need the answer.
[glance]
auth_type = none
endpoint_override = http://127.0.0.1:1

[oslo_messaging_notifications]
driver = noop
"""

#: Becomes a command that Linux ends when the process that started it is
#: gone. Ironic makes a session of its own, so that no signal to a test run
#: that is killed reaches it. 1 is PR_SET_PDEATHSIG.
_LEASH = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])
"""


class IronicError(Exception):
    """Ironic did not do what the fixture asked of it."""


def _executable():
    """Path of ``ironic``: ``IRONIC_BIN`` or the one of this environment."""
    path = os.environ.get('IRONIC_BIN')
    path = pathlib.Path(path or pathlib.Path(sys.executable).parent / 'ironic')
    if not path.exists():
        raise IronicError(
            f'There is no {path}: install ironic into this environment, or '
            f'let IRONIC_BIN name the ironic executable of another one.')
    return path


@functools.cache
def _empty_database():
    """Return the bytes of a sqlite database with Ironic's schema, no rows.

    Making the schema takes longer than starting Ironic, so it is made once
    in a process.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        config = directory / 'ironic.conf'
        config.write_text(_CONFIG.format(directory=directory, port=0))
        done = subprocess.run(
            [_executable().with_name('ironic-dbsync'),
             '--config-file', config, 'create_schema'],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise IronicError(f'ironic-dbsync failed:\n{done.stdout}')
        return (directory / 'ironic.sqlite').read_bytes()


@functools.cache
def shared():
    """Return the Ironic of this process, which runs as long as the process.

    Starting and stopping one takes longer than most tests.
    """
    ironic = Ironic()
    ironic.setUp()
    atexit.register(ironic.cleanUp)
    return ironic


class Ironic(fixtures.Fixture):
    """An Ironic on a free port of 127.0.0.1.

    :ivar endpoint: URL of its API, without version.
    :ivar client: a python-ironicclient for it.
    """

    def _setUp(self):
        self._directory = pathlib.Path(
            self.useFixture(fixtures.TempDir(_TEMPORARY)).path)
        # A port that is bound but not listened on is given to nobody else,
        # yet Ironic can bind it too: both set SO_REUSEADDR. While Ironic is
        # stopped, the port refuses connections as a stopped Ironic does.
        port = socket.socket()
        self.addCleanup(port.close)
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(('127.0.0.1', 0))
        self.endpoint = f'http://127.0.0.1:{port.getsockname()[1]}'

        self._config = self._directory / 'ironic.conf'
        self._config.write_text(_CONFIG.format(
            directory=self._directory, port=port.getsockname()[1]))
        self._log = self._directory / 'ironic.log'
        self._log.touch()
        self._database = self._directory / 'ironic.sqlite'
        self._database.write_bytes(_empty_database())

        # A node that Ironic has just worked on may be locked for a moment;
        # the client then asks again.
        self.client = client.get_client(
            1, endpoint=self.endpoint, auth_type='none',
            os_ironic_api_version=API_VERSION,
            max_retries=DEADLINE, retry_interval=1)
        self._enrolled = 0
        # What Ironic makes of an enrolled node: (its number, its fields) ->
        # its row in the database.
        self._rows = {}
        self._process = None
        self.addCleanup(self.stop)
        self.start()
        # Ironic itself has filled the others, and needs what is there.
        self._tables = [
            table for table in self._all_tables() if not self._count(table)]

    @property
    def runs(self):
        """Whether Ironic has been started and has not ended since."""
        return self._process is not None and self._process.poll() is None

    def connections(self):
        """Return how many connections there are to its API."""
        port = int(self.endpoint.rpartition(':')[2])
        # Of those that Linux lists: their other end, as hexadecimal address
        # and port, and their state, 01 if they are established.
        with open('/proc/net/tcp', encoding='ascii') as table:
            connections = [line.split() for line in table]
        return sum(
            connection[2:4] == [f'0100007F:{port:04X}', '01']
            for connection in connections)

    def log_from_now(self):
        """Return what Ironic logs after this call, as a detail of a test."""
        start = self._log.stat().st_size
        return content.content_from_file(
            self._log, seek_offset=start, buffer_now=False)

    def start(self):
        """Start Ironic and return when its API and conductor answer.

        :raises IronicError: it did not; with the end of its log.
        """
        with self._log.open('a') as log:
            self._process = subprocess.Popen(
                [sys.executable, '-c', _LEASH,
                 _executable(), '--config-file', self._config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait('Ironic to start', self._answers)

    def stop(self):
        """Stop Ironic; what it knows stays. Harmless when it is stopped."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self):
        if self._process.poll() is not None:
            raise IronicError(
                f'Ironic ended with status {self._process.returncode}:\n'
                f'{self._log_tail()}')
        try:
            # It lists a driver when a conductor has registered it.
            drivers = requests.get(
                f'{self.endpoint}/v1/drivers', timeout=DEADLINE)
        except requests.ConnectionError:
            return False
        return drivers.ok and drivers.json()['drivers']

    def _log_tail(self):
        lines = self._log.read_text(errors='replace').splitlines()
        return '\n'.join(lines[-20:])

    def _wait(self, what, condition):
        deadline = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > deadline:
                raise IronicError(
                    f'Waited {DEADLINE} s for {what}.\n{self._log_tail()}')
            time.sleep(0.05)

    def enroll(self, count, **fields):
        """Enroll nodes and bring them to available and powered on.

        :param count: how many.
        :param fields: fields of the nodes, e.g. ``resource_class``.
        :returns: their uuids. They are the same in every run, so that what a
            hash makes of them is the same too.

        A node that was enrolled before a :meth:`clear` is put into Ironic's
        database as it was then: the six requests to Ironic, and its work,
        take much longer.
        """
        fields = {
            'driver': 'fake-hardware',
            'resource_class': 'baremetal',
            'properties': {'cpu_arch': 'x86_64', 'cpus': 8,
                           'memory_mb': 16384, 'local_gb': 200},
        } | fields
        keys = [
            (number, json.dumps(fields, sort_keys=True))
            for number in range(self._enrolled, self._enrolled + count)]
        self._enrolled += count
        if self._rows.keys() >= set(keys):
            self._insert([self._rows[key] for key in keys])
            return [self._rows[key]['uuid'] for key in keys]
        nodes = self._enroll([number for number, _ in keys], fields)
        rows = self._select(nodes)
        self._rows.update(zip(keys, (rows[node] for node in nodes)))
        return nodes

    def _enroll(self, numbers, fields):
        nodes = [
            self.client.node.create(
                uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, f'node-{number}')),
                name=f'node-{number}', **fields).uuid
            for number in numbers]

        # One stage for all nodes after the other: Ironic works meanwhile.
        for node in nodes:
            self.client.node.set_provision_state(node, 'manage')
        self.wait_for(nodes, provision_state='manageable')
        # A fake node has no power state before it was given one, and nova
        # offers only nodes whose power state is known.
        for node in nodes:
            self.client.node.set_power_state(node, 'on')
        self.wait_for(nodes, power_state='power on')
        for node in nodes:
            self.client.node.set_provision_state(node, 'provide')
        self.wait_for(nodes, provision_state='available')
        self._wait_until_idle()
        return nodes

    def clear(self):
        """Forget all nodes, whatever they are used for.

        Those that are enrolled next have the same uuids again. An Ironic that
        is stopped is started.
        """
        if not self.runs:
            self.start()
        # What Ironic goes on with would meet the next nodes.
        self._wait_until_idle()
        with self._open() as database:
            for table in self._tables:
                database.execute(f'DELETE FROM {table}')
        self._enrolled = 0

    def _wait_until_idle(self):
        """Return when Ironic works on no node."""
        self._wait('Ironic to be done with its nodes',
                   lambda: not self._count('nodes', 'reservation NOT NULL'))

    @contextlib.contextmanager
    def _open(self):
        """Open Ironic's database; what is changed is there for it at once."""
        database = sqlite3.connect(self._database, timeout=DEADLINE)
        database.row_factory = sqlite3.Row
        with contextlib.closing(database), database:
            yield database

    def _all_tables(self):
        with self._open() as database:
            return [row['name'] for row in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'")]

    def _count(self, table, condition='TRUE'):
        with self._open() as database:
            (count,), = database.execute(
                f'SELECT count(*) FROM {table} WHERE {condition}')
            return count

    def _select(self, nodes):
        """Return {uuid of a node: its row in the database}, of these."""
        with self._open() as database:
            rows = [dict(row)
                    for row in database.execute('SELECT * FROM nodes')]
        # The database numbers what it gets.
        return {row['uuid']: row | {'id': None}
                for row in rows if row['uuid'] in nodes}

    def _insert(self, rows):
        with self._open() as database:
            for row in rows:
                database.execute(
                    f'INSERT INTO nodes ({", ".join(row)}) '
                    f'VALUES ({", ".join("?" * len(row))})',
                    list(row.values()))

    def reserve(self, node, instance):
        """Let somebody beside nova use a node.

        :param instance: uuid that nova does not know.
        """
        self.client.node.update(node, [
            {'op': 'add', 'path': '/instance_uuid', 'value': instance}])

    def wait_for(self, nodes, **fields):
        """Return when these nodes have these values in these fields.

        :raises IronicError: they did not get them in time.
        """
        def reached():
            seen = {node.uuid: node for node in self.client.node.list(
                fields=['uuid', *fields], limit=0)}
            return all(
                getattr(seen[node], field) == value
                for node in nodes for field, value in fields.items())

        self._wait(f'{fields} on {nodes}', reached)
