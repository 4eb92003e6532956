# SPDX-License-Identifier: Apache-2.0

"""What the processes of the stack are and when each of them is ready."""

import dataclasses
import os
import socket
import time
import urllib.error
import urllib.request

from lab import errors
from lab import settings as places

_RABBITMQ = '/usr/lib/rabbitmq/bin/rabbitmq-server'


@dataclasses.dataclass(frozen=True)
class Service:
    """One process of the stack.

    :ivar name: of the process, its log and its pid file
    :ivar argv: program and arguments
    :ivar environment: what it needs besides :func:`environment`
    :ivar port: TCP port of 127.0.0.1 that it opens, None for none
    :ivar url: answers below 500 once it is ready, None for none
    """

    name: str
    argv: tuple
    environment: dict = dataclasses.field(default_factory=dict)
    port: int | None = None
    url: str | None = None

    def ready(self):
        """Whether it answers; a service without a port always does."""
        if self.url:
            return _answers(self.url)
        return self.port is None or _listens(self.port)


def environment(settings):
    """The environment of every process of the lab.

    Without the credentials, proxies and Python settings of the person
    who starts it: a lab is the same whoever starts it.
    """
    kept = {name: value for name, value in os.environ.items()
            if name in ('HOME', 'USER', 'LOGNAME', 'TMPDIR', 'TZ')}
    path = [str(settings.venv / 'bin'), '/usr/local/sbin', '/usr/local/bin',
            '/usr/sbin', '/usr/bin', '/sbin', '/bin']
    return kept | {'PATH': ':'.join(path), 'LANG': 'C.UTF-8',
                   'PYTHONUNBUFFERED': '1'}


def mariadb(settings, first=False):
    """The database server.

    :param first: create the account and the databases
    """
    argv = ['mariadbd', f'--defaults-file={settings.conf / "mariadb.cnf"}']
    if os.geteuid() == 0:
        argv.append('--user=root')
    begin = 'mariadb-first.sql' if first else 'mariadb-place.sql'
    argv.append(f'--init-file={settings.conf / begin}')
    return Service('mariadb', tuple(argv), port=settings.port('mariadb'))


def memcached(settings):
    """The cache of tokens and of keystone."""
    argv = ['memcached', '-l', places.HOST, '-U', '0', '-m', '64',
            '-p', str(settings.port('memcached'))]
    if os.geteuid() == 0:
        argv += ['-u', 'root']
    return Service('memcached', tuple(argv), port=settings.port('memcached'))


def bus(settings):
    """The message bus and the name server that it wants."""
    home = settings.data / 'rabbitmq'
    erlang = {'HOME': str(home),
              'ERL_EPMD_PORT': str(settings.port('epmd')),
              'ERL_EPMD_ADDRESS': places.HOST}
    return [
        # In the foreground and first, or RabbitMQ starts one that stays.
        Service('epmd', ('epmd',), erlang, port=settings.port('epmd')),
        Service('rabbitmq', (_RABBITMQ,), erlang | {
            'RABBITMQ_NODENAME': f'lab{settings.base_port}@localhost',
            'RABBITMQ_NODE_IP_ADDRESS': places.HOST,
            'RABBITMQ_NODE_PORT': str(settings.port('rabbitmq')),
            'RABBITMQ_DIST_PORT': str(settings.port('rabbitmq-dist')),
            'RABBITMQ_CONF_ENV_FILE': '/dev/null',
            'RABBITMQ_CONFIG_FILE': str(settings.conf / 'rabbitmq.conf'),
            'RABBITMQ_ENABLED_PLUGINS_FILE':
                str(settings.conf / 'rabbitmq-plugins'),
            'RABBITMQ_MNESIA_BASE': str(home / 'mnesia'),
            'RABBITMQ_LOG_BASE': str(home / 'log'),
            'RABBITMQ_LOGS': '-',
            'RABBITMQ_PID_FILE': str(home / 'pid'),
            'RABBITMQ_GENERATED_CONFIG_DIR': str(home / 'config'),
            'RABBITMQ_SCHEMA_DIR': str(home / 'schema'),
            'RABBITMQ_PLUGINS_EXPAND_DIR': str(home / 'plugins'),
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                '-kernel inet_dist_use_interface {127,0,0,1}',
        }, port=settings.port('rabbitmq')),
    ]


def keystone(settings):
    """The identity API."""
    return _wsgi(settings, 'keystone', 'keystone.wsgi.api:application')


def glance(settings):
    """The image API."""
    return _wsgi(settings, 'glance', 'glance.wsgi.api:application')


def neighbours(settings):
    """The projects that nova works with."""
    ironic = (settings.program('ironic'), '--config-file',
              str(settings.conf / 'ironic' / 'ironic.conf'))
    return [
        keystone(settings),
        _wsgi(settings, 'placement', 'placement.wsgi.api:application'),
        Service('ironic', ironic, port=settings.port('ironic'),
                url=settings.url('ironic') + '/v1/'),
        glance(settings),
        _wsgi(settings, 'neutron', 'lab.neutron_api:application',
              OS_NEUTRON_CONFIG_FILES='neutron.conf',
              PYTHONPATH=str(settings.repository)),
    ]


def nova_api(settings):
    """The compute API."""
    paste = settings.venv / 'etc' / 'nova' / 'api-paste.ini'
    # Up to then it runs under eventlet, whose locks are those of one thread.
    size = ({} if settings.release == places.DEFAULT_RELEASE
            else {'processes': 3, 'threads': 1})
    return _wsgi(settings, 'nova', 'nova.wsgi.osapi_compute:application',
                 name='nova-api', OS_NOVA_CONFIG_FILES=f'{paste};nova.conf',
                 **size)


def nova(settings):
    """All of nova that is there once."""
    file = str(settings.conf / 'nova' / 'nova.conf')
    return [nova_api(settings)] + [
        Service(name, (settings.program(name), '--config-file', file))
        for name in ('nova-conductor', 'nova-scheduler')]


def compute(settings, name):
    """One nova-compute."""
    return Service(name, (
        settings.program('nova-compute'), '--config-file',
        str(settings.conf / 'nova' / f'{name}.conf')))


def at(settings, service, ahead):
    """The same service with a clock that is wrong, see lab.wrong_clock.

    :param ahead: seconds by which it is ahead, behind if negative
    """
    return dataclasses.replace(
        service, argv=(settings.program('python'), '-m', 'lab.wrong_clock',
                       str(ahead), *service.argv),
        environment={**service.environment,
                     'PYTHONPATH': str(settings.repository)})


def watched(settings, service, seconds):
    """The same service with a watchdog, see lab.supervisor.

    :param seconds: without a sign of life after which it is killed
    """
    return dataclasses.replace(
        service, argv=(settings.program('python'), '-m', 'lab.supervisor',
                       str(seconds), *service.argv),
        environment={**service.environment,
                     'PYTHONPATH': str(settings.repository)})


def relay(settings):
    """What stands between the message bus and a compute to be cut off."""
    return Service('relay', (
        settings.program('python'), '-m', 'lab.relay',
        str(settings.port('relay')), str(settings.port('rabbitmq'))),
        {'PYTHONPATH': str(settings.repository)},
        port=settings.port('relay'))


def watchers(settings):
    """What watches the others: the exporter for operators, Prometheus."""
    exporter, prometheus = (
        settings.port(name) for name in ('exporter', 'prometheus'))
    return [
        Service('exporter', (
            settings.program('nova-ironic-multihost'), 'exporter',
            '--port', str(exporter), '--interval', '5',
            '--os-cloud', 'lab-admin',
            '--os-baremetal-cloud', 'lab-system-admin'),
            {'OS_CLIENT_CONFIG_FILE': str(settings.clouds)}, port=exporter),
        Service('prometheus', (
            str(settings.prometheus / 'usr' / 'bin' / 'prometheus'),
            f'--config.file={settings.conf / "prometheus.json"}',
            f'--storage.tsdb.path={settings.data / "prometheus"}',
            f'--web.listen-address={places.HOST}:{prometheus}'),
            port=prometheus, url=f'http://{places.HOST}:{prometheus}/-/ready'),
    ]


def start(settings, processes, service):
    """Start the process of a service; its log is named like it."""
    processes.spawn(service.name, service.argv,
                    environment(settings) | service.environment)


def wait(processes, services, patience=240, done=None, since=None):
    """Return when all services are ready.

    :param patience: seconds
    :param done: called with a service and its seconds when it is ready
    :param since: when they were started, monotonic seconds; default now
    :raises LabError: when one of them ends, or is not ready in time; the
        message has the end of its log
    """
    begin = time.monotonic()
    since = begin if since is None else since
    pending = list(services)
    while pending:
        for service in list(pending):
            if processes.state(service.name) == 'stopped':
                raise errors.LabError(_obituary(
                    processes, service.name, 'ended right after its start'))
            if service.ready():
                pending.remove(service)
                if done:
                    done(service, time.monotonic() - since)
        if pending and time.monotonic() - begin > patience:
            raise errors.LabError(_obituary(
                processes, pending[0].name,
                f'is not ready after {patience} s'))
        time.sleep(0.05)


def _obituary(processes, name, what):
    return (f'{name} {what}. The end of {processes.log(name)}:\n'
            f'{processes.tail(name)}')


def _wsgi(settings, kind, module, name=None, processes=1, threads=8, **more):
    """An API in uWSGI: one process, a few threads.

    :param kind: name of port and of configuration directory
    :param threads: how many
    :param processes: how many
    :param more: further variables of its environment
    """
    port = settings.port(kind)
    argv = (
        settings.program('uwsgi'), '--module', module,
        '--http-socket', f'{places.HOST}:{port}',
        '--home', str(settings.venv), '--master',
        '--processes', str(processes), '--threads', str(threads),
        '--enable-threads', '--lazy-apps', '--need-app',
        '--die-on-term', '--buffer-size', '65535', '--disable-logging',
        # uWSGI closes each connection and does not say so; a client that
        # keeps it for the next request would fail then.
        '--add-header', 'Connection: close')
    variables = {f'OS_{kind.upper()}_CONFIG_DIR': str(settings.conf / kind)}
    return Service(name or kind, argv, variables | more, port=port,
                   url=f'http://{places.HOST}:{port}/')


def _listens(port):
    try:
        socket.create_connection((places.HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _answers(url):
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(url, timeout=0.5).close()
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
    return True
