# SPDX-License-Identifier: Apache-2.0

"""The checks before an upgrade, or before a switch to this driver.

Each takes the :class:`.inputs.UpgradeInputs` and yields a sentence for each
real or possible problem, with its remedy: a warning, or a :class:`Fatal`.
"""

import collections
from collections import abc
import itertools
import math

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade.inputs import NovaConf
from nova_ironic_multihost.client.upgrade.inputs import UpgradeInputs
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key


class Fatal(str):
    """A problem that stops the upgrade, or the switch to this driver."""


#: The right value of ``[DEFAULT]compute_driver``, and nova's own driver.
OURS = 'ironic_multihost.IronicMultiHostDriver'
STOCK = 'ironic.IronicDriver'

#: Supported releases of nova, and the OpenStack series.
OLDEST, LATEST = 31, 34
SERIES = '2025.1 to 2026.2'

#: The first release with oslo.policy 6.
ENFORCED = 34

#: The release of nova that waits at each stop, even when it is idle.
ALWAYS_WAITS = 33

#: The least stop timeout of container runtimes, in seconds.
LEAST = 30

#: The least seconds between the end of nova-compute and SIGKILL.
MARGIN = 5

#: The largest host_subset_size of a deployment tool (openstack-ansible) for
#: virtual machines.
MOST = 10

_ONE_TRY = '[placement]allocation_conflict_retry_count = 1'

#: The isolation level without a copy of the password.
READ_COMMITTED = (
    '[placement_database]connection_parameters = init_command='
    'SET+SESSION+TRANSACTION+ISOLATION+LEVEL+READ+COMMITTED')

_DISCOVER = ('"nova-manage cell_v2 discover_hosts --by-service", on a host '
             "with nova's API database")

_SCHEDULING = (
    'documentation, page "Scheduling: zones, aggregates, server groups"')
_STOP = 'documentation, page "Stop and restart nova-compute: timeouts"'
_WATCHDOG = 'documentation, page "A watchdog instead of fencing"'


def driver(known: UpgradeInputs) -> abc.Iterator[str]:
    """Can nova-compute load the driver, and does nova.conf name it?"""
    if known.probe['error']:
        yield Fatal('nova-compute cannot load the driver: '
                    f'{known.probe["error"].rstrip(".")}. Mend that, then ask '
                    'again.')
    elif known.probe['shadowed']:
        yield (f'{arguments.some(known.probe["shadowed"])} of '
               '[ironic_multihost]base_driver are not called, or not always: '
               'see that nothing depends on them (documentation, page "A '
               'driver of your own").')
    mine = known.settings
    wanted = f'set [DEFAULT]compute_driver = {OURS} in {mine.origin}'
    if not mine.driver:
        yield (f'{mine.origin} sets no compute_driver: ask again with the '
               'nova.conf of each compute service.')
    elif mine.driver == STOCK:
        yield (f"compute_driver is nova's own, {mine.driver}. To switch, "
               f'{wanted}.')
    elif mine.driver != OURS:
        yield Fatal(
            f'compute_driver is {mine.driver}, which is not this driver: '
            f'{wanted}. If it is a driver of your own that extends '
            f'{STOCK}, name it in [ironic_multihost]base_driver.')


def release(known: UpgradeInputs) -> abc.Iterator[str]:
    """Is it a supported nova, with each method that this package replaces?"""
    if not OLDEST <= known.release <= LATEST:
        yield Fatal(
            f'nova is {known.nova}, and this release of the package is for '
            f'{OLDEST} to {LATEST} ({SERIES}): use the release for yours.')
    if known.probe['lacking']:
        yield Fatal(
            f'nova {known.nova} has no '
            f'{arguments.some(known.probe["lacking"])}, or takes other '
            'parameters there. This package replaces that: use a release of '
            'it for this nova.')


def settings(known: UpgradeInputs) -> abc.Iterator[str]:
    """Would nova-compute start, and does no request to Ironic wait long?"""
    mine = known.settings
    yield from map(Fatal, mine.contradictions(
        max((unit.watchdog for unit in known.watched), default=0)))
    for cause in 'connect', 'status_code':
        option, seconds = f'{cause}_retries', mine.ironic_wait(cause)
        if seconds > mine.down_time:
            yield (f'[ironic]{option} lets each request wait {seconds:.0f} s '
                   f'for Ironic: remove [ironic]{option} and '
                   f'[ironic]{cause}_retry_delay. The driver repeats requests '
                   'itself (documentation, page on outages).')


def account(known: UpgradeInputs) -> abc.Iterator[str]:
    """Does nova's account see all nodes when Ironic enforces scope?"""
    ironic = known.settings.conf.ironic
    if ironic.project_name and not ironic.system_scope and (
            known.release < ENFORCED):
        yield ('nova asks Ironic with the scope of project '
               f'{ironic.project_name}. Since 2026.2 (oslo.policy 6) Ironic '
               'shows all nodes only to system scope and to the role service '
               'in its service_project_name: give the account that role, or '
               'the role admin with [ironic]system_scope = all in place of '
               'project_name.')


def stop_time(known: UpgradeInputs) -> abc.Iterator[str]:
    """Does systemd wait longer than nova takes to stop?"""
    mine = known.settings
    if not mine.driver:
        return
    limit = mine.stop_limit
    takes = (
        'may take for ever ([DEFAULT]graceful_shutdown_timeout is 0)'
        if limit == math.inf else
        f'may take {limit:.0f} s ([DEFAULT]graceful_shutdown_timeout)')
    shorter = f'set shorter times in nova.conf ({_STOP}).'
    for unit in known.units:
        if not unit.watchdog and unit.seconds < limit + MARGIN:
            longer = ('' if limit == math.inf else
                      f'set TimeoutStopSec={limit + 10:.0f} there, or ')
            yield (f'{unit.name} is killed {unit.seconds:.0f} s after it is '
                   f'told to end, and nova {takes}: {longer}{shorter}')
    if not known.units and limit + MARGIN > LEAST:
        yield ('No unit of systemd here is known to run nova-compute (--unit '
               f'names another), and nova {takes} to end: set a longer '
               'docker_graceful_timeout or terminationGracePeriodSeconds, or '
               f'{shorter}')
    waits = min(limit, mine.conf.manager_shutdown_timeout
                if 'manager_shutdown_timeout' in mine.conf else 0)
    if known.release == ALWAYS_WAITS and waits >= mine.down_time:
        yield (f'nova {ALWAYS_WAITS} takes {waits:.0f} s for each stop, and '
               f'after service_down_time, {mine.down_time} s, the free nodes '
               'move to others and back: set '
               '[DEFAULT]manager_shutdown_timeout to 40 and '
               f'[DEFAULT]graceful_shutdown_timeout to 50 ({_STOP}).')


def watchdog(known: UpgradeInputs) -> abc.Iterator[str]:
    """Where nobody fences, does a watchdog end a host that is cut off?"""
    mine = known.settings
    if not mine.driver or not mine.takes_over_down:
        return
    if not known.watched:
        yield ('With [ironic_multihost]instance_takeover = down others take '
               'over from a compute service that may only be cut off, and no '
               'unit of systemd here has a watchdog that ends it: give it '
               f'one, or set forced_down and fence ({_WATCHDOG}).')
    for unit in known.watched:
        if unit.seconds > unit.watchdog:
            yield (f'{unit.name} has {unit.seconds:.0f} s to end without a '
                   'watchdog: set TimeoutStopSec to no more than WatchdogSec, '
                   f'{unit.watchdog:.0f} s ({_WATCHDOG}).')


def cells(known: UpgradeInputs) -> abc.Iterator[str]:
    """Is each host mapped to its cell, as far as nova's API tells?"""
    seen = known.seen
    unmapped = [one for one in seen.services if one.mapped is False]
    if unmapped:
        yield Fatal(f'{_hosts(unmapped)} is not mapped to a cell, so that '
                    f'builds that are sent there fail: run {_DISCOVER}.')
    # nova shows no records of a host that is not mapped.
    hidden = any(node.uuid not in seen.owner_of for node in seen.nodes)
    doubtful = [one for one in seen.services if one.mapped is None
                and (hidden or (one.up and not one.disabled))]
    if doubtful:
        yield (f'nova shows no node of {_hosts(doubtful)}, so it may not be '
               f'mapped to a cell: run {_DISCOVER}. It does no harm.')


def names(known: UpgradeInputs) -> abc.Iterator[str]:
    """Does no host have two names that differ only in case?"""
    services = collections.defaultdict(list)
    for service in known.seen.services:
        services[service.key].append(service)
    for same in services.values():
        up = [service for service in same if service.up]
        if len(up) > 1:
            yield Fatal(f'{_hosts(up)} are up, and one host to this driver: '
                        'give one of them another [DEFAULT]host.')
        elif len(same) > 1:
            yield (f'{_hosts(same)} are one host: delete the unused one when '
                   'it has neither servers nor nodes, "openstack compute '
                   'service delete ID". nova unmaps both: run '
                   f'{_DISCOVER} after it.')
    mine = known.settings
    if mine.driver and mine.key in services and mine.host not in [
            service.host for service in services[mine.key]]:
        name = services[mine.key][0].host
        yield (f'nova spells this compute service {name}, and [DEFAULT]host '
               f'is {mine.host}: set [DEFAULT]host = {name}.')


def partition(known: UpgradeInputs) -> abc.Iterator[str]:
    """Is [ironic]peer_list complete, and has Ironic such nodes?"""
    mine = known.settings
    shares = mine.partition.peers
    if shares is None:
        if mine.partition.peer_list:
            yield ('[ironic]peer_list has no effect without '
                   '[ironic]conductor_group or [ironic]shard: unset it, or '
                   'set one of them.')
        return
    seen, group, shard = (
        known.seen, mine.partition.conductor_group, mine.partition.shard)
    nodes = {node.uuid for node in seen.nodes
             if group in (None, node.conductor_group.lower())
             and (not shard or shard.casefold() == node.shard.casefold())}
    unknown = sorted(name for name in mine.partition.peer_list
                     if host_key(name) not in seen.service_of)
    if unknown:
        yield (f'[ironic]peer_list names {arguments.some(unknown)}, and nova '
               'has no such compute service: correct the list on each host '
               'of it, or start that one.')
    others = collections.Counter(
        record.host for record in seen.records
        if record.node in nodes and record.owner in seen.up_hosts
        and record.owner not in {mine.key, *shares})
    for host, count in sorted(others.items()):
        yield (f'{arguments.counted(count, "node")} of the conductor group or '
               f'shard of {mine.host} recorded on {host}, which '
               '[ironic]peer_list does not name: add it to the list on each '
               'host of it, or give it other nodes.')
    if not nodes:
        yield ('Ironic has no node in the [ironic]conductor_group or '
               f'[ironic]shard of {mine.host}: compare how they are spelled, '
               'or put nodes into it.')


def zones(known: UpgradeInputs) -> abc.Iterator[str]:
    """Does no availability zone keep free nodes from moving?"""
    if known.settings.text('move_across_zones') == 'True':
        return
    members = collections.defaultdict(list)
    for host in sorted(known.peers):
        members[known.seen.zones.get(host_key(host))].append(host)
    bare = members.pop(None, [])
    if bare and members:
        yield (f'{arguments.some(bare)} is in no availability zone, and '
               'others are: nodes that it takes leave their zones. Put all '
               f'into zones, or none ({_SCHEDULING}).')
    for zone, alone in sorted(members.items()):
        if len(alone) == 1 < len(known.peers) and not bare:
            yield (f'{alone[0]} is alone in availability zone {zone}, so that '
                   'no other host takes its free nodes: put one there, or set '
                   '[ironic_multihost]move_across_zones on all '
                   f'({_SCHEDULING}).')


def shared_settings(known: UpgradeInputs) -> abc.Iterator[str]:
    """Do all hosts that share nodes have the same settings?"""
    by_key, by_label = (collections.defaultdict(list) for _ in range(2))
    for one in known.computes:
        by_key[one.key].append(one)
        by_label[one.partition.label].append(one)
    for key, same in by_key.items():
        if len(same) > 1:
            yield Fatal(
                f'{arguments.some([one.origin for one in same])} are of one '
                f'host, {key}: each compute service needs a [DEFAULT]host of '
                'its own.')
    for [one, *_], [other, *_] in itertools.combinations(
            by_label.values(), 2):
        if not one.partition.excludes(other.partition):
            yield (f'{one.host} serves {_described(one.partition)} and '
                   f'{other.host} {_described(other.partition)}, so that '
                   'nodes can belong to both: give each host an '
                   '[ironic]conductor_group or [ironic]shard, or none.')
    for group in by_label.values():
        yield from _differences(group)
    absent = sorted(host for host in known.hosts
                    if host_key(host) not in by_key)
    if absent and len(known.hosts) > 1:
        yield (f'The settings of {arguments.some(absent)} are not compared: '
               'collect nova.conf of each compute service into one directory '
               'and name that with --collected.')


def _described(part: peers.Partition) -> str:
    return ' and '.join(f'{name} "{value}"' for name, value in (
        ('conductor group', part.conductor_group),
        ('shard', part.shard or None)) if value is not None) or 'all nodes'


def _differences(group: list[NovaConf]) -> abc.Iterator[str]:
    if len(group) > 1 and group[0].partition.label and not any(
            one.partition.peer_list for one in group):
        yield Fatal(
            f'{_hosts(group)} serve the same nodes and [ironic]peer_list is '
            'empty, so that each takes all: name all of them in it, on each.')
    for option in group[0].shared:
        values = collections.defaultdict(list)
        for one in group:
            values[one.shared.get(option)].append(one)
        # Another check reports invalid values.
        values.pop(None, None)
        if len(values) > 1:
            listed = '; '.join(f'{value or "nothing"} on {_hosts(those)}'
                               for value, those in values.items())
            yield Fatal(f'{option} is {listed}: set the same on all that '
                        'share nodes.')


def drivers(known: UpgradeInputs) -> abc.Iterator[str]:
    """Do all hosts have this driver?

    No API shows the driver of a compute service. Its nova.conf does. Before
    nova 34 the trait OWNER_NOVA of its nodes does, too: only this driver sets
    it.
    """
    others = [one for one in known.computes if one.driver != OURS]
    ours = [one for one in known.computes if one.driver == OURS]
    if others and ours:
        yield (f'{_hosts(others)} is not set to this driver, and '
               f"{_hosts(ours)} is: nova's own takes the free nodes of others "
               'without asking. Switch it in the same maintenance window, and '
               'do not restart or disable it before (documentation, page '
               '"From one compute service to several, and back").')
    seen, marked = known.seen, known.cloud.marked('OWNER_NOVA')
    bare = collections.Counter(
        record.host for record in seen.records
        if record.owner in seen.up_hosts and record.node in seen.provider_of
        and record.node not in marked)
    for host, count in sorted(bare.items()):
        yield (f'{arguments.counted(count, "node")} of {host} without the '
               f"trait OWNER_NOVA, which nova 34 needs: {host} runs nova's "
               'own driver, or has not audited all nodes since the switch. '
               'Switch it, and wait for an audit '
               '([DEFAULT]update_resources_interval) before the last upgrade '
               'to nova 34 (2026.2).')


def scheduling(known: UpgradeInputs) -> abc.Iterator[str]:
    """Do settings of schedulers and placement suit the hypervisors?"""
    others = sorted(known.seen.others)
    virtual = f'virtual machines ({arguments.some(others)})'
    for one in known.confs if others else ():
        size = one.conf.filter_scheduler.host_subset_size
        if size > MOST:
            yield (f'{one.origin} has [filter_scheduler]host_subset_size = '
                   f'{size}, which turns off the weighers of {virtual}: '
                   f'remove it on the schedulers ({_SCHEDULING}).')
    origin, retries, stale = known.placement
    if retries == 1 and others:
        yield (f'{origin} has {_ONE_TRY}, and builds of {virtual} '
               f'conflict often: remove it and set {READ_COMMITTED} '
               f'({_SCHEDULING}).')
    elif retries != 1 and stale:
        yield (f'With {origin} placement may allocate one node to two '
               f'servers: set {READ_COMMITTED if others else _ONE_TRY} '
               f'({_SCHEDULING}).')


def _hosts(those: abc.Iterable[cloud_state.Service | NovaConf]) -> str:
    return arguments.some(sorted(one.host for one in those))


#: The checks by their names, in the order in which they are shown.
CHECKS = {
    'Driver': driver,
    'Release of nova': release,
    'Settings without contradiction': settings,
    'Account in Ironic': account,
    'Time to end': stop_time,
    'Takeover without fencing': watchdog,
    'Cells': cells,
    'Names of hosts': names,
    'Conductor groups and shards': partition,
    'Availability zones': zones,
    'Same settings on all': shared_settings,
    'Same driver on all': drivers,
    'Schedulers and placement': scheduling,
}
