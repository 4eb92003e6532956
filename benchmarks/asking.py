# SPDX-License-Identifier: Apache-2.0

"""What the commands of operators ask, and how long they take.

A process answers from memory as nova, placement and Ironic, in a cloud of a
number of nodes: ten compute services with as many nodes each, of which every
other node has a server, and one of these compute services is dead.

Figures are requests to the three APIs, without those for their versions, and
seconds of wall clock and of CPU of the command. The start of Python and what
real services need for their answers come on top, and are not measured.
"""

import contextlib
import datetime
import http.server
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from unittest import mock
import urllib.parse
import urllib.request
import uuid

from lab import errors

#: How many nodes a cloud has.
SIZES = (10, 1000, 10000)

HOSTS = tuple(f'compute-{number}' for number in range(1, 11))

DEAD = HOSTS[-1]

#: In the order in which they are given.
COMMANDS = (
    'list', 'list --nova', 'check', 'node list',
    f'node show {uuid.UUID(int=1)}', 'plan --remove compute-1', 'leaks',
    'drain compute-1', 'undrain compute-1', f'silent {DEAD}',
    f'fence {DEAD} --dry-run', f'fence {DEAD}', f'unfence {DEAD}')

#: The most entries of a page.
PAGE = 1000

#: API -> its version and the latest microversion.
VERSIONS = {'compute': ('v2.1', '2.100'), 'placement': ('v1.0', '1.39'),
            'baremetal': ('v1', '1.99')}

_HOST = 'OS-EXT-SRV-ATTR:host'


class Apis:
    """The APIs of a cloud in which nothing happens.

    :param nodes: how many.
    """

    def __init__(self, nodes):
        self._asked = 0
        self._services = [{
            'binary': 'nova-compute', 'host': host, 'id': f'id-{host}',
            'status': 'enabled', 'state': 'up', 'forced_down': False,
            'disabled_reason': None, 'updated_at': _now()} for host in HOSTS]
        self._services[-1]['state'] = 'down'
        owned = [(str(uuid.UUID(int=number)), HOSTS[number % len(HOSTS)],
                  str(uuid.UUID(int=nodes + number)) if number % 2 else None)
                 for number in range(nodes)]
        self._lists = {
            '/compute/os-hypervisors/detail': ('hypervisors', 'id', [{
                'id': node, 'hypervisor_hostname': node,
                'hypervisor_type': 'ironic', 'service': {'host': host}}
                for node, host, _ in owned]),
            '/compute/servers/detail': ('servers', 'id', [{
                'id': server, 'name': server, 'updated': _now(), _HOST: host,
                'OS-EXT-SRV-ATTR:hypervisor_hostname': node,
                'OS-EXT-STS:vm_state': 'active',
                'OS-EXT-STS:task_state': None}
                for node, host, server in owned if server]),
            '/compute/os-migrations': ('migrations', 'uuid', []),
            '/compute/os-aggregates': ('aggregates', 'uuid', []),
            '/placement/resource_providers': ('resource_providers', 'uuid', [
                {'uuid': node, 'name': node} for node, _, _ in owned]),
            '/baremetal/nodes': ('nodes', 'uuid', [{
                'uuid': node, 'name': node, 'instance_uuid': server,
                'provision_state': 'active' if server else 'available',
                'power_state': 'power on', 'maintenance': False,
                'conductor_group': '', 'shard': None,
                'provision_updated_at': _now()}
                for node, _, server in owned])}

    def serve(self):
        """Write the URL to standard output, and answer until the end."""
        apis = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *args):
                """Log nothing."""

            def do_GET(self):
                body = self.rfile.read(
                    int(self.headers.get('Content-Length', 0)))
                where = urllib.parse.urlsplit(self.path)
                found = apis.answer(
                    where.path, dict(urllib.parse.parse_qsl(where.query)),
                    json.loads(body or '{}'))
                content = json.dumps(found).encode()
                self.send_response(200 if found else 404)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_PUT = do_GET

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self._url = f'http://127.0.0.1:{server.server_port}'
        print(self._url, flush=True)
        server.serve_forever()

    def answer(self, path, parameters, body):
        """Return the answer to a request, {} if there is none.

        :param body: of a PUT.
        """
        if path == '/asked':
            total, self._asked = self._asked, 0
            return {'questions': total}
        _, api, rest = (*path.split('/', 2), '', '')[:3]
        if api in VERSIONS and not rest:
            return self._versions(api)
        self._asked += 1
        if path == '/compute/os-services':
            for service in self._services:
                # A fenced compute service has been started.
                if service['state'] == 'up' or service['forced_down']:
                    service['updated_at'] = _now()
            return {'services': self._services}
        if body:
            [service] = [one for one in self._services
                         if path == f'/compute/os-services/{one["id"]}']
            service.update(body)
            return {'service': service}
        if path not in self._lists:
            return {}
        key, identity, entries = self._lists[path]
        if 'required' in parameters:
            entries = []
        if 'host' in parameters:
            entries = [entry for entry in entries
                       if entry[_HOST] == parameters['host']]
        # A page ends the list before it; its marker is an entry of it.
        first = 1 + next((
            number for number, entry in enumerate(entries)
            if entry[identity] == parameters.get('marker')), -1)
        size = int(parameters.get('limit', len(entries)))
        return {key: entries[first:first + size]}

    def _versions(self, api):
        version, latest = VERSIONS[api]
        return {'versions': [{
            'id': version, 'status': 'CURRENT', 'min_version': '1.0',
            'version': latest, 'max_version': latest, 'links': [
                {'rel': 'self', 'href': f'{self._url}/{api}'}]}]}


def _now():
    return datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%S.%f')


def measure(progress, sizes=SIZES, commands=COMMANDS):
    """Return the figures of each command at each number of nodes."""
    found = {}
    for nodes in sizes:
        with progress.step(f'{nodes} nodes'), cloud(nodes) as url:
            # What is imported late.
            run(url, 'list')
            for command in commands:
                found.setdefault(command, {})[nodes] = run(url, command)
    return {'commands': found}


@contextlib.contextmanager
def cloud(nodes):
    """Have a cloud that the commands ask; return its URL."""
    with (tempfile.TemporaryDirectory() as folder,
          subprocess.Popen(
              [sys.executable, '-m', 'benchmarks.asking', str(nodes)],
              stdout=subprocess.PIPE, text=True,
              cwd=pathlib.Path(__file__).parents[1]) as child):
        try:
            url = child.stdout.readline().strip()
            clouds = pathlib.Path(folder) / 'clouds.yaml'
            clouds.write_text(json.dumps({'clouds': {'bench': {
                'auth_type': 'http_basic',
                'auth': {'username': 'bench', 'password': 'bench',
                         'endpoint': url},
                **{f'{api}_endpoint_override': f'{url}/{api}'
                   for api in VERSIONS}}}}))
            with mock.patch.dict(os.environ, {
                    'OS_CLIENT_CONFIG_FILE': str(clouds),
                    'OS_CLOUD': 'bench', 'no_proxy': '127.0.0.1'}):
                yield url
        finally:
            child.kill()


def run(url, command):
    """Run a command; return what it has asked, and its seconds.

    :raises LabError: if it is refused, or does not know
    """
    # Not by the process that answers, which imports this, too.
    from nova_ironic_multihost.client.commands import app

    out, err = io.StringIO(), io.StringIO()
    began, used = time.monotonic(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = app.main(command.split())
    found = {'wall': time.monotonic() - began,
             'cpu': time.process_time() - used}
    # 1: something is left, or is found.
    if status not in (0, 1):
        raise errors.LabError(f'{command}: {err.getvalue()}')
    with urllib.request.urlopen(f'{url}/asked') as answer:
        return found | json.load(answer)


def table(found):
    """Return the figures as lines of text."""
    sizes = list(next(iter(found['commands'].values())))
    lines = [f'{"":50}' + ''.join(f'{size:>27,}' for size in sizes),
             f'{"":50}' + f'{"questions":>11}{"wall s":>8}{"CPU s":>8}' * len(
                 sizes)]
    lines += [f'{command:50}' + ''.join(
        f'{its[size]["questions"]:11}{its[size]["wall"]:8.2f}'
        f'{its[size]["cpu"]:8.2f}' for size in sizes)
        for command, its in found['commands'].items()]
    return lines


if __name__ == '__main__':
    Apis(int(sys.argv[1])).serve()
