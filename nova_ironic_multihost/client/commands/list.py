# SPDX-License-Identifier: Apache-2.0

"""list: list the compute services, and how many nodes each owns."""

import collections
import os
import typing

from cliff import columns
from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

COLUMNS = 'Host', 'State', 'Status', 'Nodes', 'Free', 'Used', 'Balance'
MORE = 'Leaked', 'Taking over', 'Partition', 'Zone', 'Last heartbeat'

_RED, _YELLOW = 31, 33
_COLOURS = {'down': _RED, 'gone': _RED, 'unknown': _RED,
            'fenced, alive': _RED, 'fenced': _YELLOW, 'disabled': _YELLOW,
            'ending': _YELLOW, 'ended': _YELLOW}


class ListComputes(base.CloudCommand, lister.Lister):
    """List the compute services, their states, and how many nodes each owns.

    State      up. down: nova misses its heartbeats. fenced: forced down.
               fenced, alive: forced down, and nova has its heartbeats.
               gone: it owns nodes, and nova has no such service.
    Status     enabled, disabled. ending: told to end, and still up. ended.
    Used       nodes with a server.
    Balance    its free nodes, 1.00 for the average of the members of its
               ring.

    With --long:

    Leaked     nodes held for no server of nova.
    Taking over
               servers that it takes over from a dead host now.
    Partition  the partition of the nodes that it owns.
    Last heartbeat
               or the last change by an operator.
    """

    _epilog = """\
examples:
  nova-ironic-multihost list
  watch nova-ironic-multihost list
        until Ctrl-C, as while one is drained
  nova-ironic-multihost list -f json | jq '.[] | select(.State != "up")'
  nova-ironic-multihost list -f value -c Host -c Free
  nova-ironic-multihost list --nova
        while Ironic, placement or the database of a cell does not answer

exit status: 0, or 2 if the cloud cannot be asked; if nova alone can, its
columns are shown, and the missing service is named
"""

    def add_options(self, parser):
        """Add the options."""
        parser.add_argument(
            '--long', action='store_true', help='show all columns')
        parser.add_argument(
            '--nova', action='store_true',
            help="ask nothing but nova's list of compute services: Host, "
            'State and Status, of virtual machines too; "unknown" is the '
            'state of one whose cell nova does not reach')

    def take_action(self, parsed_args):
        """Return the table."""
        if parsed_args.nova:
            return self._of_nova()
        try:
            report = self.report(heartbeats=True)
        except cloud_state.CloudError as error:
            shown = self._of_nova()
            self.tell(f'Only the columns of nova, virtual machines included: '
                      f'{error}')
            self.status = arguments.UNKNOWN
            return shown
        shown = COLUMNS + (MORE if parsed_args.long else ())
        return shown, [
            tuple(self._state(row[name]) if name in COLUMNS[1:3] else row[name]
                  for name in shown) for row in rows(report)]

    def _of_nova(self):
        """Return the columns that nova knows, of all compute services."""
        return COLUMNS[:3], [
            (service.host, self._state(service.state),
             self._state(service.status))
            for service in sorted(self.cloud.computes(),
                                  key=lambda service: service.key)]

    def _state(self, word):
        """Return a state or status, with colour on a terminal."""
        if os.environ.get('NO_COLOR') or not self.app.stdout.isatty():
            return word
        return Coloured(word)


class Coloured(columns.FormattableColumn):
    """A state or status: red is down, yellow is out of use."""

    def human_readable(self):
        """Return the text of a table."""
        colour = _COLOURS.get(self._value)
        return f'\x1b[{colour}m{self._value}\x1b[0m' if colour else self._value


def rows(report: ownership_report.OwnershipReport
         ) -> list[dict[str, typing.Any]]:
    """Return {column: value} of each compute service and other owner.

    The balance is None on no ring, or if no node is free.
    """
    seen = report.seen
    counts = collections.Counter(
        (seen.owner_of.get(node.uuid), seen.usage(node))
        for node in seen.nodes)
    average = _average_free(report)
    found = []
    for host, name in seen.names.items():
        service = seen.service_of.get(host)
        part = report.partition_of.get(host)
        free, used, leaked = (
            sum(counts[host, usage] for usage in usages) for usages in (
                [cloud_state.Usage.FREE], [cloud_state.Usage.USED],
                [usage for usage in cloud_state.Usage if usage.stray]))
        found.append({
            'Host': name, 'State': service.state if service else 'gone',
            'Status': service.status if service else '',
            'Nodes': free + used + leaked, 'Free': free, 'Used': used,
            'Balance': (round(free / average[host], 2)
                        if average.get(host) else None),
            'Leaked': leaked,
            'Taking over': sum(
                takeover.is_mark(one.task_state)
                and not takeover.is_anothers(one.task_state, host)
                for one in seen.instances if not one.deleted),
            'Partition': part.label if part is not None else '',
            'Zone': seen.zones.get(host, ''),
            'Last heartbeat': base.moment(service and service.seen)})
    return found


def _average_free(report: ownership_report.OwnershipReport
                  ) -> dict[HostKey, float]:
    """Return member -> average number of free nodes of its ring's members."""
    seen = report.seen
    free = collections.Counter(
        report.partition_of_node(node) for node in seen.nodes
        if seen.usage(node) is cloud_state.Usage.FREE)
    return {host: free[part] / len(members)
            for part in report.partitions
            for members in [report.preferences[part].members]
            for host in members}
