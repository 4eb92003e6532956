# SPDX-License-Identifier: Apache-2.0

"""repair: mend findings through the APIs of nova, placement and Ironic.

Not promised: a repair of nova's database, or of a machine. A finding that a
compute service mends by itself is left to it.

Promised: right before a write its objects are read again, one finding at a
time. Writes are refused by placement when the objects have changed since
(generations), and are then decided anew. A repair can run again at any time.
"""

from collections.abc import Callable
import dataclasses
import enum
import functools
import typing

from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client.commands.node import leaks
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key

COLUMNS = 'Finding', 'Result', 'Sentence'


def _failed(finding, sentence):
    return Outcome(finding, Result.FAILED, sentence)


class Repair(base.CloudCommand, lister.Lister):
    """Mend what the check finds and what the APIs can mend safely.

    It deletes resource providers of nodes that neither Ironic nor nova has,
    deletes allocations of servers that nova has deleted, and allocates the
    node of a server that has no allocation. Each is looked at again before.
    Compute services go on meanwhile, and it can be run again at any time.

    Result  repaired, gone (it is in order by now), mends itself, by hand,
            refused (not safe now), or failed. The sentence has the reason,
            the compute service that mends it, or the command.
    """

    EPILOG = """\
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

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--dry-run', action='store_true',
            help='look, and write nothing')
        parser.add_argument(
            'finding', metavar='FINDING', nargs='?',
            help='a kind, or KIND:SUBJECT (default: all that "check" finds)')
        base.add_shared(parser)
        return parser

    def take_action(self, parsed_args):
        """Mend the findings one by one; keep the exit status."""
        name = parsed_args.finding
        kind, colon, subject = (name or '').partition(':')
        # An empty variable of a shell must not mean all findings.
        if name == '' or colon and not subject:
            raise base.Refused(
                f'"{name}" names no finding. Name a kind or KIND:SUBJECT; '
                'without the argument all findings are mended.')
        if name and kind not in findings.KINDS:
            raise base.Refused(
                f'"{kind}" is no kind of finding. Name one of: '
                f'{", ".join(findings.KINDS)}.')
        cloud = self.survey()
        seen = cloud.read(allocations=True, zones=True)
        found = [one for one in findings.inconsistencies(seen, seen.at)
                 if kind in ('', one.kind) and subject in ('', one.subject)]
        if subject and not found:
            self.status = arguments.LEFT
            self.tell(f'"check --allocations" finds no {name}: it is in order '
                      'by now, or its name is misspelled')
        # An allocation bars the deletion of its provider.
        found.sort(key=lambda one: 'allocation' not in one.kind)
        repairer = Repairer(cloud, ownership_report.OwnershipReport(
            seen, base.shared_settings(parsed_args)))
        outcomes = []
        for one in found:
            # The table has each write, so no error may lose it.
            stop = False
            try:
                outcome = repairer.repair(one, parsed_args.dry_run)
            except cloud_state.CloudError as error:
                # If it is Unanswered the others would wait as well.
                stop = isinstance(error, cloud_state.Unanswered)
                outcome = _failed(one, f'{error} Run the same command again.')
            except Exception as error:  # noqa: BLE001
                self.trace()
                stop, outcome = True, _failed(one, base.unexpected(error))
            outcomes.append(outcome)
            if stop:
                self.status = arguments.UNKNOWN
                break
        self._summarize(found, outcomes)
        return COLUMNS, [
            (one.finding.name, one.result.value, one.sentence)
            for one in outcomes]

    def _summarize(self, found, outcomes):
        left = len(found) - sum(one.result.done for one in outcomes)
        if left:
            self.status = self.status or arguments.LEFT
        self.tell(f'{arguments.counted(len(found), "finding")}, {left} left')

# How often a write is decided anew when it has failed.
_ATTEMPTS = 3

# States of a server that no operation of nova changes by itself.
_AT_REST = frozenset({'active', 'stopped', 'paused', 'suspended', 'error'})

# Provision states of a node on which no machine runs.
_FREE = frozenset({'available', 'manageable', 'enroll'})


class Result(enum.Enum):
    """What came of a finding; the value is for people."""

    REPAIRED = 'repaired'
    WOULD = 'can be repaired'
    GONE = 'gone'
    LEFT = 'mends itself'
    MANUAL = 'by hand'
    REFUSED = 'refused'
    FAILED = 'failed'

    @property
    def done(self) -> bool:
        """Whether nothing is left of the finding."""
        return self in (Result.REPAIRED, Result.GONE)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a finding, with a sentence."""

    finding: findings.Finding
    result: Result
    sentence: str


@dataclasses.dataclass(frozen=True)
class _Write:
    """The write that mends a finding, and what it does in words."""

    sentence: str
    run: Callable[[], None]


class _Stop(Exception):
    """A finding is not mended; has the result and the reason."""


class Repairer:
    """Repairs the findings of one cloud.

    :param report: of the state in which the findings were made.
    """

    def __init__(self, cloud: cloud_client.CloudClient,
                 report: ownership_report.OwnershipReport) -> None:
        self._cloud = cloud
        self._report = report
        self._seen = report.seen
        self._remedies = {
            'allocation-without-instance': self._leaked_allocation,
            'instance-without-allocation': self._lost_allocation,
            'provider-without-node': self._orphan,
            'second-provider': self._orphan,
        }

    def repair(self, finding: findings.Finding, dry_run: bool = False
               ) -> Outcome:
        """Mend one finding, or tell why not and who does.

        :param dry_run: look, and write nothing
        :raises Unanswered: a service does not answer
        """
        try:
            result, sentence = self._repair(finding, dry_run)
        except _Stop as stop:
            result, sentence = stop.args
        return Outcome(finding, result, sentence)

    def _repair(self, finding: findings.Finding,
                dry_run: bool) -> tuple[Result, str]:
        remedy = self._remedies.get(finding.kind)
        if remedy is None:
            return self._advice(finding)
        error: cloud_state.CloudError | None = None
        sentence = ''
        for _ in range(_ATTEMPTS):
            write = remedy(finding.subject)
            if write is None and error is None:
                return Result.GONE, 'it is in order by now'
            if write is None:
                # Its answer was lost, or another client has done it.
                return Result.REPAIRED, sentence
            sentence = write.sentence
            if dry_run:
                return Result.WOULD, sentence
            try:
                write.run()
            except cloud_state.CloudError as failed:
                error = failed
            else:
                return Result.REPAIRED, sentence
        return Result.FAILED, f'{error} Run the same command again.'

    def _orphan(self, uuid: str) -> _Write | None:
        """Return the deletion of a provider without node and record."""
        provider = self._cloud.provider(uuid)
        if provider is None or self._cloud.node(uuid):
            return None
        self._expect_cells()
        if host := self._cloud.owner(uuid):
            raise _Stop(*self._of_record(uuid, host))
        hidden = [one for one in self._seen.providers
                  if one.name not in self._seen.node_of]
        if provider['name'] == uuid and (
                1 < len(hidden) > len(self._seen.providers) // 10):
            raise _Stop(
                Result.REFUSED,
                f'Ironic shows no node of {len(hidden)} of '
                f'{len(self._seen.providers)} resource providers, so it may '
                'hide them. Use an account of system scope '
                '(--os-baremetal-cloud NAME); if the nodes are gone, '
                f'"openstack resource provider delete {uuid}" deletes one')
        if users := self._cloud.consumers(uuid):
            raise _Stop(
                Result.REFUSED,
                f'{" and ".join(users)} has an allocation of it. Delete the '
                'server; if there is none, repair '
                f'allocation-without-instance:{users[0]} first')
        return _Write(f'resource provider {uuid} is deleted',
                      lambda: self._cloud.delete_provider(uuid))

    def _leaked_allocation(self, consumer: str) -> _Write | None:
        """Return the deletion of the allocations of a server that is gone."""
        held = self._cloud.allocations(consumer)
        if not held['allocations'] or self._cloud.server(consumer):
            return None
        self._expect_cells()
        if consumer in self._migrations:
            raise _Stop(
                Result.REFUSED, f'{consumer} is a migration of server '
                f'{self._migrations[consumer]} that is not over')
        deleted = self._cloud.deleted(consumer)
        command = ('"openstack resource provider allocation delete '
                   f'{consumer}" deletes it')
        for uuid in held['allocations']:
            self._expect_no_machine(uuid, consumer, command)
            host = self._cloud.owner(uuid)
            if host and deleted and self._is_up(host):
                raise _Stop(
                    Result.LEFT, f'{host} frees node {uuid} at its next '
                    'audit of that node, as nova has deleted the server')
        if not deleted:
            raise _Stop(
                Result.MANUAL, f'nova has no server {consumer}, or has '
                'archived it: another client may have made the allocation. '
                f'If nobody needs it, {command}')
        return _Write(
            f'the allocations of {consumer} are deleted',
            lambda: self._cloud.set_allocations(
                consumer, held | {'allocations': {}}))

    def _expect_no_machine(self, uuid: str, consumer: str,
                           command: str) -> None:
        """Raise _Stop unless no machine runs on a node."""
        node = self._cloud.node(uuid)
        if node is None:
            raise _Stop(
                Result.REFUSED, f'Ironic does not show node {uuid}, so it may '
                'hide it with its machine. Use an account of system scope '
                '(--os-baremetal-cloud NAME); if the node is gone, '
                f'{command}')
        if (node.instance_uuid == consumer
                or not node.instance_uuid
                and node.provision_state == 'active'):
            raise _Stop(
                Result.REFUSED, f'node {uuid} has a machine without '
                'server. "nova-ironic-multihost leaks" has how it is '
                'freed; do that first')
        if node.instance_uuid or node.provision_state not in _FREE:
            used = (f'held for server {node.instance_uuid}'
                    if node.instance_uuid else node.provision_state)
            raise _Stop(
                Result.REFUSED, f'node {uuid} is {used}. Repair it when that '
                f'is over; if it never ends, {command}')

    def _lost_allocation(self, uuid: str) -> _Write | None:
        """Return the allocation of the node of a server to it."""
        server = self._cloud.server(uuid)
        if server is None or self._cloud.allocations(uuid)['allocations']:
            return None
        doing = self._seen.task(server)
        if not doing and self._cloud.migrations(instance_uuid=uuid):
            doing = 'a migration'
        if doing or server.vm_state not in _AT_REST:
            raise _Stop(
                Result.REFUSED, f'server {uuid} is not at rest '
                f'({doing or server.vm_state}). Repair it when that is over')
        node = self._cloud.node(server.node) if server.node else None
        if node is None or node.instance_uuid != uuid:
            raise _Stop(
                Result.REFUSED, f'Ironic does not hold node {server.node} for '
                f'server {uuid}. Delete the server')
        if users := self._cloud.consumers(node.uuid):
            raise _Stop(
                Result.REFUSED, f'node {node.uuid} is allocated to '
                f'{" and ".join(users)}. Repair '
                f'allocation-without-instance:{users[0]} first')
        found = self._cloud.inventories(node.uuid)
        classes = found['inventories']
        if [one['total'] for one in classes.values()] != [1]:
            raise _Stop(
                Result.MANUAL, 'its flavor says what it needs of node '
                f'{node.uuid}, which has not 1 of 1 resource class: '
                f'"nova-manage placement heal_allocations --instance {uuid}"')
        return _Write(
            f'node {node.uuid} is allocated to server {uuid}',
            functools.partial(self._allocate, server, node.uuid, found))

    def _allocate(self, server: cloud_state.CloudServer, node: str,
                  found: dict[str, typing.Any]) -> None:
        [(name, inventory)] = found['inventories'].items()
        try:
            if inventory['reserved']:
                # Placement allocates nothing that is reserved. The owner of
                # the node reserves it again, within 10 minutes.
                self._reserve(node, 0, found)
            self._cloud.set_allocations(server.uuid, {
                'allocations': {node: {'resources': {name: 1}}},
                'project_id': server.project, 'user_id': server.user,
                'consumer_generation': None})
        except cloud_state.CloudError as error:
            if inventory['reserved']:
                self._reserve_again(node, inventory['reserved'], error)
            self._expect_server(server.uuid)
            raise
        self._expect_server(server.uuid)

    def _reserve(self, node: str, reserved: int,
                 found: dict[str, typing.Any]) -> None:
        [(name, inventory)] = found['inventories'].items()
        if inventory['reserved'] != reserved:
            self._cloud.set_inventories(node, found | {
                'inventories': {name: inventory | {'reserved': reserved}}})

    def _reserve_again(self, node: str, reserved: int,
                       cause: cloud_state.CloudError) -> None:
        """Write ``reserved`` back, so that no build gets the node."""
        for _ in range(_ATTEMPTS):
            try:
                self._reserve(node, reserved, self._cloud.inventories(node))
            except cloud_state.CloudError as failed:
                error = failed
            else:
                return
        raise _Stop(
            Result.FAILED, f'{cause} Nor is node {node} reserved again: '
            f'{error} A build may get it until its owner reserves it, within '
            '10 minutes. Run the same command again.')

    def _expect_server(self, uuid: str) -> None:
        """Delete the allocation of a server that was deleted meanwhile."""
        try:
            if self._cloud.server(uuid) is not None:
                return
            held = self._cloud.allocations(uuid)
            if held['allocations']:
                self._cloud.set_allocations(uuid, held | {'allocations': {}})
        except cloud_state.CloudError as error:
            raise _Stop(
                Result.FAILED, f'whether server {uuid} is deleted, and has an '
                f'allocation, is not known: {error} Run "check --allocations".'
                ) from error
        raise _Stop(Result.GONE, f'server {uuid} is deleted by now, and has '
                    'no allocation')

    def _advice(self, finding: findings.Finding) -> tuple[Result, str]:
        """Return who mends a finding that no API can mend."""
        node = self._seen.node_of.get(finding.subject)
        if finding.kind == findings.LEAKED:
            [leak] = [one for one in leaks(self._report)
                      if one.node.uuid == finding.subject]
            return (Result.LEFT if leak.frees else Result.MANUAL), leak.next
        if finding.kind == 'record-without-node':
            return self._of_record(
                finding.subject, self._seen.owner_of[finding.subject])
        if node is not None and finding.kind == 'record-elsewhere':
            return self._half_moved(node)
        if finding.kind in ('node-without-provider', 'free-node-barred'):
            host = self._seen.owner_of.get(finding.subject)
            if host and self._is_up(host):
                return Result.LEFT, (
                    f'{host} corrects it at its next audit of the node; if '
                    'not, its log says why')
        nodes = [node] if node is not None else [
            self._seen.node_of[uuid]
            for uuid in self._seen.owned_by(finding.subject)
            if (uuid in self._seen.server_of)
            == (finding.kind == findings.ON_DEAD_HOST)
            and uuid in self._seen.node_of]
        if finding.kind in ('node-without-record', 'record-on-dead-host',
                            findings.ON_DEAD_HOST):
            takers = {str(one.decider)
                      for one in self._report.verdicts(nodes) if one.moves}
            if takers:
                return Result.LEFT, (
                    f'taken at the next audit by {", ".join(sorted(takers))}')
        return Result.MANUAL, finding.sentence

    def _half_moved(self, node: cloud_state.Node) -> tuple[Result, str]:
        """Return who moves the record of a node to the host of its server."""
        server = self._seen.instance_of[node.instance_uuid or '']
        if self._is_up(server.host or ''):
            return Result.LEFT, (
                f'{server.host} has the server, and takes the record of node '
                f'{node.uuid} at its next audit')
        return Result.MANUAL, (
            f'{server.host} has the server and is not up: start it; or power '
            f'it off, then "nova-ironic-multihost fence {server.host}"')

    def _of_record(self, uuid: str, host: str) -> tuple[Result, str]:
        """Return who deletes the record of a node that Ironic lacks."""
        if self._is_up(host):
            return Result.LEFT, (
                f'{host} deletes record and resource provider of node {uuid} '
                'within some audits; if not, its log says why')
        service = self._seen.service_of.get(host_key(host))
        return Result.MANUAL, (
            f'{host} has its record and is not up: start it. If {host} never '
            'comes back and has no server, "openstack compute service delete '
            f'{service.id if service else "ID"}" deletes its records')

    def _is_up(self, host: str) -> bool:
        return host_key(host) in self._seen.up_hosts

    def _expect_cells(self) -> None:
        """Raise Unanswered unless nova reaches all cells now.

        Of a cell that it does not reach nova shows no record and no server.
        """
        cloud_client.expect_cells(self._cloud.computes())

    @functools.cached_property
    def _migrations(self) -> dict[str, str]:
        # Once: a consumer of a finding is older than this, and no migration
        # that begins later gets its uuid.
        return self._cloud.migrations()
