# SPDX-License-Identifier: Apache-2.0

"""node list, node show, leaks: owners of nodes, machines without a server."""

from collections import abc
import typing

from cliff import lister
from cliff import show

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key

COLUMNS = 'UUID', 'Name', 'Owner', 'Preferred', 'State', 'Why', 'Next'
MORE = 'Server', 'Provision state', 'Partition', 'Zone', 'Barred'


class ListNodes(base.CloudCommand, lister.Lister):
    """List the nodes: the owner, the host that the ring prefers, and why.

    State   free. used: it has a server. leaked: held for a server that nova
            has deleted. unknown server: held for a server that nova does not
            know. no server: active, and held for no server.
    Why     the reason of its owner, and the rule that it comes from
            (documentation, page "Who owns a node").
    Next    the compute service that is about to take it, or why none is.
    """

    _epilog = """\
examples:
  nova-ironic-multihost node list --host compute-1
  nova-ironic-multihost node list --state free --moving
        what changes its owner soon
  nova-ironic-multihost node list --long -f csv > nodes.csv

exit status: 0, or 2 if there is no such host or the cloud cannot be asked
"""

    def add_options(self, parser):
        """Add the options."""
        parser.add_argument(
            '--host', metavar='HOST',
            help='only the nodes that this compute service owns')
        parser.add_argument(
            '--state', choices=sorted(one.value for one in cloud_state.Usage),
            help='only the nodes of which this is true')
        parser.add_argument(
            '--moving', action='store_true',
            help='only the nodes that are about to change their owner')
        parser.add_argument(
            '--long', action='store_true',
            help='also server, provision state, partition, zone of the '
            'owner, and whether the provider is barred from scheduling')

    def take_action(self, parsed_args):
        """Return the table."""
        report = self.report()
        seen, host, state = report.seen, parsed_args.host, parsed_args.state
        if host is not None and host_key(host) not in seen.names:
            known = ', '.join(seen.names.values()) or 'none'
            raise base.Refused(
                f'nova has no compute service "{host}", and no record of one. '
                f'Name one of those that it has: {known}.')
        columns = COLUMNS + (MORE if parsed_args.long else ())
        # Nodes with names come first, by their names.
        nodes = sorted((
            node for node in seen.nodes
            if host is None
            or seen.owner_of.get(node.uuid) == host_key(host)),
            key=lambda node: (not node.name, node.name, node.uuid))
        return columns, [
            tuple(fields[column.lower().replace(' ', '_')]
                  for column in columns)
            for one in map(report.verdict, nodes)
            for fields in [_fields(report, one)]
            if state in (None, fields['state'])
            and (one.moves or not parsed_args.moving)]


class ShowNode(base.CloudCommand, show.ShowOne):
    """Show the owner of a node, since when and why, and what happens next.

    owner_since is known only if the owner built the server.
    A server stands for its node. The rules are those of the documentation,
    page "Who owns a node".
    """

    _epilog = """\
examples:
  nova-ironic-multihost node show rack7-u12
  nova-ironic-multihost node show 1c1f3a52-... -f json
  nova-ironic-multihost node show web-1
        the node of this server

exit status: 0, or 2 if there is no such node or server, or the cloud cannot
be asked
"""

    def add_options(self, parser):
        """Add the options."""
        parser.add_argument(
            'node', metavar='NODE|SERVER',
            help='uuid or name of the node, or of its server')

    def take_action(self, parsed_args):
        """Return (names, values)."""
        report = self.report()
        node_report = report.verdict(_named(report.seen, parsed_args.node))
        node = node_report.node
        built = (self.cloud.built(node.instance_uuid)
                 if node.instance_uuid else None)
        return zip(*_fields(report, node_report, built).items())


def _named(seen, name):
    """Return the node with a uuid or name, or of the server with it.

    :raises Refused: when there is none, or more than one server
    """
    held = {node.instance_uuid: node for node in seen.nodes}
    servers = [one for one in seen.instances
               if name and name in (one.uuid, one.name) and not one.deleted]
    found = [node for node in seen.nodes
             if name and name in (node.uuid, node.name)] or [
        node for server in servers
        if (node := held.get(server.uuid) or seen.node_of.get(server.node))]
    if found and (len(servers) < 2 or name in (found[0].uuid, found[0].name)):
        return found[0]
    if len(servers) > 1:
        uuids = ', '.join(sorted(one.uuid for one in servers))
        raise base.Refused(
            f'{len(servers)} servers have the name "{name}". Name one by its '
            f'uuid: {uuids}.')
    raise base.Refused(
        f'There is no node "{name}" that Ironic shows this account, and no '
        'bare metal server of this name that has a node. Look at the '
        'spelling; an account of system scope (--os-baremetal-cloud NAME) '
        'sees all nodes.')


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


def _fields(report, node_report, built=None):
    """Return {name: value} of a node."""
    node, seen = node_report.node, report.seen
    owner = seen.names.get(node_report.owner, '')
    instance = seen.instance_of.get(node.instance_uuid or '')
    came, since = _came(node_report, built)
    part = report.partition_of_node(node)
    provider = seen.provider_of.get(node.uuid)
    return {
        'uuid': node.uuid,
        'name': node.name,
        'owner': owner,
        'owner_since': base.moment(since),
        'came_by': came,
        'preferred': node_report.preferred or '',
        'state': seen.usage(node).value,
        'why': node_report.because or (
            f'{owner} has its record and is not up' if owner
            else 'no compute service has a record of it'),
        'next': node_report.ahead,
        'server': node.instance_uuid or '',
        'server_host': instance.host or '' if instance else '',
        'server_task': seen.task(instance) if instance else '',
        'provision_state': node.provision_state,
        'provision_state_since': base.moment(node.since),
        'maintenance': node.maintenance,
        'partition': part.label if part is not None else '',
        'zone': seen.zones.get(node_report.owner, ''),
        'barred': (None if provider is None
                   else cloud_state.DISABLED_TRAIT in provider.traits)}


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

    _epilog = """\
examples:
  nova-ironic-multihost leaks
  nova-ironic-multihost leaks -f value -c Node -c Next

exit status: 0, or 2 if the cloud cannot be asked
"""

    def take_action(self, parsed_args):
        """Return the table."""
        found = leaks(self.report())
        if not found:
            self.tell('none: each machine has a server')
        return LEAK_COLUMNS, found


#: When nova's periodic task next removes deleted servers from a host.
REAPER = ('within 1800 s, or what '
          '[DEFAULT]running_deleted_instance_poll_interval says')

#: Provision states in which Ironic refuses to undeploy a node.
_NOT_UNDEPLOYED = frozenset({
    'enroll', 'manageable', 'available', 'clean failed', 'inspect failed',
    'adopt failed'})


def leaks(report: ownership_report.OwnershipReport
          ) -> list[abc.Sequence[typing.Any]]:
    """Return the rows of the machines without a server."""
    seen = report.seen
    return [
        (one.node.uuid, one.node.name, one.node.provision_state, kind.value,
         one.node.instance_uuid or '', one.owner or '',
         *(_deleted(one) if kind is cloud_state.Usage.LEAKED
           else ('', _foreign(one.node, kind))))
        for one in map(report.verdict, (
            node for node in seen.nodes if seen.usage(node).stray))
        for kind in [seen.usage(one.node)]]


def _deleted(node_report: ownership_report.NodeReport) -> tuple[str, str]:
    """Return (host that frees it, sentence) if nova deleted the server."""
    if node_report.why is not None and node_report.why.mine:
        return str(node_report.owner), (
            f'{node_report.owner} tears it down {REAPER}')
    return node_report.decider or '', node_report.ahead


def _foreign(node: cloud_state.Node, kind: cloud_state.Usage) -> str:
    """Return what happens to a machine that nova does not know."""
    cause = ('nova has no record of its server, deleted and purged or never '
             'there' if kind is cloud_state.Usage.UNKNOWN else
             'Ironic has it active for no server')
    command = ('openstack baremetal node unset --instance-uuid'
               if node.provision_state in _NOT_UNDEPLOYED
               else 'openstack baremetal node undeploy')
    return (f'nobody touches it: {cause}. If nobody uses it without nova, '
            f'"{command} {node.uuid}" frees it')
