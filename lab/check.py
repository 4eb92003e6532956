# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Is everything in its place? The consistency check of the lab.

What holds when nothing is going on, whatever happened before:

- every node has exactly one record, on a host that is up and mapped to a
  cell, and one resource provider;
- no allocation without a server, no server on a host without allocation;
- no node is held by Ironic for a server that does not exist;
- no server waits in a task state for ever;
- a free node of an enabled host is not barred from scheduling.

While servers are being built or deleted some of this is untrue for a
moment; ``--wait`` gives it time.
"""

import dataclasses
import json
import time

from lab import errors
from lab import state
from lab import view

# A server keeps one task state for a few seconds here: the nodes are fake
# and deploy in less than five.
STUCK_AFTER = 30.0


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its kind, whom it concerns, a sentence."""

    kind: str
    subject: str
    sentence: str


def inconsistencies(seen, now):
    """Everything in a view that is not as it should be.

    :param seen: a :class:`lab.view.View`
    :param now: seconds since the epoch; tells how long a task state lasts
    :returns: a list of :class:`Finding`, empty when consistent
    """
    return [*_records(seen), *_hosts(seen), *_providers(seen),
            *_allocations(seen), *_machines(seen), *_tasks(seen, now)]


def _records(seen):
    owners = {}
    for record in seen.records:
        owners.setdefault(record.node, []).append(record.host)
    for node in seen.nodes:
        hosts = owners.pop(node.uuid, [])
        if not hosts:
            yield Finding('node-without-record', node.uuid,
                          f'node {node.uuid} has no record: no compute '
                          'owns it')
        elif len(hosts) > 1:
            yield Finding('node-with-many-records', node.uuid,
                          f'node {node.uuid} has {len(hosts)} records: '
                          f'{", ".join(sorted(hosts))}')
        for host in hosts:
            if host.lower() not in seen.up_hosts:
                yield Finding('record-on-dead-host', node.uuid,
                              f'node {node.uuid} is recorded on {host}, '
                              'which is not up')
    for uuid, hosts in owners.items():
        yield Finding('record-without-node', uuid,
                      f'{", ".join(sorted(hosts))} has a record of node '
                      f'{uuid}, which Ironic does not have')


def _hosts(seen):
    owning = {record.key for record in seen.records}
    for service in seen.services:
        if not service.mapped and (service.up or service.key in owning):
            yield Finding('host-not-mapped', service.host,
                          f'{service.host} is not mapped to a cell: builds '
                          'sent there fail')


def _providers(seen):
    for node in seen.nodes:
        if node.uuid not in seen.provider_of:
            yield Finding('node-without-provider', node.uuid,
                          f'node {node.uuid} has no resource provider')
    for provider in seen.providers:
        node = seen.node_of.get(provider.uuid)
        if node is None:
            yield Finding('provider-without-node', provider.uuid,
                          f'resource provider {provider.uuid} stands for a '
                          'node that Ironic does not have')
            continue
        owner = seen.service_of.get(seen.owner_of.get(provider.uuid))
        if (owner and owner.up and not owner.disabled
                and not node.instance_uuid
                and view.DISABLED_TRAIT in provider.traits):
            yield Finding('free-node-barred', provider.uuid,
                          f'node {provider.uuid} is free and {owner.host} '
                          'is enabled, yet its provider is marked disabled')


def _allocations(seen):
    has_allocation = set()
    for allocation in seen.allocations:
        has_allocation.add(allocation.consumer)
        instance = seen.instance_of.get(allocation.consumer)
        if instance is None or instance.deleted:
            yield Finding('allocation-without-instance', allocation.provider,
                          f'node {allocation.provider} is allocated to '
                          f'server {allocation.consumer}, which does not '
                          'exist')
    for instance in seen.instances:
        if (instance.host and not instance.deleted
                and instance.uuid not in has_allocation):
            yield Finding('instance-without-allocation', instance.uuid,
                          f'server {_named(instance)} is on {instance.host} '
                          'without an allocation')


def _machines(seen):
    for node in seen.nodes:
        if node.instance_uuid:
            instance = seen.instance_of.get(node.instance_uuid)
            if instance is None or instance.deleted:
                yield Finding('leaked-machine', node.uuid,
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
            yield Finding('leaked-machine', node.uuid,
                          f'node {node.uuid} is active for no server')
    held = {node.instance_uuid for node in seen.nodes}
    for instance in seen.instances:
        if (instance.vm_state in ('active', 'stopped')
                and not instance.deleted and instance.uuid not in held):
            yield Finding('instance-without-machine', instance.uuid,
                          f'server {_named(instance)} is '
                          f'{instance.vm_state}, yet no Ironic node is held '
                          'for it')


def _tasks(seen, now):
    for instance in seen.instances:
        if instance.deleted or not instance.task_state:
            continue
        age = now - instance.updated
        if age > STUCK_AFTER:
            yield Finding('stuck', instance.uuid,
                          f'server {_named(instance)} has been '
                          f'{instance.task_state} for {age:.0f} s')


def _named(instance):
    return f'{instance.name} ({instance.uuid})' if instance.name else (
        instance.uuid)


def busy(seen):
    """Servers that are in the middle of something, as a number."""
    return sum(1 for i in seen.instances if i.task_state and not i.deleted)


def wait(read, seconds, clock=time.time, sleep=time.sleep):
    """Look again and again until all is consistent or the time is over.

    :param read: a function without arguments that returns a View
    :param seconds: how long; 0 looks once
    :returns: what is wrong in the last view, empty when consistent and no
              server is in the middle of something
    """
    deadline = clock() + seconds
    while True:
        seen = read()
        found = inconsistencies(seen, clock())
        if clock() >= deadline or not (found or busy(seen)):
            return found
        sleep(1)


def register(subparsers):
    """Add ``lab check`` to the command line."""
    parser = subparsers.add_parser(
        'check', help='say whether everything is in its place',
        description='Compare what nova, placement and Ironic say: every '
        'node has one record on a live, mapped host and one provider; '
        'allocations and servers match; Ironic holds no node for a server '
        'that is gone; nothing is stuck. Prints one line for each finding.',
        epilog='Exit status: 0 when consistent, 1 when something was found. '
        'Example: tools/lab compute kill compute-1; tools/lab check --wait '
        '60')
    parser.add_argument(
        '--wait', type=float, default=0, metavar='SECONDS',
        help='look again every second until all is consistent, at most this '
        'long (default: look once)')
    parser.add_argument(
        '--json', action='store_true',
        help='print {"consistent": ..., "findings": [...]} instead')
    parser.set_defaults(func=run)


def run(args, settings):
    """Carry out ``lab check``; returns the exit status."""
    # Another lab may be up at the ports of this one.
    if state.State(settings).read()['phase'] != 'up':
        raise errors.LabError('The lab is not up; run "tools/lab up".')
    found = wait(lambda: view.read(settings), args.wait)
    if args.json:
        print(json.dumps({
            'consistent': not found,
            'findings': [dataclasses.asdict(f) for f in found]}))
    elif found:
        for finding in found:
            print(f'{finding.kind}: {finding.sentence}')
    else:
        print('consistent')
    return 1 if found else 0
