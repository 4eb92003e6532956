# SPDX-License-Identifier: Apache-2.0

"""node list, node show, leaks: owners of nodes, machines without a server."""

import dataclasses

from cliff import lister
from cliff import show

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key

COLUMNS = 'UUID', 'Name', 'Owner', 'Preferred', 'State', 'Why', 'Next'
MORE = 'Server', 'Provision state', 'Partition', 'Zone', 'Barred'

_STATES = {kind.value: kind for kind in cloud_state.Usage}
_UNSEEN = 'not known from outside'


class ListNodes(base.CloudCommand, lister.Lister):
    """List the nodes: the owner, the host that the ring prefers, and why.

    State   free. used: it has a server. leaked: held for a server that nova
            has deleted. unknown server: held for a server that nova does not
            know. no server: active, and held for no server.
    Why     the reason of its owner, and the rule that it comes from
            (documentation, page "Who owns a node"); empty if its owner is
            not up.
    Next    the compute service that is about to take it, or why none is.
    """

    EPILOG = """\
examples:
  nova-ironic-multihost node list --host compute-1
  nova-ironic-multihost node list --state free --moving
        what changes its owner soon
  nova-ironic-multihost node list --long -f csv > nodes.csv

exit status: 0, or 2 if there is no such host or the cloud cannot be asked
"""

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--host', metavar='HOST',
            help='only the nodes that this compute service owns')
        parser.add_argument(
            '--state', choices=sorted(_STATES),
            help='only the nodes of which this is true')
        parser.add_argument(
            '--moving', action='store_true',
            help='only the nodes that are about to change their owner')
        parser.add_argument(
            '--long', action='store_true',
            help='also server, provision state, partition, zone of the '
            'owner, and whether the provider is barred from scheduling')
        base.add_shared(parser)
        return parser

    def take_action(self, parsed_args):
        """Return the table."""
        report = self.report(parsed_args)
        _expect_known(report.seen, parsed_args.host)
        node_reports = report.verdicts(
            node for node in report.seen.nodes
            if _chosen(report, node, parsed_args))
        return COLUMNS + (MORE if parsed_args.long else ()), [
            _short(report, node_report) + (
                _more(report, node_report) if parsed_args.long else ())
            for node_report in sorted(node_reports, key=_place)
            if node_report.moves or not parsed_args.moving]


def _expect_known(seen, host):
    if host is not None and host_key(host) not in seen.names:
        known = ', '.join(seen.names.values()) or 'none'
        raise base.Refused(
            f'nova has no compute service "{host}", and no record of one. '
            f'Name one of those that it has: {known}.')


def _chosen(report, node, args):
    return (
        (args.host is None
         or report.seen.owner_of.get(node.uuid) == host_key(args.host))
        and (args.state is None
             or report.seen.usage(node) is _STATES[args.state]))


def _place(node_report):
    """Return the sort key: nodes with names come first, by their names."""
    node = node_report.node
    return not node.name, node.name, node.uuid


def _short(report, node_report):
    node = node_report.node
    return (node.uuid, node.name, node_report.owner or '',
            node_report.preferred or '', report.seen.usage(node).value,
            node_report.because, node_report.ahead)


def _more(report, node_report):
    node = node_report.node
    part = report.partitions.of_node(node)
    return (node.instance_uuid or '', node.provision_state,
            part.label if part is not None else '',
            report.zones.get(node_report.owner, ''),
            base.YesNo(_barred(report, node)))


def _barred(report, node):
    """Return whether the scheduler ignores a node; None without provider."""
    provider = report.seen.provider_of.get(node.uuid)
    if provider is None:
        return None
    return cloud_state.DISABLED_TRAIT in provider.traits


class ShowNode(base.CloudCommand, show.ShowOne):
    """Show the owner of a node, since when and why, and what happens next.

    A server stands for its node. The rules are those of the documentation,
    page "Who owns a node".
    """

    EPILOG = """\
examples:
  nova-ironic-multihost node show rack7-u12
  nova-ironic-multihost node show 1c1f3a52-... -f json
  nova-ironic-multihost node show web-1
        the node of this server

exit status: 0, or 2 if there is no such node or server, or the cloud cannot
be asked
"""

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'node', metavar='NODE|SERVER',
            help='uuid or name of the node, or of its server')
        base.add_shared(parser)
        return parser

    def take_action(self, parsed_args):
        """Return (names, values)."""
        report = self.report(parsed_args)
        node_report = report.verdict(_named(report.seen, parsed_args.node))
        node = node_report.node
        built = (self.survey().built(node.instance_uuid)
                 if node.instance_uuid else None)
        return tuple(zip(*_lines(report, node_report, built)))


def _named(seen, name):
    """Return the node with a uuid or name, or of the server with it.

    :raises Refused: when there is none, or more than one server
    """
    found = [node for node in seen.nodes
             if name and name in (node.uuid, node.name)]
    if found:
        return found[0]
    servers = [one for one in seen.instances
               if name and name in (one.uuid, one.name) and not one.deleted]
    if len(servers) > 1:
        uuids = ', '.join(sorted(one.uuid for one in servers))
        raise base.Refused(
            f'{len(servers)} servers have the name "{name}". Name one by its '
            f'uuid: {uuids}.')
    for server in servers:
        held = {node.instance_uuid: node for node in seen.nodes}
        node = held.get(server.uuid) or seen.node_of.get(server.node)
        if node is not None:
            return node
        raise base.Refused(
            f'Server "{name}" has no node that Ironic shows this account: it '
            'is not placed yet, or its node is gone or hidden. "openstack '
            f'server show {server.uuid}" has its state.')
    raise base.Refused(
        f'There is no node "{name}" that Ironic shows this account, and no '
        'bare metal server of this name. Look at the spelling; an account of '
        'system scope (--os-baremetal-cloud NAME) sees all nodes.')


def _came(node_report, built):
    """Return why a node is its owner's, and since when, None if unknown."""
    owner = host_key(node_report.owner or '')
    if owner and built is not None:
        host, since = built
        if host_key(host) == owner:
            return 'build: its server was built there', since
        return f'takeover: its server was built on {host}', None
    if owner and not node_report.node.instance_uuid and (
            owner == host_key(node_report.preferred or '')):
        return 'ring: the hash ring prefers this host', None
    return 'not known', None


def _lines(report, node_report, built):
    node = node_report.node
    seen = report.seen
    record = next((one for one in seen.records if one.node == node.uuid),
                  None)
    instance = seen.instance_of.get(node.instance_uuid or '')
    came, since = _came(node_report, built)
    part = report.partitions.of_node(node)
    yield 'uuid', node.uuid
    yield 'name', node.name
    yield 'owner', record.host if record is not None else ''
    yield 'owner_since', base.Moment(since)
    yield 'came_by', came
    yield 'preferred', node_report.preferred or ''
    yield 'state', seen.usage(node).value
    yield 'why', node_report.because or _ownerless(node_report)
    yield 'next', node_report.ahead
    yield 'rule', node_report.rules
    yield 'depends_on', (f'{_UNSEEN}: {node_report.unseen}'
                         if node_report.unseen else '')
    yield 'server', node.instance_uuid or ''
    yield 'server_host', (instance.host or '') if instance else ''
    yield 'server_task', (
        report.seen.task(instance) if instance else '')
    yield 'provision_state', node.provision_state
    yield 'provision_state_since', base.Moment(node.since)
    yield 'maintenance', base.YesNo(node.maintenance)
    yield 'partition', part.label if part is not None else ''
    yield 'zone', report.zones.get(node_report.owner, '')
    yield 'barred', base.YesNo(_barred(report, node))


def _ownerless(node_report):
    if node_report.owner is None:
        return 'no compute service has a record of it'
    return f'{node_report.owner} has its record and is not up'

LEAK_COLUMNS = ('Node', 'Name', 'Provision state', 'Held for', 'Server',
                'Owner', 'Freed by', 'Next')


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
        found = leaks(self.report(parsed_args))
        if not found:
            self.tell('none: each machine has a server')
        return LEAK_COLUMNS, [
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


def leaks(report: ownership_report.OwnershipReport) -> list[Leak]:
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
