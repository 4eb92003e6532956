# SPDX-License-Identifier: Apache-2.0

"""Read ``nova.conf`` files as nova-compute does.

Each read registers the options on a new ConfigOpts object, so that nova's
global one stays unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
import typing

from nova.conf import base
from nova.conf import compute
from nova.conf import ironic
from nova.conf import netconf
from nova.conf import scheduler
from nova.conf import service
from nova.conf import utils
from oslo_config import cfg
from oslo_messaging import opts as oslo_messaging
from oslo_service import service as oslo_service

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Unknown
from nova_ironic_multihost import conf as options
from nova_ironic_multihost.conf import validation
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

#: Options that must be equal on all compute services that share nodes.
SHARED = (('ironic_multihost', 'ring_partitions'),
          ('ironic_multihost', 'move_across_zones'),
          ('ironic_multihost', 'instance_takeover'),
          (None, 'service_down_time'))


def read(files: Sequence[str] = (),
         directories: Sequence[str] = ()) -> conf_settings.ConfSettings:
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


def read_collected(
    files: Sequence[str], name: str
) -> conf_settings.ConfSettings:
    """Read the settings of another compute service.

    :param files: collected on its host, in the order of reading.
    :param name: the default of ``[DEFAULT]host``.
    :raises Unknown: they cannot be read.
    """
    # Without the directories and the environment of this host.
    conf = _parsed(files, (), default_config_files=[],
                   default_config_dirs=[], use_env=False)
    return _settings(conf, ', '.join(files), name)


def _parsed(files: Sequence[str], directories: Sequence[str],
            **how: typing.Any) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
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
    options.register_opts(conf)
    arguments = [argument for file in files
                 for argument in ('--config-file', file)]
    arguments += [argument for directory in directories
                  for argument in ('--config-dir', directory)]
    try:
        conf(arguments, project='nova', prog='nova-compute', **how)
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
              name: str | None) -> conf_settings.ConfSettings:
    try:
        return _values(conf, origin, name)
    except (cfg.Error, ValueError) as error:
        raise Unknown(f'{origin}: {error}. Correct it.') from error


def _values(conf: cfg.ConfigOpts, origin: str,
            name: str | None) -> conf_settings.ConfSettings:
    host = conf.host
    if name and not conf.get_location('host').location.is_user_controlled:
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
    return conf_settings.ConfSettings(
        origin, host, conf.compute_driver, mine, tuple(shared),
        tuple(validation.find(conf, host)),
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
    """Return a value as text; None if invalid, which validation reports."""
    try:
        return str((conf[group] if group else conf)[option])
    except ValueError:
        return None
