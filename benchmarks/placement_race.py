# SPDX-License-Identifier: Apache-2.0

"""One machine for two servers: does placement give it away twice?

Two requests allocate the one unit of a resource provider. The second begins
and ends while the first has read what is in use and has not written yet, as
happens when several schedulers or conductors are at work. This is the real
placement on a real MariaDB, which this starts for itself, with what placement
and MariaDB do by default and with each of two settings that avoid it. One line
each: the HTTP statuses of both, and how many units are allocated then.

MariaDB's programs have to be installed (apt-get install mariadb-server). Run
it with the environment of the tests of nova 34:

    .tox/nova34/bin/python -m benchmarks.placement_race
"""

import argparse
import contextlib
import importlib.util
import logging
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

HOST = '127.0.0.1'
ACCOUNT = 'race'
DATABASE = 'placement'

#: What is set -> (allocation_conflict_retry_count, isolation of transactions).
CASES = {
    'nothing': (None, None),
    'allocation_conflict_retry_count = 1': (1, None),
    'READ COMMITTED': (None, 'READ COMMITTED'),
}

PROVIDER = '11111111-0000-0000-0000-000000000000'
FIRST = '22222222-0000-0000-0000-000000000000'
SECOND = '33333333-0000-0000-0000-000000000000'
RESOURCE = 'CUSTOM_BAREMETAL'

#: Seconds until MariaDB answers, or until it has ended.
PATIENCE = 60

#: Where Debian has the server, which is not in everybody's path.
SBIN = f'{os.environ.get("PATH", "")}:/usr/sbin'


def free_port():
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def mariadb(directory):
    """Run a MariaDB with one account, and databases in a directory.

    :param directory: pathlib.Path of an empty directory.
    :returns: the port it listens on.
    """
    missing = [name for name in ('mariadb-install-db', 'mariadbd')
               if shutil.which(name, path=SBIN) is None]
    if missing:
        sys.exit(f'{" and ".join(missing)} not found: apt-get install '
                 'mariadb-server')
    user = ['--user=root'] if os.geteuid() == 0 else []
    data = f'--datadir={directory / "data"}'
    log = (directory / 'mariadb.log').open('w')
    environment = os.environ | {'PATH': SBIN}
    subprocess.run(
        ['mariadb-install-db', '--no-defaults', '--skip-test-db', data,
         '--auth-root-authentication-method=normal', *user],
        check=True, stdout=log, stderr=log, env=environment)
    first = directory / 'first.sql'
    first.write_text(
        f"CREATE USER '{ACCOUNT}'@'{HOST}';\n"
        f"GRANT ALL ON *.* TO '{ACCOUNT}'@'{HOST}';\n")
    port = free_port()
    server = subprocess.Popen(
        ['mariadbd', '--no-defaults', data, f'--port={port}',
         f'--bind-address={HOST}', '--skip-name-resolve',
         f'--socket={directory / "socket"}', f'--init-file={first}', *user],
        stdout=log, stderr=log, env=environment)
    try:
        wait_for(port, server, log)
        yield port
    finally:
        server.terminate()
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
        log.close()


def wait_for(port, server, log):
    """Return when MariaDB takes connections."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and server.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, port), 1).close()
            return
        time.sleep(0.1)
    log.flush()
    sys.exit('MariaDB does not start:\n' + pathlib.Path(
        log.name).read_text())


class Placement:
    """The real placement, called without a server in front of it.

    :param port: of MariaDB.
    :param retries: ``[placement]allocation_conflict_retry_count``, or None
        for what is the default.
    :param isolation: of transactions, None for what is the default.
    """

    def __init__(self, port, retries, isolation):
        from oslo_config import cfg
        from placement import conf as options
        from placement import deploy

        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        url = f'mysql+pymysql://{ACCOUNT}@{HOST}:{port}/{DATABASE}'
        if isolation:
            url += '?' + urllib.parse.urlencode({
                'init_command': 'SET SESSION TRANSACTION ISOLATION LEVEL '
                                f'{isolation}'})
        conf.set_override('connection', url, 'placement_database')
        conf.set_override('sync_on_startup', True, 'placement_database')
        conf.set_override('auth_strategy', 'noauth2', 'api')
        if retries is not None:
            conf.set_override(
                'allocation_conflict_retry_count', retries, 'placement')
        conf([], project='placement', default_config_files=[])
        self._app = deploy.loadapp(conf)

    def call(self, method, path, body=None):
        """Send a request; return its status and its JSON or None."""
        import webob

        request = webob.Request.blank(path, method=method, headers={
            'x-auth-token': 'admin', 'openstack-api-version': 'placement 1.39',
            'content-type': 'application/json'})
        if body is not None:
            request.json_body = body
        response = request.get_response(self._app)
        return response.status_int, (
            response.json if response.body else None)

    def prepare(self):
        """Make the provider with its one unit."""
        for method, path, body in (
                ('PUT', f'/resource_classes/{RESOURCE}', None),
                ('POST', '/resource_providers',
                 {'name': 'node', 'uuid': PROVIDER}),
                ('PUT', f'/resource_providers/{PROVIDER}/inventories', {
                    'resource_provider_generation': 0,
                    'inventories': {RESOURCE: {'total': 1}}})):
            status, answer = self.call(method, path, body)
            if status >= 300:
                sys.exit(f'placement: {method} {path}: {status} {answer}')

    def allocate(self, consumer):
        """Allocate the unit; return the status."""
        return self.call('PUT', f'/allocations/{consumer}', {
            'allocations': {PROVIDER: {'resources': {RESOURCE: 1}}},
            'project_id': 'project', 'user_id': 'user',
            'consumer_type': 'INSTANCE', 'consumer_generation': None})[0]

    def used(self):
        """Return how many units are allocated."""
        return self.call('GET', f'/resource_providers/{PROVIDER}/usages')[1][
            'usages'][RESOURCE]


def race(placement):
    """Let the second request come in the middle of the first one.

    :returns: the statuses of both.
    """
    from placement.objects import allocation

    inner = allocation._delete_allocations_for_consumer
    second = []

    def overtaken(context, consumer):
        # The first one has read by now what is in use.
        if not second:
            second.append(None)
            thread = threading.Thread(target=lambda: second.append(
                placement.allocate(SECOND)))
            thread.start()
            thread.join()
        return inner(context, consumer)

    allocation._delete_allocations_for_consumer = overtaken
    first = placement.allocate(FIRST)
    return first, second[-1]


def try_case(name, port):
    """Print what comes of one of :data:`CASES`, in a process of its own."""
    import pymysql

    with pymysql.connect(host=HOST, port=port, user=ACCOUNT) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS {DATABASE}')
            cursor.execute(f'CREATE DATABASE {DATABASE}')
    # It warns of what is shown.
    logging.disable(logging.WARNING)
    placement = Placement(port, *CASES[name])
    placement.prepare()
    first, second = race(placement)
    print(f'{name:<40}{second:>8}{first:>8}{placement.used():>8} of 1')


def main():
    """Run every case on one MariaDB."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--case', choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument('--port', type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if missing := [name for name in ('placement', 'pymysql', 'webob')
                   if importlib.util.find_spec(name) is None]:
        sys.exit(f'{sys.executable} has no {", ".join(missing)}: tools/test '
                 'unit makes .tox/nova34, whose Python has them.')
    if args.case:
        try_case(args.case, args.port)
        return
    print(f'{"set":<40}{"second":>8}{"first":>8}{"used":>8}', flush=True)
    with tempfile.TemporaryDirectory() as directory:
        with mariadb(pathlib.Path(directory)) as port:
            for name in CASES:
                if subprocess.call([
                        sys.executable, '-m', 'benchmarks.placement_race',
                        '--case', name, '--port', str(port)]):
                    sys.exit(1)


if __name__ == '__main__':
    main()
