# SPDX-License-Identifier: Apache-2.0

"""node list, node show: who owns a node, and why."""

from cliff import lister
from cliff import show

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client.commands import columns
from nova_ironic_multihost.client.commands import shared_arguments
from nova_ironic_multihost.client import tasks
from nova_ironic_multihost.client import usage
from nova_ironic_multihost.rules.peers import host_key

COLUMNS = 'UUID', 'Name', 'Owner', 'Preferred', 'State', 'Why', 'Next'
MORE = 'Server', 'Provision state', 'Partition', 'Zone', 'Barred'

_STATES = {kind.value: kind for kind in usage.Usage}
_UNSEEN = 'not known from outside'


class ListNodes(base.CloudCommand, lister.Lister):
    """List the nodes: who owns each, whom the ring prefers, and why.

    State   free; used: it has a server; leaked: held for a server that nova
            has deleted; unknown server: for one that nova does not know; no
            server: active for nobody
    Why     the reason of its owner, and the rule that it comes from
            (documentation, page "Who owns a node"); empty if its owner is
            not up
    Next    who is about to take it, or why nobody is
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
        shared_arguments.add(parser)
        return parser

    def take_action(self, parsed_args):
        """Return the table."""
        judged = shared_arguments.judged(self, parsed_args)
        _expect_known(judged.seen, parsed_args.host)
        verdicts = judged.verdicts(
            node for node in judged.seen.nodes
            if _chosen(judged, node, parsed_args))
        return COLUMNS + (MORE if parsed_args.long else ()), [
            _short(judged, verdict) + (
                _more(judged, verdict) if parsed_args.long else ())
            for verdict in verdicts
            if verdict.moves or not parsed_args.moving]


def _expect_known(seen, host):
    if host is not None and host_key(host) not in seen.names:
        known = ', '.join(seen.names.values()) or 'none'
        raise base.Refused(
            f'nova has no compute service "{host}", and no record of one. '
            f'Name one of those that it has: {known}.')


def _chosen(judged, node, args):
    return (
        (args.host is None
         or judged.seen.owner_of.get(node.uuid) == host_key(args.host))
        and (args.state is None
             or usage.of(node, judged.seen) is _STATES[args.state]))


def _short(judged, verdict):
    node = verdict.node
    return (node.uuid, node.name, verdict.owner or '',
            verdict.preferred or '', usage.of(node, judged.seen).value,
            verdict.because, verdict.ahead)


def _more(judged, verdict):
    node = verdict.node
    part = judged.partitions.of_node(node)
    return (node.instance_uuid or '', node.provision_state,
            part.label if part is not None else '',
            judged.zones.get(verdict.owner, ''),
            columns.YesNo(_barred(judged, node)))


def _barred(judged, node):
    """Whether the scheduler passes a node over, None without a provider."""
    provider = judged.seen.provider_of.get(node.uuid)
    if provider is None:
        return None
    return cloud_state.DISABLED_TRAIT in provider.traits


class ShowNode(base.CloudCommand, show.ShowOne):
    """Show who owns a node, since when, why, and what happens to it next.

    The rules are those of the documentation, page "Who owns a node".
    """

    EPILOG = """\
examples:
  nova-ironic-multihost node show rack7-u12
  nova-ironic-multihost node show 1c1f3a52-... -f json

exit status: 0, or 2 if there is no such node or the cloud cannot be asked
"""

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'node', metavar='NODE', help='uuid or name of the node')
        shared_arguments.add(parser)
        return parser

    def take_action(self, parsed_args):
        """Return what there is to show: names, values."""
        judged = shared_arguments.judged(self, parsed_args)
        verdict = judged.verdict(_named(judged.seen, parsed_args.node))
        return tuple(zip(*_lines(judged, verdict)))


def _named(seen, name):
    found = [node for node in seen.nodes
             if name and name in (node.uuid, node.name)]
    if len(found) == 1:
        return found[0]
    raise base.Refused(
        f'Ironic shows this account no node "{name}". Look at the spelling; '
        'an account of system scope (--os-baremetal-cloud NAME) sees all.')


def _lines(judged, verdict):
    node = verdict.node
    seen = judged.seen
    record = next((one for one in seen.records if one.node == node.uuid),
                  None)
    instance = seen.instance_of.get(node.instance_uuid or '')
    since = record.updated if record is not None else None
    part = judged.partitions.of_node(node)
    yield 'uuid', node.uuid
    yield 'name', node.name
    yield 'owner', record.host if record is not None else ''
    yield 'owner_since', columns.Moment(since)
    yield 'preferred', verdict.preferred or ''
    yield 'state', usage.of(node, seen).value
    yield 'why', verdict.because or _ownerless(verdict)
    yield 'next', verdict.ahead
    yield 'rule', verdict.rules
    yield 'depends_on', (f'{_UNSEEN}: {verdict.unseen}'
                         if verdict.unseen else '')
    yield 'server', node.instance_uuid or ''
    yield 'server_host', (instance.host or '') if instance else ''
    yield 'server_task', (
        tasks.words(judged.seen, instance) if instance else '')
    yield 'provision_state', node.provision_state
    yield 'provision_state_since', columns.Moment(node.since)
    yield 'maintenance', columns.YesNo(node.maintenance)
    yield 'partition', part.label if part is not None else ''
    yield 'zone', judged.zones.get(verdict.owner, '')
    yield 'barred', columns.YesNo(_barred(judged, node))


def _ownerless(verdict):
    if verdict.owner is None:
        return 'no compute service has a record of it'
    return f'{verdict.owner} has its record and is not up'
