# SPDX-License-Identifier: Apache-2.0

"""Settings that cannot work together.

Their effects show late: nodes that nobody manages, or that two hosts manage.
"""

from nova_ironic_multihost import conf as options
from nova_ironic_multihost.rules import takeover


def find(conf, host, dead_after=None):
    """Return a sentence with the remedy for each contradiction.

    :param dead_after: seconds after which a compute service that nova does
        not answer is dead for certain (:mod:`.rules.health`), None for never.
    """
    return [*(sentence
              for check in (_invalid_values, _peer_list, _audit_interval,
                            _heartbeats, _takeover)
              for sentence in check(conf, host)),
            *_watchdog(conf, dead_after)]


def _invalid_values(conf, host):
    for option in options.OPTS:
        try:
            conf[options.GROUP.name][option.dest]
        except ValueError as exc:
            yield (f'Correct [{options.GROUP.name}]{option.name} in '
                   f'nova.conf: {exc}.')


def _peer_list(conf, host):
    # An empty list is no contradiction: this host is then the only one.
    if conf.ironic.conductor_group is None and not conf.ironic.shard:
        return
    peers = {peer.lower() for peer in conf.ironic.peer_list}
    if peers and host.lower() not in peers:
        yield (f'[ironic]peer_list does not name this host: add "{host}" to '
               f'it, on this and on every other host of the list.')


def _audit_interval(conf, host):
    if conf.update_resources_interval < 0:
        yield ('[DEFAULT]update_resources_interval is negative, which turns '
               'off the audits in which compute services share the nodes: '
               'unset it or set it to a number of seconds.')


def _heartbeats(conf, host):
    if conf.report_interval < 1:
        yield (f'[DEFAULT]report_interval is {conf.report_interval}, and a '
               'compute service without heartbeats is dead to the others: '
               'unset it or set it to a number of seconds.')


def _after(conf):
    """Return takeover_after if instance_takeover is ``down``, else None."""
    ours = conf[options.GROUP.name]
    try:
        return (ours.takeover_after
                if ours.instance_takeover == takeover.DOWN else None)
    except ValueError:
        # Told already.
        return None


def _watchdog(conf, dead_after):
    after = _after(conf)
    if after is not None and dead_after is not None and after < dead_after:
        yield (f'[{options.GROUP.name}]takeover_after is {after} s, and the '
               'watchdog kills a compute service that is cut off from nova '
               f'within {dead_after:.0f} s, all in all: make takeover_after '
               'no shorter, on all hosts, or WatchdogSec, '
               '[DEFAULT]rpc_response_timeout or service_down_time shorter '
               '(documentation, page "A watchdog instead of fencing").')


def _takeover(conf, host):
    after = _after(conf)
    if after is not None and after <= conf.service_down_time:
        yield (f'[{options.GROUP.name}]takeover_after is {after} s, and a '
               'compute service is not even called down before '
               f'[DEFAULT]service_down_time, {conf.service_down_time} s: make '
               'takeover_after longer.')
