# SPDX-License-Identifier: Apache-2.0

"""Find inconsistencies between nova, placement and Ironic.

Without I/O, except for :func:`wait`. When no operation is in progress:

- every node has exactly one record, on a host that is up and mapped to a
  cell, and one resource provider;
- every allocation has a server, every server on a host has an allocation;
- Ironic holds nodes only for servers that exist;
- no server stays in a task state for ever;
- the scheduler may use every free node of an enabled host.

Builds, deletions and moves of nodes break these rules for a moment;
:func:`wait` waits for them.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import datetime
from typing import Any

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import services
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules.peers import host_key

#: Servers on a host that is down. It lasts until the host is up or fenced.
ON_DEAD_HOST = 'instance-on-dead-host'

#: A node that is in use without a server, and so cannot be scheduled.
LEAKED = 'leaked-machine'

#: All kinds of findings and notes.
KINDS = (
    'compute-missing', 'compute-not-up', 'node-without-record',
    'node-with-many-records', 'second-record', 'record-without-node',
    'record-on-dead-host',
    ON_DEAD_HOST, 'host-not-mapped', 'node-without-provider',
    'provider-without-node', 'second-provider', 'free-node-barred',
    'allocation-without-instance', 'instance-without-allocation', LEAKED,
    'record-elsewhere', 'instance-without-machine', 'stuck', 'fenced-alive',
    'still-stopping')

#: Seconds after which a compute service should have ended that was told to.
#: With nova's default settings it takes 180 at most.
STOP_LIMIT = 600

_MAP = '"nova-manage cell_v2 discover_hosts --by-service" maps it'


@dataclasses.dataclass(frozen=True)
class Finding:
    """One inconsistency: its kind, node or server or host, a sentence."""

    kind: str
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f'{self.kind}: {self.sentence}'

    @property
    def name(self) -> str:
        """The name by which "repair" takes it."""
        return f'{self.kind}:{self.subject}'


def inconsistencies(seen: cloud_state.CloudState, now: float,
                    hosts: Iterable[str] = ()) -> list[Finding]:
    """Return all inconsistencies of a cloud.

    :param now: seconds since the epoch
    :param hosts: names of compute services that must exist and be up
    """
    return [*_expected(seen, hosts), *second_records(seen),
            *_records(seen), *_hosts(seen),
            *_providers(seen), *_allocations(seen), *_machines(seen),
            *_tasks(seen, now)]


def notes(seen: cloud_state.CloudState, now: float) -> list[Finding]:
    """Return consistent states that an operator may not want.

    :param now: seconds since the epoch
    """
    found = []
    for service in seen.services:
        said = liveness.stop_marker_time(service.stop_marker)
        if service.up and said and now - said.timestamp() > STOP_LIMIT:
            found.append(Finding(
                'still-stopping', service.host,
                f'{service.host} is up, and '
                + ('disabled because it was stopped' if service.disabled
                   else 'marked as stopped')
                + f' at {said:%Y-%m-%d %H:%M} UTC, so that others have its '
                'free nodes. It takes that back when it starts with the '
                'driver of this package; with another driver "openstack '
                f'compute service set --enable {service.host} nova-compute" '
                'does'))
    return found


def _expected(seen: cloud_state.CloudState,
              hosts: Iterable[str]) -> Iterator[Finding]:
    for host in hosts:
        service = seen.service_of.get(host_key(host))
        if service is None:
            yield Finding('compute-missing', host,
                          f'nova has no compute service {host}: it never '
                          'started, or has another name in its nova.conf')
        elif not service.up:
            why = ('is forced down' if service.forced_down
                   else 'is down: nova misses its heartbeat')
            yield Finding('compute-not-up', host, f'{service.host} {why}')


def second_records(seen: cloud_state.CloudState) -> Iterator[Finding]:
    """Yield the records with another uuid than the node that they name."""
    for record in seen.records:
        if record.second:
            yield Finding(
                'second-record', record.name,
                f'{record.host} has a second record of node {record.name}: '
                + model.second_record(record.name, record.node))


def _records(seen: cloud_state.CloudState) -> Iterator[Finding]:
    owners: dict[str, list[str]] = {}
    for record in seen.records:
        if record.second:
            continue
        owners.setdefault(record.node, []).append(record.host)
    for node in seen.nodes:
        hosts = owners.pop(node.uuid, [])
        if not hosts:
            yield Finding('node-without-record', node.uuid,
                          f'node {node.uuid} has no record: no compute '
                          f'owns it{_unless_hidden(seen)}')
        elif len(hosts) > 1:
            yield Finding('node-with-many-records', node.uuid,
                          f'node {node.uuid} has {len(hosts)} records: '
                          f'{", ".join(sorted(hosts))}')
    yield from _dead_hosts(seen)
    for uuid, hosts in owners.items():
        yield Finding('record-without-node', uuid,
                      f'{", ".join(sorted(hosts))} has a record of node '
                      f'{uuid}, which Ironic does not show: it is gone, or '
                      'hidden from who asks')


def _unless_hidden(seen: cloud_state.CloudState) -> str:
    """Return the other possible cause: nova hides records of unmapped hosts.

    '' if all hosts are known to be mapped.
    """
    unknown = sorted(s.host for s in seen.services if s.mapped is None)
    if not unknown:
        return ''
    return (f', or one whose host is not mapped to a cell ({_MAP}; of '
            f'{arguments.some(unknown)} it is not known)')


def _dead_hosts(seen: cloud_state.CloudState) -> Iterator[Finding]:
    """Yield a finding for the servers of a dead host, and for its nodes."""
    for key, host in seen.names.items():
        if key in seen.up_hosts:
            continue
        nodes = [node for node in seen.owned_by(host) if node in seen.node_of]
        used = sum(node in seen.server_of for node in nodes)
        why, remedy = _dead(host, seen.service_of.get(key), seen.at)
        if used:
            yield Finding(ON_DEAD_HOST, host, f'{_are(used, "server")} on '
                          f'{host}, {why}: {remedy}')
        if len(nodes) > used:
            yield Finding('record-on-dead-host', host,
                          f'{_are(len(nodes) - used, "free node")} on {host}, '
                          f'{why}: others take them at their next audit')


def _dead(host: str, service: cloud_state.Service | None,
          now: float) -> tuple[str, str]:
    """Return why a host is dead, and the remedy for its servers."""
    command = f"run 'nova-ironic-multihost fence {host} --wait 600'"
    if service is None:
        return ('of which nova has no compute service',
                'others take them over, and their logs say what waits')
    if service.forced_down:
        return 'which is fenced', (
            f'others take them over. To see what waits, {command}')
    return (f'down{_since(service.seen, now)}',
            f'start it, or power it off and {command}')


def _since(moment: float | None, now: float) -> str:
    """Return " since 22:14 UTC", with the date of another day; '' for None."""
    if moment is None:
        return ''
    then, today = (datetime.datetime.fromtimestamp(one, datetime.UTC)
                   for one in (moment, now))
    day = '' if then.date() == today.date() else f'{then:%Y-%m-%d} '
    return f' since {day}{then:%H:%M} UTC'


def _are(number: int, noun: str) -> str:
    return f'1 {noun} is' if number == 1 else f'{number} {noun}s are'


def _hosts(seen: cloud_state.CloudState) -> Iterator[Finding]:
    owning = {record.key for record in seen.records}
    for service in seen.services:
        if service.alive:
            yield Finding('fenced-alive', service.host,
                          f'{service.host} is fenced and sends heartbeats: '
                          "run 'nova-ironic-multihost unfence "
                          f"{service.host}', or power it off")
        if service.mapped is False and (
                service.up or service.key in owning):
            yield Finding('host-not-mapped', service.host,
                          f'{service.host} is not mapped to a cell: builds '
                          f'sent there fail ({_MAP})')


def _providers(seen: cloud_state.CloudState) -> Iterator[Finding]:
    for uuid in seen.node_of:
        if uuid not in seen.provider_of:
            yield Finding('node-without-provider', uuid,
                          f'node {uuid} has no resource provider')
    for provider in seen.providers:
        node = seen.node_of.get(provider.uuid)
        if node is None and provider.name in seen.node_of:
            yield Finding('second-provider', provider.uuid,
                          f'resource provider {provider.uuid} has the name '
                          f'of node {provider.name}, so placement refuses '
                          "the node's own. "
                          + _repair('second-provider', provider.uuid))
            continue
        if node is None:
            yield Finding('provider-without-node', provider.uuid,
                          f'resource provider {provider.uuid} stands for a '
                          'node that Ironic does not show: it is gone, or '
                          'hidden from who asks. '
                          + _repair('provider-without-node', provider.uuid))
            continue
        host = seen.owner_of.get(provider.uuid)
        owner = seen.service_of.get(host) if host else None
        if (owner and owner.up and not owner.disabled
                and not node.instance_uuid
                and cloud_state.DISABLED_TRAIT in provider.traits):
            yield Finding('free-node-barred', provider.uuid,
                          f'node {provider.uuid} is free and {owner.host} '
                          'is enabled, yet its provider is marked disabled')


def _allocations(seen: cloud_state.CloudState) -> Iterator[Finding]:
    if seen.allocations is None:
        return
    consumers: dict[str, str] = {}
    for allocation in seen.allocations:
        consumers[allocation.consumer] = allocation.provider
    for consumer, node in consumers.items():
        instance = seen.instance_of.get(consumer)
        if instance is None or instance.deleted:
            yield Finding('allocation-without-instance', consumer,
                          f'node {node} is allocated to server {consumer}, '
                          'which does not exist. '
                          + _repair('allocation-without-instance', consumer)
                          + ', or says how')
    for instance in seen.instances:
        if (instance.host and not instance.deleted
                and instance.uuid not in consumers):
            yield Finding('instance-without-allocation', instance.uuid,
                          f'server {_named(instance)} is on {instance.host} '
                          'without an allocation. '
                          + _repair('instance-without-allocation',
                                    instance.uuid))


def _repair(kind: str, subject: str) -> str:
    """Return the remedy of a finding that repair can mend."""
    return f'"nova-ironic-multihost repair {kind}:{subject}" mends it'


def _machines(seen: cloud_state.CloudState) -> Iterator[Finding]:
    for node in seen.nodes:
        if node.instance_uuid:
            instance = seen.instance_of.get(node.instance_uuid)
            if instance is None or instance.deleted:
                yield Finding(LEAKED, node.uuid,
                              f'node {node.uuid} ({node.provision_state}) '
                              f'is held for server {node.instance_uuid}, '
                              'which does not exist')
            elif (instance.key and node.uuid in seen.owner_of
                    and seen.owner_of[node.uuid] != instance.key):
                yield Finding('record-elsewhere', node.uuid,
                              f'node {node.uuid} is recorded on '
                              f'{seen.owner_of[node.uuid]}, its server '
                              f'{_named(instance)} is on {instance.host}')
        elif node.provision_state == 'active':
            yield Finding(LEAKED, node.uuid,
                          f'node {node.uuid} is active for no server')
    held = {node.instance_uuid for node in seen.nodes}
    for instance in seen.instances:
        if (instance.vm_state in ('active', 'stopped')
                and not instance.deleted and instance.uuid not in held):
            yield Finding('instance-without-machine', instance.uuid,
                          f'server {_named(instance)} is '
                          f'{instance.vm_state}, yet no Ironic node is held '
                          'for it')


def _tasks(seen: cloud_state.CloudState, now: float) -> Iterator[Finding]:
    for instance in seen.instances:
        if instance.deleted or not instance.task_state:
            continue
        age = now - instance.updated
        if age > seen.task_limit:
            yield Finding('stuck', instance.uuid,
                          f'server {_named(instance)} has been in one task '
                          f'for {age:.0f} s: {seen.task(instance)}')


def _named(instance: cloud_state.CloudServer) -> str:
    return f'{instance.name} ({instance.uuid})' if instance.name else (
        instance.uuid)


def busy(seen: cloud_state.CloudState) -> int:
    """Return the number of servers with a task state."""
    return sum(1 for i in seen.instances if i.task_state and not i.deleted)


def summary(seen: cloud_state.CloudState,
            found: list[Finding]) -> str:
    """Return the last line of a check."""
    counted = arguments.counted
    return (f'{counted(len(seen.nodes), "node")}, '
            f'{counted(len(seen.up_hosts), "compute service")} up: '
            + (counted(len(found), 'finding') if found
               else 'each node has exactly one owner'))


def wait(read: Callable[[], cloud_state.CloudState], seconds: float,
         hosts: Iterable[str] = (), **times: Any
         ) -> tuple[cloud_state.CloudState, list[Finding]]:
    """Read the cloud until it is consistent and no server has a task state.

    :param read: reads the cloud once
    :param seconds: at most; 0 reads once
    :param hosts: names of compute services that must exist and be up
    :param times: clock and sleep of :func:`.services.looks`
    :returns: the last state and its inconsistencies
    :raises Unanswered: the cloud does not answer when the time is over
    """
    def look() -> tuple[cloud_state.CloudState, list[Finding]] | Exception:
        try:
            seen = read()
        except cloud_state.Unanswered as error:
            return error
        return seen, inconsistencies(seen, seen.at, hosts)

    for _, found in services.looks(look, seconds, **times):
        if isinstance(found, tuple) and not (found[1] or busy(found[0])):
            break
    if isinstance(found, Exception):
        raise found
    return found
