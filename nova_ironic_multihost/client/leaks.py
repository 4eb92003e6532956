# SPDX-License-Identifier: Apache-2.0

"""Machines that run for nobody, and what becomes of each."""

import dataclasses

from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import usage

#: When nova next deletes what a host still has of servers that are deleted.
REAPER = ('within 1800 s, or what '
          '[DEFAULT]running_deleted_instance_poll_interval says')

#: Provision states in which Ironic refuses to undeploy a node.
_NOT_UNDEPLOYED = frozenset({
    'enroll', 'manageable', 'available', 'clean failed', 'inspect failed',
    'adopt failed'})


@dataclasses.dataclass(frozen=True)
class Leak:
    """One machine.

    :param kind: of :class:`.usage.Usage`; one that is stray.
    :param server: uuid of the server that Ironic holds the node for, or ''.
    :param owner: whose the record of the node is, '' if nobody's.
    :param frees: who tears the machine down by itself, '' if nobody does.
    :param next: what happens, a sentence.
    """

    node: str
    name: str
    provision_state: str
    kind: usage.Usage
    server: str
    owner: str
    frees: str
    next: str


def found(judged: ownership_report.OwnershipReport) -> list[Leak]:
    """Return the machines that no server has, in Ironic's order."""
    seen = judged.seen
    strays = [node for node in seen.nodes if usage.of(node, seen).stray]
    return [_leak(verdict, usage.of(verdict.node, seen))
            for verdict in judged.verdicts(strays)]


def _leak(verdict: ownership_report.NodeReport, kind: usage.Usage) -> Leak:
    node = verdict.node
    frees, sentence = (
        _deleted(verdict) if kind is usage.Usage.LEAKED
        else _foreign(verdict, kind))
    return Leak(node.uuid, node.name, node.provision_state, kind,
                node.instance_uuid or '', verdict.owner or '', frees,
                sentence)


def _deleted(verdict: ownership_report.NodeReport) -> tuple[str, str]:
    """Who frees a machine whose server nova has deleted, and how."""
    if verdict.why is not None and verdict.why.mine:
        host = str(verdict.owner)
        return host, f'{host} tears it down {REAPER}'
    if verdict.next is not None and verdict.next.mine:
        host = str(verdict.decider)
        return host, (f'{host} takes it at its next audit, and tears it down '
                      f'{REAPER}')
    if verdict.next is not None:
        return str(verdict.decider), (
            f'{verdict.decider} is to take it and does not yet: '
            f'{verdict.next.value}')
    return '', ('nobody can take it: no compute service of its partition and '
                'zone is up and enabled. Start one, or enable one')


def _foreign(verdict: ownership_report.NodeReport, kind: usage.Usage
             ) -> tuple[str, str]:
    """The same of a machine that nova knows nothing of."""
    held = ('nova has no record of its server, deleted and purged or never '
            'there' if kind is usage.Usage.UNKNOWN else
            'Ironic has it active for no server')
    how = ('openstack baremetal node unset --instance-uuid'
           if verdict.node.provision_state in _NOT_UNDEPLOYED
           else 'openstack baremetal node undeploy')
    return '', (f'nobody touches it: {held}. If nobody uses it without nova, '
                f'"{how} {verdict.node.uuid}" frees it')
