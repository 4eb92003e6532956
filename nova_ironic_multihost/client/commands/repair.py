# SPDX-License-Identifier: Apache-2.0

"""repair: mend findings through the API of placement.

Not promised: a repair of nova's database, or of a machine.

Promised: right before a write its objects are read again, one finding at a
time. Placement refuses a write if the objects have changed since
(generations). A repair can run again at any time.
"""

from collections import abc
import contextlib
import functools
import typing

from cliff import lister

from nova_ironic_multihost.client.api import Json
from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.rules.peers import host_key

COLUMNS = 'Finding', 'Result', 'Sentence'

# States of a server that no operation of nova changes by itself.
_AT_REST = frozenset({'active', 'stopped', 'paused', 'suspended', 'error'})

# Provision states of a node on which no machine runs.
_FREE = frozenset({'available', 'manageable', 'enroll'})

# What a write does, and the write.
_Write: typing.TypeAlias = tuple[str, abc.Callable[[], None]]


class Repair(base.CloudCommand, lister.Lister):
    """Mend what the check finds and what placement's API can mend safely.

    It deletes resource providers of nodes that neither Ironic nor nova has,
    deletes allocations of servers that nova has deleted, and allocates the
    node of a server that has no allocation. Each is looked at again before.
    Compute services go on meanwhile, and it can be run again at any time.

    Result  repaired, gone (it is in order by now), refused (not safe now, or
            another one mends it), or failed. The sentence has the reason and
            the remedy.
    """

    _epilog = """\
examples:
  nova-ironic-multihost repair --dry-run
  nova-ironic-multihost repair allocation-without-instance
        all findings of a kind
  nova-ironic-multihost repair provider-without-node:1c1f3a52-...
        one finding: its kind and its subject, as "check" shows them

It asks for the allocations of each node, as "check --allocations" does.

exit status: 0 nothing is left, 1 something is left or FINDING is not found,
2 the cloud cannot be asked
"""

    def add_options(self, parser):
        """Add the options."""
        parser.add_argument(
            '--dry-run', action='store_true',
            help='look, and write nothing')
        parser.add_argument(
            'finding', metavar='FINDING', nargs='?',
            help='a kind, or KIND:SUBJECT (default: all that can be mended)')

    def take_action(self, parsed_args):
        """Mend the findings one by one; keep the exit status."""
        name = parsed_args.finding
        kind, colon, subject = (name or '').partition(':')
        # An empty variable of a shell must not mean all findings.
        if name is not None and (
                kind not in _REMEDIES or colon and not subject):
            raise base.Refused(
                f'"{name}" names no finding that can be repaired. Name a kind '
                f'or KIND:SUBJECT, of the kinds {", ".join(_REMEDIES)}.')
        seen = self.cloud.read(allocations=True)
        every = findings.inconsistencies(seen, seen.at)
        found = [one for one in every if one.kind in _REMEDIES
                 and kind in ('', one.kind) and subject in ('', one.subject)]
        # An allocation bars the deletion of its provider.
        found.sort(key=lambda one: 'allocation' not in one.kind)
        others = 0 if name else len(every) - len(found)
        left = len(found)
        repairer = _Repairer(self.cloud, seen)
        rows = []
        for one in found:
            # The table has each write, so no error may lose it.
            stop = False
            try:
                result, sentence = _repair(repairer, one, parsed_args.dry_run)
            except Exception as error:  # noqa: BLE001
                self.trace()
                # If it is Unanswered the others would wait as well.
                known = isinstance(error, cloud_state.CloudError)
                stop = not known or isinstance(error, cloud_state.Unanswered)
                result, sentence = 'failed', (
                    f'{error} Run the same command again.' if known
                    else base.unexpected(error))
            rows.append((one.name, result, sentence))
            left -= result in ('repaired', 'gone')
            if stop:
                self.status = arguments.UNKNOWN
                break
        if left or others or subject and not found:
            self.status = self.status or arguments.LEFT
        self.tell(f'{arguments.counted(len(found), "finding")}, {left} left')
        if subject and not found:
            self.tell(f'"check --allocations" finds no {name}: it is in order '
                      'by now, or its name is misspelled')
        if others:
            self.tell('no write to placement mends '
                      f'{arguments.counted(others, "other finding")} of '
                      '"check"')
        return COLUMNS, rows


def _repair(repairer, finding, dry_run):
    """Mend one finding; return the result and a sentence."""
    try:
        write = _REMEDIES[finding.kind](repairer, finding.subject)
    except base.Refused as refused:
        return 'refused', str(refused)
    if write is None:
        return 'gone', 'it is in order by now'
    sentence, run = write
    if dry_run:
        return 'can be repaired', sentence
    run()
    return 'repaired', sentence


class _Repairer:
    """Returns the write that mends a finding; None if it is in order.

    Before it deletes something nova has to reach all cells: of a cell that it
    does not reach it shows no record and no server.
    """

    def __init__(self, cloud: cloud_client.CloudClient,
                 seen: cloud_state.CloudState) -> None:
        self._cloud = cloud
        self._placement = cloud.placement
        self._seen = seen

    def orphan(self, uuid: str) -> _Write | None:
        """Delete a provider without node and record."""
        path = f'/resource_providers/{uuid}'
        provider = self._placement.get(path, may_be_gone=True)
        if provider is None or self._cloud.node(uuid):
            return None
        cloud_client.expect_cells(self._cloud.computes())
        if host := self._cloud.owner(uuid):
            raise base.Refused(
                f'{host} has a record of node {uuid}. While it is up it '
                'deletes record and resource provider within some audits; if '
                'not, its log says why. If it never comes back and has no '
                'server, "openstack compute service delete '
                f'{self._service(host)}" deletes its records')
        hidden = [one for one in self._seen.providers
                  if one.name not in self._seen.node_of]
        if provider['name'] == uuid and (
                1 < len(hidden) > len(self._seen.providers) // 10):
            raise base.Refused(
                f'Ironic shows no node of {len(hidden)} of '
                f'{len(self._seen.providers)} resource providers, so it may '
                'hide them. Use an account of system scope '
                '(--os-baremetal-cloud NAME); if the nodes are gone, '
                f'"openstack resource provider delete {uuid}" deletes one')
        if users := self._cloud.consumers(uuid):
            raise base.Refused(
                f'{" and ".join(users)} has an allocation of it. Delete the '
                'server; if there is none, repair '
                f'allocation-without-instance:{users[0]} first')
        return (f'resource provider {uuid} is deleted',
                lambda: self._placement.send(path))

    def leaked_allocation(self, consumer: str) -> _Write | None:
        """Delete the allocations of a server that is gone."""
        held = self._placement.get(f'/allocations/{consumer}')
        if not held['allocations'] or self._cloud.server(consumer):
            return None
        cloud_client.expect_cells(self._cloud.computes())
        if server := self._migrations.get(consumer):
            raise base.Refused(f'{consumer} is a migration of server {server} '
                               'that is not over')
        deleted = self._cloud.deleted(consumer)
        command = ('"openstack resource provider allocation delete '
                   f'{consumer}" deletes it')
        for uuid in held['allocations']:
            self._expect_no_machine(uuid, consumer, command)
            host = self._cloud.owner(uuid)
            if host and deleted and host_key(host) in self._seen.up_hosts:
                raise base.Refused(
                    f'{host} frees node {uuid} at its next audit of that '
                    'node, as nova has deleted the server')
        if not deleted:
            raise base.Refused(
                f'nova has no server {consumer}, or has archived it: another '
                'client may have made the allocation. If nobody needs it, '
                f'{command}')
        return (f'the allocations of {consumer} are deleted',
                lambda: self._placement.send(
                    f'/allocations/{consumer}', held | {'allocations': {}}))

    def _expect_no_machine(self, uuid: str, consumer: str,
                           command: str) -> None:
        """Raise Refused unless no machine runs on a node."""
        node = self._cloud.node(uuid)
        if node and not node.instance_uuid and node.provision_state in _FREE:
            return
        if node is None:
            why = ('is not shown by Ironic. Use an account of system scope '
                   '(--os-baremetal-cloud NAME)')
        elif node.instance_uuid == consumer or (
                not node.instance_uuid and node.provision_state == 'active'):
            why = ('has a machine without server. "nova-ironic-multihost '
                   'leaks" has how it is freed; do that first')
        else:
            why = (f'held for server {node.instance_uuid}'
                   if node.instance_uuid else node.provision_state)
            why = f'is {why}. Repair it when that is over'
        raise base.Refused(f'node {uuid} {why}; if it runs no machine, '
                           f'{command}')

    def lost_allocation(self, uuid: str) -> _Write | None:
        """Allocate the node of a server to it."""
        server = self._cloud.server(uuid)
        if server is None or self._placement.get(
                f'/allocations/{uuid}')['allocations']:
            return None
        doing = self._seen.task(server)
        if not doing and self._cloud.migrations(instance_uuid=uuid):
            doing = 'a migration'
        if doing or server.vm_state not in _AT_REST:
            raise base.Refused(
                f'server {uuid} is not at rest ({doing or server.vm_state}). '
                'Repair it when that is over')
        node = self._cloud.node(server.node) if server.node else None
        if node is None or node.instance_uuid != uuid:
            raise base.Refused(f'Ironic does not hold node {server.node} for '
                               f'server {uuid}. Delete the server')
        if users := self._cloud.consumers(node.uuid):
            raise base.Refused(
                f'node {node.uuid} is allocated to {" and ".join(users)}. '
                f'Repair allocation-without-instance:{users[0]} first')
        found = self._inventories(node.uuid)
        if [one['total'] for one in found['inventories'].values()] != [1]:
            raise base.Refused(
                f'its flavor says what it needs of node {node.uuid}, which '
                'has not 1 of 1 resource class: "nova-manage placement '
                f'heal_allocations --instance {uuid}"')
        return (f'node {node.uuid} is allocated to server {uuid}',
                functools.partial(self._allocate, server, node.uuid, found))

    def _allocate(self, server: cloud_state.CloudServer, node: str,
                  found: Json) -> None:
        [(name, inventory)] = found['inventories'].items()
        try:
            # Placement allocates nothing that is reserved.
            self._reserve(node, 0, found)
            self._placement.send(f'/allocations/{server.uuid}', {
                'allocations': {node: {'resources': {name: 1}}},
                'project_id': server.project, 'user_id': server.user,
                'consumer_generation': None})
        except cloud_state.CloudError:
            # So that no build gets the node. Its owner does it within 10
            # minutes if this fails, and may have done it already.
            with contextlib.suppress(cloud_state.CloudError):
                if inventory['reserved']:
                    self._reserve(node, inventory['reserved'],
                                  self._inventories(node))
            raise

    def _reserve(self, node: str, reserved: int,
                 found: Json) -> None:
        [(name, inventory)] = found['inventories'].items()
        if inventory['reserved'] != reserved:
            self._placement.send(
                f'/resource_providers/{node}/inventories', found | {
                    'inventories': {name: inventory | {'reserved': reserved}}})

    def _inventories(self, node: str) -> Json:
        found: Json = self._placement.get(
            f'/resource_providers/{node}/inventories')
        return found

    @functools.cached_property
    def _migrations(self) -> dict[str, str]:
        # Once: a consumer of a finding is older than this, and no migration
        # that begins later gets its uuid.
        return self._cloud.migrations()

    def _service(self, host: str) -> str:
        service = self._seen.service_of.get(host_key(host))
        return service.id if service else 'ID'


# Kind of finding -> its remedy.
_REMEDIES = {
    'allocation-without-instance': _Repairer.leaked_allocation,
    'instance-without-allocation': _Repairer.lost_allocation,
    'provider-without-node': _Repairer.orphan,
    'second-provider': _Repairer.orphan,
}
