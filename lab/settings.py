# SPDX-License-Identifier: Apache-2.0

"""Where a lab lives and which ports it uses.

A lab is one directory and a block of ports on 127.0.0.1; nothing else
tells two labs on one machine apart. Standard library only, because the
command line needs this before anything is installed.
"""

import dataclasses
import json
import os
import pathlib

from lab import errors

HOST = '127.0.0.1'
DEFAULT_BASE_PORT = 17000
# Of OpenStack, from the oldest on: those that the driver supports.
RELEASES = ('2025.1', '2025.2', '2026.1', '2026.2')
DEFAULT_RELEASE = RELEASES[-1]
USER = 'lab'
# Whoever administers the database.
OPERATOR = 'operator'
PASSWORD = 'lab'
REGION = 'RegionOne'
# Seconds without a heartbeat after which nova calls a compute down, unless
# "up --set" says otherwise.
SERVICE_DOWN_TIME = 8
# Seconds from one audit of a nova-compute to the next one, likewise.
AUDIT = 10
DATABASES = ('keystone', 'placement', 'glance', 'neutron', 'ironic',
             'nova_api', 'nova_cell0', 'nova_cell1')
# Order matters: a name's place is its distance from the base port.
PORT_NAMES = ('mariadb', 'epmd', 'rabbitmq', 'rabbitmq-dist', 'memcached',
              'keystone', 'placement', 'glance', 'neutron', 'ironic', 'nova',
              'relay', 'exporter', 'prometheus')


@dataclasses.dataclass(frozen=True)
class Settings:
    """The places and ports of one lab.

    :ivar directory: everything the lab writes is below it
    :ivar venv: the Python environment all services run in
    :ivar base_port: first of the lab's ports
    :ivar release: one of :data:`RELEASES`
    """

    directory: pathlib.Path
    venv: pathlib.Path
    base_port: int
    release: str = DEFAULT_RELEASE

    @property
    def repository(self):
        """The checkout that this lab belongs to."""
        return pathlib.Path(__file__).resolve().parent.parent

    @property
    def requirements(self):
        """Files that say what is installed, for pip."""
        lab = self.repository / 'lab'
        return (lab / 'requirements.txt',
                lab / 'releases' / f'{self.release}.txt')

    @property
    def constraints(self):
        """File that says of which version all the rest is."""
        return self.repository / 'constraints' / f'{self.release}.txt'

    @property
    def logs(self):
        """One file per process, ``<name>.log``."""
        return self.directory / 'logs'

    @property
    def run(self):
        """Pid files, sockets and locks."""
        return self.directory / 'run'

    @property
    def conf(self):
        """Rendered configuration files, made anew by each ``up``."""
        return self.directory / 'conf'

    @property
    def data(self):
        """What services keep: databases, images, keys."""
        return self.directory / 'data'

    @property
    def snapshot(self):
        """Copy of :attr:`data` as it is right after the preparation.

        Labs that share a Python environment share it as well.
        """
        return self.venv.with_name(_of_release('snapshot', self.release))

    @property
    def prometheus(self):
        """Where Debian's package prometheus is unpacked."""
        return self.venv.with_name('prometheus')

    @property
    def state_file(self):
        """JSON written by ``up`` and ``down``; see :mod:`lab.state`."""
        return self.directory / 'state.json'

    @property
    def openrc(self):
        """Shell file with the credentials for the openstack client."""
        return self.directory / 'openrc'

    @property
    def clouds(self):
        """The same for all clients, as a clouds.yaml."""
        return self.directory / 'clouds.yaml'

    def port(self, name):
        """TCP port of a listener.

        :param name: one of :data:`PORT_NAMES`
        """
        return self.base_port + PORT_NAMES.index(name)

    def url(self, name):
        """Base URL of an API, without a trailing slash.

        :param name: keystone, placement, glance, neutron, ironic or nova
        """
        return f'http://{HOST}:{self.port(name)}'

    def database(self, name):
        """Arguments for ``pymysql.connect``.

        :param name: one of :data:`DATABASES`
        """
        if name not in DATABASES:
            raise KeyError(name)
        # Whoever may use TLS reads all certificates of the machine for each
        # connection, which costs more than everything that is asked on it.
        return {'host': HOST, 'port': self.port('mariadb'), 'user': USER,
                'password': PASSWORD, 'database': name, 'ssl_disabled': True}

    def database_url(self, name):
        """The same as an SQLAlchemy URL, for configuration files."""
        return ('mysql+pymysql://{user}:{password}@{host}:{port}/{database}'
                '?ssl_disabled=true'.format(**self.database(name)))

    def program(self, name):
        """Path of a console script of the venv."""
        return str(self.venv / 'bin' / name)

    def before(self):
        """The same lab with the programs of the release before this one.

        :raises LabError: for the oldest one
        """
        index = RELEASES.index(self.release)
        if not index:
            raise errors.LabError(
                f'The lab knows no release before {self.release}; take a '
                'newer one with --release.')
        return self.of(RELEASES[index - 1])

    def of(self, release):
        """The same lab with the programs of another release.

        :param release: one of :data:`RELEASES`
        """
        name = self.venv.name
        if self.release != DEFAULT_RELEASE:
            name = name.removesuffix(f'-{self.release}')
        return dataclasses.replace(
            self, release=release,
            venv=self.venv.with_name(_of_release(name, release)))


def load(directory=None, base_port=None, release=None):
    """Find out which lab is meant.

    What is not given comes from the environment (LAB_DIR, LAB_VENV,
    LAB_BASE_PORT) and then from the defaults. The port of a lab that is
    up, also half up, is what it was started with, whatever is given, and so
    is its release.

    :param directory: path; default ``.lab`` in the checkout
    :param base_port: int; the lab takes the ports from here on
    :param release: one of :data:`RELEASES`
    :returns: :class:`Settings`
    :raises LabError: for a port that cannot be used, or a release that is
        not that of a lab that is up
    """
    home = pathlib.Path(__file__).resolve().parent.parent / '.lab'
    directory = pathlib.Path(
        directory or os.environ.get('LAB_DIR') or home).absolute()
    known, running, up = _recorded(directory / 'state.json')
    if up and release not in (None, running):
        raise errors.LabError(
            f'The lab is up with OpenStack {running}; run "tools/lab down" '
            'first.')
    release = running if up else release or DEFAULT_RELEASE
    venv = pathlib.Path(
        os.environ.get('LAB_VENV') or home / 'venv').absolute()
    venv = venv.with_name(_of_release(venv.name, release))
    if up:
        base_port = known
    elif base_port is None:
        base_port = (os.environ.get('LAB_BASE_PORT') or known
                     or DEFAULT_BASE_PORT)
    return Settings(directory, venv, _checked(base_port), release)


def _of_release(name, release):
    return name if release == DEFAULT_RELEASE else f'{name}-{release}'


def _recorded(state_file):
    """Base port and release of the state file, whether the lab is up."""
    try:
        state = json.loads(state_file.read_text())
        return (state['base_port'], state.get('release', DEFAULT_RELEASE),
                state['phase'] != 'down')
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, DEFAULT_RELEASE, False


def _checked(base_port):
    last = 65536 - len(PORT_NAMES)
    try:
        base_port = int(base_port)
    except ValueError:
        base_port = 0
    if not 1024 <= base_port <= last:
        raise errors.LabError(
            'The base port (--base-port or LAB_BASE_PORT) must be a number '
            f'from 1024 to {last}.')
    return base_port
