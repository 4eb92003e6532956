# SPDX-License-Identifier: Apache-2.0

"""list: list the compute services, and how many nodes each owns."""

import dataclasses
import datetime
import os
import time

from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client.commands import columns
from nova_ironic_multihost.client.commands import shared_arguments
from nova_ironic_multihost.client import compute_table
from nova_ironic_multihost.client import polling

COLUMNS = 'Host', 'State', 'Status', 'Nodes', 'Free', 'Used', 'Balance'
MORE = ('Leaked', 'Share', 'Taking over', 'Mapped', 'Partition', 'Zone',
        'Last heartbeat')

#: Moves the cursor of a terminal to the top left, and clears all.
_CLEAR = '\x1b[H\x1b[2J'


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

    Leaked     nodes held for no server of nova. Share: of all nodes.
    Taking over
               servers that it takes over from a dead host now.
    Mapped     whether its host is mapped to a cell; nova shows that only of
               a host that owns a node.
    Partition  the partition of the nodes that it owns.
    Last heartbeat
               or the last change by an operator.
    """

    EPILOG = """\
examples:
  nova-ironic-multihost list
  nova-ironic-multihost list --watch 5
        until Ctrl-C, as while one is drained
  nova-ironic-multihost list -f json | jq '.[] | select(.State != "up")'
  nova-ironic-multihost list -f value -c Host -c Free
  nova-ironic-multihost list --nova
        while Ironic, placement or the database of a cell does not answer

exit status: 0, or 2 if the cloud cannot be asked; if nova alone can, its
columns are shown, and the missing service is named
"""

    _status = arguments.CONSISTENT

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--watch', nargs='?', type=arguments.seconds, const=10,
            metavar='SECONDS',
            help='show it anew, each time so many seconds later, until '
            'Ctrl-C (default: 10)')
        parser.add_argument(
            '--long', action='store_true', help='show all columns')
        parser.add_argument(
            '--nova', action='store_true',
            help="ask nothing but nova's list of compute services: Host, "
            'State and Status, of virtual machines too; "unknown" is the '
            'state of one whose cell nova does not reach')
        shared_arguments.add(parser)
        return parser

    def take_action(self, parsed_args):
        """Return the table."""
        if parsed_args.nova:
            return self._of_nova()
        self._status = arguments.CONSISTENT
        try:
            report = shared_arguments.judged(
                self, parsed_args, heartbeats=True)
        except cloud_state.CloudError as error:
            shown = self._of_nova()
            self.tell(f'Only the columns of nova, virtual machines included: '
                      f'{error}')
            self._status = arguments.UNKNOWN
            return shown
        shown = len(COLUMNS + (MORE if parsed_args.long else ()))
        return (COLUMNS + MORE)[:shown], [
            self._cells(row)[:shown] for row in compute_table.rows(report)]

    def _of_nova(self):
        """Return the columns that nova knows, of all compute services."""
        return COLUMNS[:3], [
            (service.host, self._state(compute_table.state(service)),
             self._state(compute_table.status(service)))
            for service in sorted(self.survey().computes(),
                                  key=lambda service: service.key)]

    def _cells(self, row):
        return tuple((dataclasses.asdict(row) | {
            'state': self._state(row.state),
            'status': self._state(row.status),
            'balance': columns.Number(row.balance),
            'share': columns.Percent(row.share),
            'mapped': columns.YesNo(row.mapped),
            'seen': columns.Moment(row.seen)}).values())

    def _state(self, word):
        """Return a state or status, with colour on a terminal."""
        plain = os.environ.get('NO_COLOR') or not self.app.stdout.isatty()
        return word if plain else columns.Coloured(word)

    def run(self, parsed_args):
        """Show the table once, or again and again."""
        if parsed_args.watch is None:
            return super().run(parsed_args) or self._status
        looked = False
        try:
            while True:
                status = self._show(parsed_args)
                if status and not looked:
                    return status
                looked = True
                time.sleep(max(polling.PAUSE, parsed_args.watch))
        except KeyboardInterrupt:
            return 0

    def _show(self, parsed_args):
        if self.app.stdout.isatty():
            self.app.stdout.write(_CLEAR)
        now = datetime.datetime.now(datetime.UTC)
        self.app.stdout.write(f'{now:%Y-%m-%d %H:%M:%S} UTC\n')
        # An error is printed. The next round follows, unless this is the
        # first one: then a setting may be wrong.
        status = super().run(parsed_args) or self._status
        self.app.stdout.flush()
        return status
