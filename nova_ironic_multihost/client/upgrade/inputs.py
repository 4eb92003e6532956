# SPDX-License-Identifier: Apache-2.0

"""The inputs of ``nova-ironic-multihost-status``, read when needed.

Each input is read once. If that fails, each access raises the same error.
"""

import functools
import json
import pathlib
import shutil
import subprocess
import sys

from oslo_config import cfg

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Unknown
from nova_ironic_multihost.client.upgrade import nova_compute
from nova_ironic_multihost.rules.peers import host_key

#: An input is not known; the message names the remedy.
ERRORS = (Unknown, cloud_state.CloudError)

#: Timeout of the probe, which imports nova, in seconds.
DEADLINE = 300

_PROBE = pathlib.Path(__file__).parents[2] / 'adapters' / 'probe.py'

_PYTHON = ('It is the Python of nova-compute: see that it works, and run this '
           'as a user who may run it.')

_TRAIT = 'OWNER_NOVA'


def once(read):
    """Return a property that calls ``read`` once and keeps value or error.

    :param read: the method; it may raise one of :data:`ERRORS`.
    """
    @functools.wraps(read)
    def get(self):
        if read.__name__ not in self.known:
            try:
                self.known[read.__name__] = read(self)
            except ERRORS as error:
                self.known[read.__name__] = error
        found = self.known[read.__name__]
        if isinstance(found, ERRORS):
            raise found
        return found
    return property(get)


class UpgradeInputs:
    """Inputs from this host and from the APIs.

    Each property raises one of :data:`ERRORS` if it is not known.

    :param options: of the command line.
    """

    def __init__(self, options):
        self._options = options
        self.known = {}

    @once
    def probe(self):
        """Result of loading the driver, a Probe."""
        python = interpreter()
        try:
            done = subprocess.run(
                [python, '-P', str(_PROBE), *self._base()],
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=DEADLINE)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unknown(f'{python} cannot be run: {error}. {_PYTHON}'
                          ) from error
        try:
            *_, last = done.stdout.splitlines() or ['']
            result = json.loads(last)
            return nova_compute.Probe(
                python, result['nova'], result['registered'], result['error'],
                tuple(result['lacking']), tuple(result['shadowed']))
        except (KeyError, TypeError, ValueError) as error:
            *_, last = done.stderr.splitlines() or ['nothing']
            raise Unknown(
                f'{python} ends with status {done.returncode} when it is to '
                f'load the driver, and says: {last}. {_PYTHON}') from error

    def _base(self):
        """Return [base_driver], or [] without one."""
        try:
            base = self.settings.base_driver
        except Unknown:
            # Another check reports it.
            return []
        return [base] if base else []

    @property
    def release(self):
        """The release of nova, a number; None if it is not known."""
        try:
            return nova_compute.release_of(self.probe.nova)
        except Unknown:
            return None

    @once
    def settings(self):
        """Settings of this host's nova.conf, a ConfSettings."""
        return conf_settings.read(
            self._options.config_file, self._options.config_dir)

    @once
    def collected(self):
        """Settings of all compute services, a list of ConfSettings.

        Those of this host come first, unless they were collected, too, or the
        host has no compute service.
        """
        found = [conf_settings.read_collected(files, name)
                 for name, files in _entries(self._options.collected)]
        try:
            mine = self.settings
        except Unknown:
            # Another check reports it.
            return found
        if mine.of_compute and mine.key not in {one.key for one in found}:
            return [mine, *found]
        return found

    @property
    def conf_files(self):
        """The settings of :attr:`collected`, and of this controller."""
        try:
            mine = self.settings
        except Unknown:
            # Another check reports it.
            return self.collected
        return self.collected if mine.of_compute else [mine, *self.collected]

    @once
    def placement(self):
        """Settings of placement.conf, a PlacementFacts."""
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.IntOpt(
            'allocation_conflict_retry_count', default=10), 'placement')
        conf.register_opts([
            cfg.StrOpt('connection', secret=True),
            cfg.StrOpt('connection_parameters', default='', secret=True),
        ], 'placement_database')
        given = self._options.placement_config
        # A copy is read without directories and environment of this host.
        how = {'default_config_dirs': [], 'use_env': False} if given else {}
        files = given or list(dict.fromkeys(
            cfg.find_config_files('placement', 'placement')))
        if not files:
            raise Unknown(
                'There is no placement.conf here, or not for this user: run '
                'this where placement is, or name a copy with '
                '--placement-config FILE.')
        origin = ', '.join(files)
        try:
            conf([], project='placement', prog='placement',
                 default_config_files=files, **how)
            return conf_settings.PlacementFacts(
                origin, conf.placement.allocation_conflict_retry_count,
                conf.placement_database.connection,
                conf.placement_database.connection_parameters)
        except (cfg.ConfigFilesNotFoundError,
                cfg.ConfigFilesPermissionDeniedError, OSError) as error:
            raise Unknown(f'{error}. Name a file that is there, and run this '
                          'as a user who may read it.') from error
        except (cfg.Error, ValueError) as error:
            # Without the text of the error: the password may be in it.
            raise Unknown(f'{origin} cannot be understood: correct it.'
                          ) from error

    @once
    def units(self):
        """systemd's units of nova-compute, a list; None without systemd."""
        names = self._options.unit or nova_compute.UNITS
        try:
            done = subprocess.run(
                ['systemctl', 'show', '--property=Id,LoadState,'
                 'TimeoutStopUSec,WatchdogUSec', *names],
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return (
            nova_compute.loaded(done.stdout) if done.returncode == 0 else None)

    @once
    def cloud(self):
        """The client of the APIs, a CloudClient."""
        return cloud_client.connect(
            self._options.os_cloud, self._options.os_baremetal_cloud)

    @once
    def seen(self):
        """The state of the cloud, a CloudState."""
        return self.cloud.read()

    @once
    def zones(self):
        """Availability zones: host -> zone."""
        return self.cloud.zones()

    @once
    def marked(self):
        """Uuids of the resource providers with the trait OWNER_NOVA."""
        return self.cloud.marked(_TRAIT)

    @once
    def partition_nodes(self):
        """Uuids of the nodes in the partition of this host."""
        mine = self.settings.partition
        return self.cloud.nodes_of(mine.conductor_group, mine.shard)

    @property
    def hosts(self):
        """The hosts that are up or own nodes."""
        owners = {record.key for record in self.seen.records}
        return [service.host for service in self.seen.services
                if service.up or service.key in owners]

    @property
    def peers(self):
        """The hosts of :attr:`hosts` that share nodes, with this host."""
        mine = self.settings
        peers = mine.partition.peers
        return [host for host in self.hosts
                if peers is None or host_key(host) in {mine.key, *peers}]


def interpreter():
    """Return the path of nova-compute's Python; the default is this one."""
    beside = pathlib.Path(sys.executable).parent / 'nova-compute'
    script = beside if beside.exists() else shutil.which('nova-compute')
    if script is not None:
        try:
            with open(script, encoding='utf-8') as opened:
                first = opened.readline().strip()
        except (OSError, UnicodeDecodeError):
            first = ''
        named = first.removeprefix('#!').split()
        if first.startswith('#!/') and (
                'python' in pathlib.Path(named[0]).name):
            return named[0]
    return sys.executable


def _entries(directory):
    """Return (host, files) of each entry of a directory.

    :raises Unknown: it is empty, or cannot be read.
    """
    if directory is None:
        return []
    root = pathlib.Path(directory)
    try:
        entries = sorted(root.iterdir())
    except OSError as error:
        raise Unknown(f'{directory} cannot be read: {error}. Name the '
                      'directory with the collected files.') from error
    found = []
    for entry in entries:
        files = (sorted(entry.rglob('*.conf'), key=_order)
                 if entry.is_dir() else [entry])
        if files and (entry.is_dir() or entry.suffix == '.conf'):
            found.append((entry.name.removesuffix('.conf'),
                          [str(file) for file in files]))
    if not found:
        raise Unknown(f'{directory} holds no configuration: put the '
                      'nova.conf of each compute service into it.')
    return found


def _order(file):
    """Return the sort key for the order in which nova-compute reads files."""
    return file.parent.suffix == '.d', file.name != 'nova.conf', str(file)
