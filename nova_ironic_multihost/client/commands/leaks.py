# SPDX-License-Identifier: Apache-2.0

"""leaks: list machines without a server, and what happens to each."""

import dataclasses

from cliff import lister

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import ownership_report

COLUMNS = ('Node', 'Name', 'Provision state', 'Held for', 'Server', 'Owner',
           'Freed by', 'Next')


class ListLeaks(base.CloudCommand, lister.Lister):
    """List machines without a server, and what happens to each.

    Held for   leaked: a server that nova has deleted. unknown server: a
               server that nova does not know. no server: it is active, and
               held for no server.
    Freed by   the compute service that will tear the machine down by itself;
               empty if there is none.
    """

    EPILOG = """\
examples:
  nova-ironic-multihost leaks
  nova-ironic-multihost leaks -f value -c Node -c Next

exit status: 0, or 2 if the cloud cannot be asked
"""

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        base.add_shared(parser)
        return parser

    def take_action(self, parsed_args):
        """Return the table."""
        found = find(self.report(parsed_args))
        if not found:
            self.tell('none: each machine has a server')
        return COLUMNS, [
            (one.node.uuid, one.node.name, one.node.provision_state,
             one.kind.value, one.node.instance_uuid or '', one.owner,
             one.frees, one.next) for one in found]

#: When nova's periodic task next removes deleted servers from a host.
REAPER = ('within 1800 s, or what '
          '[DEFAULT]running_deleted_instance_poll_interval says')

#: Provision states in which Ironic refuses to undeploy a node.
_NOT_UNDEPLOYED = frozenset({
    'enroll', 'manageable', 'available', 'clean failed', 'inspect failed',
    'adopt failed'})


@dataclasses.dataclass(frozen=True)
class Leak:
    """A machine without a server.

    :param owner: host of the record of the node, '' without a record.
    :param frees: host that will tear the machine down by itself, or ''.
    :param next: what happens, a sentence.
    """

    node: cloud_state.Node
    kind: cloud_state.Usage
    owner: str
    frees: str
    next: str


def find(report: ownership_report.OwnershipReport) -> list[Leak]:
    """Return the machines without a server, in Ironic's order."""
    seen = report.seen
    strays = [node for node in seen.nodes if seen.usage(node).stray]
    return [_leak(node_report, seen.usage(node_report.node))
            for node_report in report.verdicts(strays)]


def _leak(node_report: ownership_report.NodeReport,
          kind: cloud_state.Usage) -> Leak:
    frees, sentence = (
        _deleted(node_report) if kind is cloud_state.Usage.LEAKED
        else _foreign(node_report, kind))
    return Leak(node_report.node, kind, node_report.owner or '', frees,
                sentence)


def _deleted(node_report: ownership_report.NodeReport) -> tuple[str, str]:
    """Return (host that frees it, sentence) if nova deleted the server."""
    if node_report.why is not None and node_report.why.mine:
        host = str(node_report.owner)
        return host, f'{host} tears it down {REAPER}'
    if node_report.next is not None and node_report.next.mine:
        host = str(node_report.decider)
        return host, (f'{host} takes it at its next audit, and tears it down '
                      f'{REAPER}')
    if node_report.next is not None:
        return str(node_report.decider), (
            f'{node_report.decider} is to take it and does not yet: '
            f'{node_report.next.value}')
    return '', ('nobody can take it: no compute service of its partition and '
                'zone is up and enabled. Start one, or enable one')


def _foreign(node_report: ownership_report.NodeReport, kind: cloud_state.Usage
             ) -> tuple[str, str]:
    """Return ('', sentence) for a machine that nova does not know."""
    cause = ('nova has no record of its server, deleted and purged or never '
             'there' if kind is cloud_state.Usage.UNKNOWN else
             'Ironic has it active for no server')
    command = ('openstack baremetal node unset --instance-uuid'
               if node_report.node.provision_state in _NOT_UNDEPLOYED
               else 'openstack baremetal node undeploy')
    return '', (f'nobody touches it: {cause}. If nobody uses it without nova, '
                f'"{command} {node_report.node.uuid}" frees it')
