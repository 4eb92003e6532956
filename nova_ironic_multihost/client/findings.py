# SPDX-License-Identifier: Apache-2.0

"""Find inconsistencies between nova, placement and Ironic.

Without I/O, except for :func:`wait`. When no operation is in progress:

- every node has exactly one record, on a host that is up, and one resource
  provider;
- every allocation has a server, every server on a host has an allocation;
- Ironic holds nodes only for servers that exist;
- no server stays in a task state for ever;
- the scheduler may use every free node of an enabled host.

Builds, deletions and moves of nodes break these rules for a moment;
:func:`wait` waits for them.
"""

import collections
from collections import abc
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

# Kind -> sentence; {repair} is the command that mends it.
_SENTENCES = {
    'compute-missing':
        'nova has no compute service {subject}: it never started, or has '
        'another name in its nova.conf',
    'compute-not-up': '{subject} is {why}',
    'node-without-record':
        'node {subject} has no record: no compute owns it, or its host is not '
        'mapped to a cell ("nova-manage cell_v2 discover_hosts --by-service" '
        'maps it)',
    'node-with-many-records':
        'node {subject} has {number} records: {hosts}',
    'second-record':
        '{host} has a second record of node {subject}: {remedy}',
    'record-without-node':
        '{hosts} has a record of node {subject}, which Ironic does not show: '
        'it is gone, or hidden from this account',
    'record-on-dead-host':
        '{count} on {subject}, {why}: others take them at their next audit',
    ON_DEAD_HOST: '{count} on {subject}, {why}: {remedy}',
    'node-without-provider': 'node {subject} has no resource provider',
    'provider-without-node':
        'resource provider {subject} stands for a node that Ironic does not '
        'show: it is gone, or hidden from this account. {repair} mends it',
    'second-provider':
        'resource provider {subject} has the name of node {node}, so '
        "placement refuses the node's own. {repair} mends it",
    'free-node-barred':
        'node {subject} is free and {host} is enabled, yet its provider is '
        'marked disabled',
    'allocation-without-instance':
        'node {node} is allocated to server {subject}, which does not exist. '
        '{repair} mends it, or says how',
    'instance-without-allocation':
        'server {server} is on {host} without an allocation. {repair} mends '
        'it',
    'leaked-machine': 'node {subject} {use}',
    'record-elsewhere':
        'node {subject} is recorded on {owner}, its server {server} is on '
        '{host}',
    'instance-without-machine':
        'server {server} is {state}, yet no Ironic node is held for it',
    'stuck': 'server {server} has been in one task for {age:.0f} s: {task}',
    'fenced-alive':
        '{subject} is fenced and sends heartbeats: run '
        "'nova-ironic-multihost unfence {subject}', or power it off",
    'still-stopping':
        '{subject} is up, and {how} at {said:%Y-%m-%d %H:%M} UTC, so that '
        'others have its free nodes. It takes that back when it starts with '
        'the driver of this package; with another driver "openstack compute '
        'service set --enable {subject} nova-compute" does',
}

#: All kinds of findings.
KINDS = tuple(_SENTENCES)

#: Seconds after which a compute service should have ended that was told to.
#: With nova's default settings it takes 180 at most.
STOP_LIMIT = 600


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


def _found(kind: str, subject: str, **words: Any) -> Finding:
    return Finding(kind, subject, _SENTENCES[kind].format(
        subject=subject, **words,
        repair=f'"nova-ironic-multihost repair {kind}:{subject}"'))


def inconsistencies(seen: cloud_state.CloudState, now: float,
                    hosts: abc.Iterable[str] = ()) -> list[Finding]:
    """Return all inconsistencies of a cloud.

    :param now: seconds since the epoch
    :param hosts: names of compute services that must exist and be up
    """
    return [*_expected(seen, hosts), *_second_records(seen),
            *_records(seen), *_dead_hosts(seen), *_alive(seen),
            *_providers(seen), *_allocations(seen), *_machines(seen),
            *_tasks(seen, now), *_stopping(seen, now)]


def _expected(seen: cloud_state.CloudState,
              hosts: abc.Iterable[str]) -> abc.Iterator[Finding]:
    for host in hosts:
        service = seen.service_of.get(host_key(host))
        if service is None:
            yield _found('compute-missing', host)
        elif not service.up:
            yield _found('compute-not-up', host, why=(
                'forced down' if service.forced_down
                else 'down: nova misses its heartbeat'))


def _second_records(seen: cloud_state.CloudState) -> abc.Iterator[Finding]:
    """Yield the records with another uuid than the node that they name."""
    for record in seen.second:
        yield _found('second-record', record.node, host=record.host,
                     remedy=model.second_record(record.node, record.second))


def _records(seen: cloud_state.CloudState) -> abc.Iterator[Finding]:
    owners = collections.defaultdict[str, list[str]](list)
    for record in seen.records:
        owners[record.node].append(record.host)
    for uuid in seen.node_of:
        if uuid not in owners:
            yield _found('node-without-record', uuid)
    for uuid, hosts in owners.items():
        names = ', '.join(sorted(hosts))
        if uuid not in seen.node_of:
            yield _found('record-without-node', uuid, hosts=names)
        elif len(hosts) > 1:
            yield _found('node-with-many-records', uuid, hosts=names,
                         number=len(hosts))


def _dead_hosts(seen: cloud_state.CloudState) -> abc.Iterator[Finding]:
    """Yield a finding for the servers of a dead host, and for its nodes."""
    for key, host in seen.names.items():
        if key in seen.up_hosts:
            continue
        nodes = [node for node in seen.owned_by(host) if node in seen.node_of]
        used = sum(node in seen.server_of for node in nodes)
        why, remedy = _dead(host, seen.service_of.get(key))
        for kind, number, noun in (
                (ON_DEAD_HOST, used, 'server'),
                ('record-on-dead-host', len(nodes) - used, 'free node')):
            if number:
                yield _found(
                    kind, host, why=why, remedy=remedy,
                    count=arguments.counted(number, noun)
                    + (' is' if number == 1 else ' are'))


def _dead(host: str, service: cloud_state.Service | None
          ) -> tuple[str, str]:
    """Return why a host is dead, and the remedy for its servers."""
    command = f"run 'nova-ironic-multihost fence {host} --wait 600'"
    if service is None:
        return ('of which nova has no compute service',
                'others take them over, and their logs say what waits')
    if service.forced_down:
        return 'which is fenced', (
            f'others take them over. To see what waits, {command}')
    since = '' if service.seen is None else ' since ' + (
        datetime.datetime.fromtimestamp(service.seen, datetime.UTC).strftime(
            '%Y-%m-%d %H:%M UTC'))
    return f'down{since}', f'start it, or power it off and {command}'


def _alive(seen: cloud_state.CloudState) -> abc.Iterator[Finding]:
    return (_found('fenced-alive', service.host)
            for service in seen.services if service.alive)


def _providers(seen: cloud_state.CloudState) -> abc.Iterator[Finding]:
    for uuid in seen.node_of:
        if uuid not in seen.provider_of:
            yield _found('node-without-provider', uuid)
    for provider in seen.providers:
        node = seen.node_of.get(provider.uuid)
        host = seen.owner_of.get(provider.uuid)
        owner = seen.service_of.get(host) if host else None
        if node is None and provider.name in seen.node_of:
            yield _found('second-provider', provider.uuid, node=provider.name)
        elif node is None:
            yield _found('provider-without-node', provider.uuid)
        elif (owner and owner.up and not owner.disabled
                and not node.instance_uuid
                and cloud_state.DISABLED_TRAIT in provider.traits):
            yield _found('free-node-barred', provider.uuid, host=owner.host)


def _allocations(seen: cloud_state.CloudState) -> abc.Iterator[Finding]:
    if seen.allocations is None:
        return
    consumers = {one.consumer: one.provider for one in seen.allocations}
    living = {one.uuid: one for one in seen.instances if not one.deleted}
    for consumer, node in consumers.items():
        if consumer not in living:
            yield _found('allocation-without-instance', consumer, node=node)
    for server in living.values():
        if server.host and server.uuid not in consumers:
            yield _found('instance-without-allocation', server.uuid,
                         server=_named(server), host=server.host)


def _machines(seen: cloud_state.CloudState) -> abc.Iterator[Finding]:
    for node in seen.nodes:
        server = seen.server_on.get(node.uuid)
        owner = seen.owner_of.get(node.uuid)
        if seen.usage(node).stray:
            yield _found('leaked-machine', node.uuid, use=(
                f'({node.provision_state}) is held for server '
                f'{node.instance_uuid}, which does not exist'
                if node.instance_uuid else 'is active for no server'))
        elif server and server.host_key and (
                owner not in (None, server.host_key)):
            yield _found('record-elsewhere', node.uuid, owner=owner,
                         server=_named(server), host=server.host)
    held = {node.instance_uuid for node in seen.nodes}
    for server in seen.instances:
        if (server.vm_state in ('active', 'stopped')
                and not server.deleted and server.uuid not in held):
            yield _found('instance-without-machine', server.uuid,
                         server=_named(server), state=server.vm_state)


def _stopping(seen: cloud_state.CloudState, now: float
              ) -> abc.Iterator[Finding]:
    return (_found('still-stopping', one.host, said=said, how=(
        'disabled because it was stopped' if one.disabled
        else 'marked as stopped'))
        for one in seen.services if one.up
        and (said := liveness.stop_marker_time(one.stop_marker))
        and now - said.timestamp() > STOP_LIMIT)


def _tasks(seen: cloud_state.CloudState, now: float) -> abc.Iterator[Finding]:
    return (_found('stuck', one.uuid, server=_named(one),
                   age=now - one.updated, task=seen.task(one))
            for one in seen.instances if one.task_state and not one.deleted
            and now - one.updated > seen.task_limit)


def _named(server: cloud_state.CloudServer) -> str:
    return f'{server.name} ({server.uuid})' if server.name else server.uuid


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


def wait(read: abc.Callable[[], cloud_state.CloudState], seconds: float,
         hosts: abc.Iterable[str] = (), **times: Any
         ) -> tuple[cloud_state.CloudState, list[Finding]]:
    """Read the cloud until it is consistent and no server has a task state.

    :param read: reads the cloud once
    :param seconds: at most; 0 reads once
    :param hosts: names of compute services that must exist and be up
    :param times: clock and sleep of :func:`.services.looks`
    :returns: the last state and its inconsistencies
    :raises Unanswered: the cloud does not answer when the time is over
    """
    for _, seen in services.looks(
            read, seconds, passing=(cloud_state.Unanswered,), **times):
        found = inconsistencies(seen, seen.at, hosts)
        if not (found or busy(seen)):
            break
    return seen, found
