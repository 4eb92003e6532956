# SPDX-License-Identifier: Apache-2.0

"""What ``nova-ironic-multihost-status`` looks at, read when it is needed.

Each part is read once. One that cannot be read raises the same error again.
"""

import functools
import json
import pathlib
import shutil
import subprocess
import sys
import warnings

from oslo_config import cfg

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client.upgrade import double_allocation
from nova_ironic_multihost.client.upgrade import driver_load
from nova_ironic_multihost.client.upgrade import nova_release
from nova_ironic_multihost.client.upgrade.problem import Unknown
from nova_ironic_multihost.client.upgrade import stop_timeout
from nova_ironic_multihost.rules.peers import host_key

#: What says, in one or two sentences with the remedy, that it is not known.
ERRORS = (Unknown, cloud_client.SurveyError)

#: Seconds in which nova has to be imported.
DEADLINE = 300

_PROBE = pathlib.Path(__file__).parents[2] / 'adapters' / 'probe.py'

_PYTHON = ('It is the Python of nova-compute: see that it works, and run this '
           'as a user who may run it.')

_TRAIT = 'OWNER_NOVA'


def once(read):
    """Return a property that is read once, whether that succeeds or fails.

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
    """What there is on this host, and what the APIs say.

    Each property raises one of :data:`ERRORS` if it is not known.

    :param options: what the command line says.
    """

    def __init__(self, options):
        self._options = options
        self.known = {}

    @once
    def probe(self):
        """What came of loading the driver, a Probe."""
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
            told = json.loads(last)
            return driver_load.Probe(
                python, told['nova'], told['registered'], told['error'],
                tuple(told['lacking']), tuple(told['shadowed']))
        except (KeyError, TypeError, ValueError) as error:
            *_, said = done.stderr.splitlines() or ['nothing']
            raise Unknown(
                f'{python} ends with status {done.returncode} when it is to '
                f'load the driver, and says: {said}. {_PYTHON}') from error

    def _base(self):
        """Return the class that the driver is to extend, in a list."""
        try:
            base = self.settings.base_driver
        except Unknown:
            # Another check tells.
            return []
        return [base] if base else []

    @property
    def release(self):
        """The release of nova, a number; None if it is not known."""
        try:
            return nova_release.number(self.probe.nova)
        except Unknown:
            return None

    @once
    def settings(self):
        """Those of nova.conf, a Settings."""
        return _configuration().read(
            self._options.config_file, self._options.config_dir)

    @once
    def collected(self):
        """Those of all compute services that are here, a list of Settings.

        This host's own come first, unless they are among what was collected
        or it has no compute service.
        """
        found = [_configuration().read_collected(files, name)
                 for name, files in _entries(self._options.collected)]
        try:
            mine = self.settings
        except Unknown:
            # Another check tells.
            return found
        if mine.of_compute and mine.key not in {one.key for one in found}:
            return [mine, *found]
        return found

    @once
    def placement(self):
        """What placement.conf says, a Placement."""
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.IntOpt(
            'allocation_conflict_retry_count', default=10), 'placement')
        conf.register_opt(cfg.StrOpt(
            'connection', secret=True), 'placement_database')
        given = self._options.placement_config
        # For a copy nothing of this host counts.
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
            return double_allocation.PlacementFacts(
                origin, conf.placement.allocation_conflict_retry_count,
                conf.placement_database.connection)
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
        """The units of nova-compute, a list; None without systemd."""
        names = self._options.unit or stop_timeout.UNITS
        try:
            done = subprocess.run(
                ['systemctl', 'show', '--property=Id,LoadState,'
                 'TimeoutStopUSec,WatchdogUSec', *names],
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return (
            stop_timeout.units(done.stdout) if done.returncode == 0 else None
        )

    @once
    def cloud(self):
        """The APIs, a Survey."""
        return cloud_client.connect(
            self._options.os_cloud, self._options.os_baremetal_cloud)

    @once
    def seen(self):
        """What the APIs say, an Observation."""
        return self.cloud.read()

    @once
    def zones(self):
        """Availability zones: host -> zone."""
        return self.cloud.zones()

    @once
    def marked(self):
        """Uuids of the resource providers that are marked as nova's."""
        return self.cloud.marked(_TRAIT)

    @once
    def partition_nodes(self):
        """Uuids of the nodes in the partition of this host."""
        mine = self.settings.partition
        return self.cloud.nodes_of(mine.conductor_group, mine.shard)

    @property
    def hosts(self):
        """The compute services that are up or have nodes."""
        having = {record.key for record in self.seen.records}
        return [service.host for service in self.seen.services
                if service.up or service.key in having]

    @property
    def peers(self):
        """Those of them that share nodes with this one, itself included."""
        mine = self.settings
        peers = mine.partition.peers
        return [host for host in self.hosts
                if peers is None or host_key(host) in {mine.key, *peers}]


def interpreter():
    """Return the path of the Python that nova-compute runs with.

    That of this process, if there is no nova-compute that tells.
    """
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

    :raises Unknown: there is nothing in it.
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
    """Sort files as nova-compute reads them: what is read last counts."""
    return file.parent.suffix == '.d', file.name != 'nova.conf', str(file)


def _configuration():
    """Return what reads nova.conf; imported here, as it needs nova."""
    try:
        # Of libraries: they are nova's matter, and none of the results.
        with warnings.catch_warnings(action='ignore'):
            from nova_ironic_multihost.client.upgrade import conf_files
    except ImportError as error:
        raise Unknown(
            f'nova cannot be imported by {sys.executable}: {error}. Install '
            'the package where nova is, and run this from there.') from error
    return conf_files
