# SPDX-License-Identifier: Apache-2.0

"""The inputs of ``nova-ironic-multihost-status``, read when needed.

Each input is read once. If that fails, each access raises the same error.
Files are read with ConfigOpts objects of their own, so that nova's global one
stays unchanged. The module does without nova until it reads.
"""

import functools
from importlib import metadata
import json
import math
import pathlib
import re
import subprocess
import sys
import typing
import urllib.parse
import warnings

from oslo_config import cfg

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client.cloud_state import CloudError
from nova_ironic_multihost import conf as options
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

_PROBE = pathlib.Path(__file__).parents[2] / 'adapters' / 'probe.py'

#: Names of the unit in distributions and in devstack.
UNITS = ('nova-compute.service', 'openstack-nova-compute.service',
         'devstack@n-cpu.service')

#: Options of ours that must be equal on all compute services that share nodes.
SHARED = ('ring_partitions', 'move_across_zones', 'instance_takeover')


def once(read):
    """Return a property that calls ``read`` once and keeps value or error."""
    @functools.cache
    def outcome(self):
        try:
            return read(self), None
        except CloudError as error:
            return None, error

    def get(self):
        value, error = outcome(self)
        if error:
            raise error
        return value
    return property(get, doc=read.__doc__)


class NovaConf:
    """The nova.conf of a compute service, or of a controller.

    :param conf: a ConfigOpts with nova's options and ours.
    :param name: the default of ``[DEFAULT]host``.
    :ivar origin: names of the files, for people.
    :ivar driver: ``[DEFAULT]compute_driver``, None on a controller.
    """

    def __init__(self, conf, name=None):
        self.conf = conf
        self.origin = ', '.join([*conf.config_file, *conf.config_dir])
        try:
            self.host = conf.host
            found = conf.get_location('host')
            if name and not (found and found.location.is_user_controlled):
                self.host = name
            self.key = host_key(self.host)
            self.driver = conf.compute_driver
            self.down_time = conf.service_down_time
            self.stop_limit = conf.graceful_shutdown_timeout or math.inf
            self.partition = options.partition(conf)
        except (cfg.Error, ValueError) as error:
            raise CloudError(f'{self.origin}: {error}. Correct it.') from error

    def text(self, option):
        """Return the value of an option of ours; None if it is invalid."""
        try:
            return str(self.conf.ironic_multihost[option])
        except ValueError:
            # A contradiction of the settings reports it.
            return None

    @property
    def takes_over_down(self):
        """Whether instances are taken over from hosts that are only down."""
        return self.text('instance_takeover') == takeover.DOWN

    @property
    def shared(self):
        """Texts of the options that all hosts must have alike."""
        # All must wait equally long until a host is dead for certain.
        wait = ['takeover_after'] * self.takes_over_down
        shared = {f'[ironic_multihost]{option}': self.text(option)
                  for option in [*SHARED, *wait]}
        shared['[DEFAULT]service_down_time'] = str(self.down_time)
        if self.partition.label:
            shared['[ironic]peer_list'] = ' '.join(
                sorted({host_key(peer) for peer in self.partition.peer_list}))
        return shared

    def contradictions(self, watchdog):
        """Return sentences; the driver refuses to start with any.

        :param watchdog: the longest WatchdogSec of its units, 0 for none.
        """
        timing = health.LeaseTiming(
            self.conf.rpc_response_timeout, self.down_time)
        return options.contradictions(
            self.conf, self.host,
            timing.over_after(watchdog) if watchdog else None)

    def ironic_wait(self, cause):
        """Return the seconds that one request to Ironic may be repeated.

        Without a delay keystoneauth doubles the pauses, from 0.5 s to 60 s.

        :param cause: connect or status_code.
        """
        delay = self.conf.ironic[f'{cause}_retry_delay']
        return sum(min(0.5 * 2 ** done, 60) if delay is None else delay
                   for done in range(
                       self.conf.ironic[f'{cause}_retries'] or 0))


class Unit(typing.NamedTuple):
    """A unit of systemd.

    :ivar seconds: TimeoutStopSec, from SIGTERM to SIGKILL; may be infinite.
    :ivar watchdog: WatchdogSec; 0 without a watchdog. With a watchdog
        nova-compute extends its stop timeout while it ends.
    """

    name: str
    seconds: float
    watchdog: float = 0


class UpgradeInputs:
    """Inputs from this host and from the APIs.

    Each property raises CloudError if it is not known.
    """

    def __init__(self, args):
        self._args = args

    @once
    def probe(self):
        """What :mod:`.adapters.probe` prints, a dict."""
        base = self.settings.conf.ironic_multihost.base_driver
        done = subprocess.run(
            [sys.executable, '-P', str(_PROBE), *([base] if base else [])],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        try:
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except (IndexError, TypeError, ValueError) as error:
            *_, last = done.stderr.splitlines() or ['nothing']
            raise CloudError(
                f'{sys.executable} ends with status {done.returncode} when it '
                f'is to load the driver, and says: {last}. Mend that, then '
                'ask again.') from error

    @property
    def nova(self):
        """The version of nova."""
        return metadata.version('nova')

    @property
    def release(self):
        """The release of nova, a number; 0 if it is not known."""
        first = self.nova.partition('.')[0]
        return int(first) if first.isdecimal() else 0

    @once
    def settings(self):
        """The NovaConf of this host."""
        found = NovaConf(_parsed('nova', 'nova-compute', [
            *(f'--config-file={file}' for file in self._args.config_file),
            *(f'--config-dir={name}' for name in self._args.config_dir)]))
        if not found.origin:
            raise CloudError(
                'There is no nova.conf where nova-compute looks for it, or '
                'not for this user: name it with --config-file, as '
                'nova-compute is started.')
        return found

    @once
    def confs(self):
        """The NovaConf of all hosts; this one first, if not collected."""
        found = [
            # Without the directories and the environment of this host.
            NovaConf(_parsed(
                'nova', 'nova-compute',
                [f'--config-file={file}' for file in files],
                default_config_files=[], default_config_dirs=[],
                use_env=False), name)
            for name, files in _collected(self._args.collected)]
        mine = self.settings
        return (found if mine.key in {one.key for one in found}
                else [mine, *found])

    @property
    def computes(self):
        """Those of :attr:`confs` that are of compute services."""
        return [one for one in self.confs if one.driver]

    @once
    def placement(self):
        """Of placement.conf: (names of the files, retries, stale reads).

        A repeated read in a transaction may be stale.
        """
        given = self._args.placement_config
        # A copy is read without directories and environment of this host.
        conf = _parsed(
            'placement', 'placement',
            [f'--config-file={file}' for file in given],
            **({'default_config_dirs': [], 'use_env': False} if given else {}))
        origin = ', '.join(dict.fromkeys(conf.config_file))
        if not origin:
            raise CloudError(
                'There is no placement.conf here, or not for this user: run '
                'this where placement is, or name a copy with '
                '--placement-config FILE.')
        try:
            database = conf.placement_database
            url = urllib.parse.unquote_plus(
                f'{database.connection or "mysql:"}?'
                f'{database.connection_parameters}').lower()
            return (origin, conf.placement.allocation_conflict_retry_count,
                    url.startswith(('mysql', 'mariadb'))
                    and 'read committed' not in url.replace('-', ' '))
        except (cfg.Error, ValueError) as error:
            # Without the text of the error: the password may be in it.
            raise CloudError(
                f'{origin} cannot be understood: correct it.') from error

    @once
    def units(self):
        """systemd's loaded units of nova-compute; none without systemd."""
        try:
            done = subprocess.run(
                ['systemctl', 'show', '--property=Id,LoadState,'
                 'TimeoutStopUSec,WatchdogUSec', *(self._args.unit or UNITS)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except OSError:
            return []
        found = []
        for paragraph in done.stdout.split('\n\n'):
            fields = dict(line.partition('=')[::2]
                          for line in paragraph.splitlines())
            seconds = _seconds(fields.get('TimeoutStopUSec', ''))
            if fields.get('LoadState') == 'loaded' and seconds is not None:
                watchdog = _seconds(fields.get('WatchdogUSec', '')) or 0
                found.append(Unit(fields['Id'], seconds,
                                  watchdog if watchdog < math.inf else 0))
        return found

    @property
    def watched(self):
        """Those of :attr:`units` with a watchdog."""
        return [unit for unit in self.units if unit.watchdog]

    @once
    def cloud(self):
        """The client of the APIs, a CloudClient."""
        return cloud_client.connect(
            self._args.os_cloud, self._args.os_baremetal_cloud)

    @once
    def seen(self):
        """The state of the cloud, a CloudState."""
        return self.cloud.read()

    @property
    def hosts(self):
        """The hosts that are up or own nodes."""
        owners = {record.owner for record in self.seen.records}
        return [service.host for service in self.seen.services
                if service.up or service.key in owners]

    @property
    def peers(self):
        """The hosts of :attr:`hosts` that share nodes, with this host."""
        mine = self.settings
        peers = mine.partition.peers
        return [host for host in self.hosts
                if peers is None or host_key(host) in {mine.key, *peers}]


def _parsed(project, prog, given, **how):
    """Return the ConfigOpts of the files that a service reads.

    :param given: words of the command line.
    """
    conf = cfg.ConfigOpts()
    if project == 'nova':
        _register_nova(conf)
    else:
        conf.register_opt(cfg.IntOpt(
            'allocation_conflict_retry_count', default=10), 'placement')
        conf.register_opts([
            cfg.StrOpt('connection', secret=True),
            cfg.StrOpt('connection_parameters', default='', secret=True),
        ], 'placement_database')
    try:
        conf(given, project=project, prog=prog, **how)
    except (cfg.ConfigFileParseError, UnicodeDecodeError) as error:
        # Without the text of the error: the line may have a password in it.
        raise CloudError(
            f'{getattr(error, "config_file", " ".join(given))} cannot be '
            'understood: write "[GROUP]" and "option = value", in UTF-8.'
            ) from error
    except (cfg.Error, OSError) as error:
        raise CloudError(
            f'{project}.conf cannot be read: {error}. Run this as a user who '
            'may read it, and name a file that is there.') from error
    return conf


def _register_nova(conf):
    """Register nova's options and ours."""
    # Libraries of nova warn at import.
    with warnings.catch_warnings(action='ignore'):
        from nova.conf import opts as nova
        from oslo_messaging import opts as oslo_messaging
        from oslo_service import service as oslo_service
    for group, listed in [*nova.list_opts(), *oslo_service.list_opts(),
                          *oslo_messaging.list_opts()]:
        # Not with nova's own group object, which belongs to its global one.
        name = getattr(group, 'name', group) or 'DEFAULT'
        if name in ('DEFAULT', 'ironic', 'filter_scheduler'):
            conf.register_opts(
                # Those of some authentication plug-ins are required.
                [option for option in listed if not option.required],
                group=None if name == 'DEFAULT' else name)
    options.register_opts(conf)


def _collected(directory):
    """Return (host, its files) of each entry of a directory."""
    if directory is None:
        return []
    try:
        entries = sorted(pathlib.Path(directory).iterdir())
    except OSError as error:
        raise CloudError(f'{directory} cannot be read: {error}. Name the '
                         'directory with the collected files.') from error
    # In the order in which nova-compute reads them.
    found = [(entry.name.removesuffix('.conf'), sorted(
        [entry, *entry.rglob('*')], key=lambda file: (
            file.parent.suffix == '.d', file.name != 'nova.conf', str(file))))
        for entry in entries]
    found = [(name, named) for name, files in found if (named := [
        file for file in files if file.suffix == '.conf' and file.is_file()])]
    if not found:
        raise CloudError(f'{directory} holds no configuration: put the '
                         'nova.conf of each compute service into it.')
    return found


_SECONDS = {'us': 1e-6, 'ms': 1e-3, 's': 1, 'min': 60, 'h': 3600, 'd': 86400,
            'w': 604800, 'month': 2629800, 'y': 31557600}


def _seconds(text):
    """Return the seconds of a time like "1min 30s", or "infinity"."""
    if text == 'infinity':
        return math.inf
    parts = re.findall(r'(\d+)([a-z]+)', text)
    if not parts or any(unit not in _SECONDS for _, unit in parts):
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)
