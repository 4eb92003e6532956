# SPDX-License-Identifier: Apache-2.0

"""Read the settings of ``nova.conf`` files, and judge each file by itself.

Each read registers the options on a new ConfigOpts object, so that nova's
global one stays unchanged. The module does without nova until it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import sys
import typing
import urllib.parse
import warnings

from oslo_config import cfg

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost import conf as options
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


class Unknown(Exception):
    """An input of a check is not known; the message names the remedy."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A real or possible problem: a sentence with the remedy.

    :param fatal: it stops an upgrade, or a switch to this driver.
    """

    sentence: str
    fatal: bool = False


#: The right value of ``[DEFAULT]compute_driver``.
OURS = 'ironic_multihost.IronicMultiHostDriver'

#: nova's own driver for Ironic.
STOCK = 'ironic.IronicDriver'


@dataclasses.dataclass(frozen=True)
class ConfSettings:
    """The options of one compute service, or of a controller.

    Times are in seconds.

    :ivar origin: names of the files, for people.
    :ivar compute_driver: usually None on a controller.
    :ivar shared: (option, value) of the options that must be equal on all
        compute services that share nodes; an invalid value is None.
    :ivar contradictions: sentences; the driver refuses to start with any.
    :ivar graceful_shutdown_timeout: 0 for no limit.
    :ivar manager_shutdown_timeout: None if nova does not have the option.
    :ivar base_driver: the class that this driver extends, None for nova's.
    :ivar policy: of takeovers.
    :ivar host_subset_size: of ``[filter_scheduler]``.
    :ivar ironic_retries: (option, the seconds that it lets one request to
        Ironic be repeated).
    :ivar ironic_project: the project of nova's account in Ironic; None with
        another scope.
    """

    origin: str
    host: str
    compute_driver: str | None = OURS
    partition: peers.Partition = peers.Partition()
    shared: tuple[tuple[str, str | None], ...] = ()
    contradictions: tuple[str, ...] = ()
    move_across_zones: bool = False
    service_down_time: int = 60
    graceful_shutdown_timeout: int = 60
    manager_shutdown_timeout: int | None = None
    base_driver: str | None = None
    policy: takeover.Policy = takeover.Policy()
    terms: health.LeaseTiming = health.LeaseTiming(60, 60)
    host_subset_size: int = 1
    ironic_retries: tuple[tuple[str, float], ...] = ()
    ironic_project: str | None = None

    @property
    def key(self) -> HostKey:
        """The host in lower case."""
        return host_key(self.host)

    @property
    def of_compute(self) -> bool:
        """Whether these are settings of a compute service."""
        return self.compute_driver is not None


#: Options that must be equal on all compute services that share nodes.
SHARED = (('ironic_multihost', 'ring_partitions'),
          ('ironic_multihost', 'move_across_zones'),
          ('ironic_multihost', 'instance_takeover'),
          (None, 'service_down_time'))


def read(files: Sequence[str] = (),
         directories: Sequence[str] = ()) -> ConfSettings:
    """Read the settings of the compute service of this host.

    Without parameters it reads the default files of nova-compute.

    :param files: the values of ``--config-file``, in their order.
    :param directories: the values of ``--config-dir``.
    :raises Unknown: there is no file, or it cannot be read.
    """
    conf = _parsed(files, directories)
    if not conf.config_file and not conf.config_dir:
        raise Unknown(
            'There is no nova.conf where nova-compute looks for it, or not '
            'for this user: name it with --config-file, as nova-compute is '
            'started.')
    origin = ', '.join([*conf.config_file, *conf.config_dir])
    return _settings(conf, origin, None)


def read_collected(files: Sequence[str], name: str) -> ConfSettings:
    """Read the settings of another compute service.

    :param files: collected on its host, in the order of reading.
    :param name: the default of ``[DEFAULT]host``.
    :raises Unknown: they cannot be read.
    """
    # Without the directories and the environment of this host.
    conf = _parsed(files, (), default_config_files=[],
                   default_config_dirs=[], use_env=False)
    return _settings(conf, ', '.join(files), name)


def _register(conf: cfg.ConfigOpts) -> None:
    """Register nova's options; it needs nova."""
    try:
        # Libraries of nova warn at import.
        with warnings.catch_warnings(action='ignore'):
            from nova.conf import base
            from nova.conf import compute
            from nova.conf import ironic
            from nova.conf import netconf
            from nova.conf import scheduler
            from nova.conf import service
            from nova.conf import utils
            from oslo_messaging import opts as oslo_messaging
            from oslo_service import service as oslo_service
    except ImportError as error:
        raise Unknown(
            f'nova cannot be imported by {sys.executable}: {error}. Install '
            'the package where nova is, and run this from there.') from error
    for module in base, compute, netconf, service:
        module.register_opts(conf)
    # Not with nova's own group object, which belongs to its global ConfigOpts.
    conf.register_opts(ironic.ironic_options, group='ironic')
    conf.register_opts(utils.get_ksa_adapter_opts(
        ironic.DEFAULT_SERVICE_TYPE), group='ironic')
    conf.register_opts([
        cfg.StrOpt('project_name', deprecated_name='tenant_name'),
        cfg.StrOpt('system_scope')], group='ironic')
    conf.register_opts(
        scheduler.filter_scheduler_opts, group='filter_scheduler')
    for group, listed in [*oslo_service.list_opts(),
                          *oslo_messaging.list_opts()]:
        if group is None:
            conf.register_opts(listed)


def _parsed(files: Sequence[str], directories: Sequence[str],
            **how: typing.Any) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    _register(conf)
    options.register_opts(conf)
    given = [word for file in files for word in ('--config-file', file)]
    given += [word for directory in directories
              for word in ('--config-dir', directory)]
    try:
        conf(given, project='nova', prog='nova-compute', **how)
    except cfg.ConfigFileParseError as error:
        # Without the text of the error: the line may have a password in it.
        raise Unknown(f'{error.config_file} is no configuration file: '
                      'correct what is not "[GROUP]" or "option = value" in '
                      'it.') from error
    except UnicodeDecodeError as error:
        named = ', '.join([*files, *directories]) or 'nova.conf'
        raise Unknown(f'{named} has a character that is not UTF-8: correct '
                      'it.') from error
    except (cfg.Error, OSError) as error:
        raise Unknown(f'nova.conf cannot be read: {error}. Run this as a '
                      'user who may read it, and name what is there.'
                      ) from error
    return conf


def _settings(conf: cfg.ConfigOpts, origin: str,
              name: str | None) -> ConfSettings:
    try:
        return _values(conf, origin, name)
    except (cfg.Error, ValueError) as error:
        raise Unknown(f'{origin}: {error}. Correct it.') from error


def _values(conf: cfg.ConfigOpts, origin: str,
            name: str | None) -> ConfSettings:
    host = conf.host
    found = conf.get_location('host')
    if name and not (found and found.location.is_user_controlled):
        host = name
    mine = options.partition(conf)
    shared = [(f'[{group or "DEFAULT"}]{option}', _value(conf, group, option))
              for group, option in SHARED]
    if _value(conf, 'ironic_multihost', 'instance_takeover') == takeover.DOWN:
        # All hosts must wait equally long until a host is dead for certain.
        shared.append(('[ironic_multihost]takeover_after', _value(
            conf, 'ironic_multihost', 'takeover_after')))
    if mine.label:
        shared.append(('[ironic]peer_list', ' '.join(
            sorted({host_key(peer) for peer in mine.peer_list}))))
    return ConfSettings(
        origin, host, conf.compute_driver, mine, tuple(shared),
        tuple(options.contradictions(conf, host)),
        _value(conf, 'ironic_multihost', 'move_across_zones') == 'True',
        conf.service_down_time, conf.graceful_shutdown_timeout,
        conf.manager_shutdown_timeout
        if 'manager_shutdown_timeout' in conf else None,
        conf.ironic_multihost.base_driver,
        takeover.Policy(
            _value(conf, 'ironic_multihost', 'instance_takeover')
            or takeover.NEVER,
            float(_value(conf, 'ironic_multihost', 'takeover_after') or 0)),
        health.LeaseTiming(conf.rpc_response_timeout, conf.service_down_time),
        conf.filter_scheduler.host_subset_size,
        tuple((f'{cause}_retries', _waiting(
            conf.ironic[f'{cause}_retries'],
            conf.ironic[f'{cause}_retry_delay']))
            for cause in ('connect', 'status_code')),
        None if conf.ironic.system_scope else conf.ironic.project_name)


def _waiting(retries: int | None, delay: float | None) -> float:
    """Return the seconds that a request may be repeated.

    Without a delay keystoneauth doubles the pauses, from 0.5 s to 60 s.
    """
    return sum(min(0.5 * 2 ** done, 60) if delay is None else delay
               for done in range(retries or 0))


def _value(conf: cfg.ConfigOpts, group: str | None,
           option: str) -> str | None:
    """Return a value as text; None if invalid, which conf reports."""
    try:
        return str((conf[group] if group else conf)[option])
    except ValueError:
        return None


#: The first release with oslo.policy 6.
ENFORCED = 34


def judge_scope(found: ConfSettings, release: int | None) -> Iterator[Problem]:
    """Report an account that may see no node of Ironic after the upgrade."""
    if found.ironic_project and release is not None and release < ENFORCED:
        yield Problem(
            'nova asks Ironic with the scope of project '
            f'{found.ironic_project} ([ironic]project_name). Since 2026.2 '
            'scope is always enforced (oslo.policy 6): Ironic then shows all '
            'nodes only to the role service in its service_project_name, or '
            'to system scope. Before the upgrade give the account that role, '
            'or the role admin with system_scope = all in place of '
            'project_name.')


def judge(found: ConfSettings) -> Iterator[Problem]:
    """Report contradictions, and retries for which every audit waits."""
    for sentence in found.contradictions:
        yield Problem(sentence, fatal=True)
    for option, seconds in found.ironic_retries:
        if seconds > found.service_down_time:
            yield Problem(
                f'[ironic]{option} lets each request wait {seconds:.0f} s for '
                'an Ironic that does not answer, audits and takeovers '
                f'included: remove [ironic]{option} and '
                f'[ironic]{option.removesuffix("ies")}y_delay. The driver '
                'repeats requests itself (documentation, page on outages).')


_ONE_TRY = '[placement]allocation_conflict_retry_count = 1'

#: The isolation level without a copy of the password.
READ_COMMITTED = (
    '[placement_database]connection_parameters = init_command='
    'SET+SESSION+TRANSACTION+ISOLATION+LEVEL+READ+COMMITTED')

#: The largest host_subset_size of a deployment tool (openstack-ansible) for
#: virtual machines.
MOST = 10

_PAGE = 'documentation, page "Scheduling: zones, aggregates, server groups"'


@dataclasses.dataclass(frozen=True)
class PlacementFacts:
    """Settings of one ``placement.conf``.

    :ivar origin: names of the files, for people.
    :ivar retries: ``[placement]allocation_conflict_retry_count``.
    :ivar connection: URL of the database, with its password; None if it is
        set elsewhere.
    :ivar parameters: query parameters that oslo.db adds to the URL.
    """

    origin: str
    retries: int
    connection: str | None = dataclasses.field(default=None, repr=False)
    parameters: str = dataclasses.field(default='', repr=False)


def judge_subset(found: Iterable[ConfSettings],
          others: Set[HostKey]) -> Iterator[Problem]:
    """Report a host_subset_size that turns off weighers of virtual machines.

    :param found: settings of nova.conf files.
    :param others: hosts with hypervisors that are not Ironic's.
    """
    for one in found:
        if others and one.host_subset_size > MOST:
            yield Problem(
                f'{one.origin} has [filter_scheduler]host_subset_size = '
                f'{one.host_subset_size}, and nova has hypervisors of virtual '
                f'machines ({arguments.some(sorted(others))}), for which '
                'weighers hardly count then: remove the option on the '
                f'schedulers ({_PAGE}).')


def judge_placement(found: PlacementFacts,
                    others: Set[HostKey] | None) -> Iterator[Problem]:
    """Report settings with which a conflict may end in two allocations.

    :param others: as for :func:`judge`; None if they are not known.
    """
    if found.retries == 1:
        if others:
            yield Problem(
                f'{found.origin} has {_ONE_TRY}, and builds of virtual '
                f'machines ({arguments.some(sorted(others))}) conflict '
                f'often: remove it and set {READ_COMMITTED} ({_PAGE}).')
    elif _with_snapshots(found):
        either = (f'{_ONE_TRY}, or {READ_COMMITTED} in a cloud with virtual '
                  'machines')
        remedy = (either if others is None
                  else READ_COMMITTED if others else _ONE_TRY)
        yield Problem(
            f'With {found.origin} placement may allocate one node to two '
            f'servers, of which one has to go to another: set {remedy} '
            f'({_PAGE}).')


def _with_snapshots(found: PlacementFacts) -> bool:
    """Return whether a repeated read in a transaction may be stale."""
    url = urllib.parse.unquote_plus(
        f'{found.connection or "mysql:"}?{found.parameters}').lower()
    return (url.startswith(('mysql', 'mariadb'))
            and 'read committed' not in url.replace('-', ' '))
