# SPDX-License-Identifier: Apache-2.0

"""plan: show which nodes move when compute services come or go."""

from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import forecast

COLUMNS = 'From', 'To', 'Free nodes', 'Held nodes'

# Of a bar of the chart.
_HEIGHT = 0.36


class Plan(base.CloudCommand, lister.Lister):
    """Show which nodes would change their owner, before you change anything.

    Free nodes move by themselves when a compute service comes, is disabled,
    or is gone. Held nodes have a server, or a leaked machine. Those of a
    removed compute service move when it is stopped and forced down. If To is
    empty, no compute service may take them: they stay without a manager.
    """

    EPILOG = """\
examples:
  nova-ironic-multihost plan --add compute-4
  nova-ironic-multihost plan --remove compute-1 --remove compute-2
  nova-ironic-multihost plan --add compute-4 --zone rack-b -f json
  nova-ironic-multihost plan --add compute-4 --nodes 5000 --plot plan.png
        with 5000 free nodes instead of those that Ironic has

exit status: 0, or 2 if such a change makes no sense or the cloud cannot be
asked
"""

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--add', action='append', default=[], metavar='HOST',
            help='a compute service that comes, or is enabled again; may be '
            'given several times')
        parser.add_argument(
            '--remove', action='append', default=[], metavar='HOST',
            help='a compute service that goes for good; may be given several '
            'times')
        parser.add_argument(
            '--nodes', type=_positive, metavar='NUMBER',
            help='reckon with so many free nodes instead of those that '
            'Ironic has')
        parser.add_argument(
            '--zone', metavar='ZONE',
            help='availability zone of those that come (default: as the '
            'host aggregates have it)')
        parser.add_argument(
            '--partition', metavar='PARTITION',
            help='with whom those that come share nodes, and whose nodes '
            '--nodes reckons with, as "list" calls it; needed where there '
            'are several')
        parser.add_argument(
            '--plot', metavar='FILE',
            help='also draw the free nodes of each before and after; the '
            'name ends with the format: .png, .svg, .pdf. Needs matplotlib')
        base.add_shared(parser)
        return parser

    def take_action(self, parsed_args):
        """Return the table; print the sums to standard error."""
        figure = _figure() if parsed_args.plot else None
        change = forecast.Change(
            tuple(parsed_args.add), tuple(parsed_args.remove),
            parsed_args.zone, parsed_args.partition)
        try:
            planned = forecast.plan(
                self.report(parsed_args),
                change,
                parsed_args.nodes,
            )
        except forecast.PlanError as error:
            raise base.Refused(error) from error
        if figure is not None:
            _draw(figure, planned, parsed_args.plot)
        self._sums(planned)
        return COLUMNS, [(move.source, move.target, move.free, move.held)
                         for move in planned.moves]

    def _sums(self, planned):
        moved = sum(move.free + move.held for move in planned.moves)
        self.tell(
            f'{moved} of {arguments.counted(planned.nodes, "node")} would '
            f'move ({planned.anyway or "none"} of them anyway)')
        left = sum(move.free + move.held for move in planned.moves
                   if not move.target)
        if left:
            self.tell(
                f'nobody would take {arguments.counted(left, "node")}: no '
                'other compute service of the same availability zone that '
                'serves their conductor group and shard is enabled and up. '
                'Enable or start one first, or give them a group and shard in '
                'Ironic that one serves')
        for host in sorted(planned.before.keys() | planned.after.keys()):
            self.tell(f'free nodes of {host}: {planned.before.get(host, 0)} '
                      f'before, {planned.after.get(host, 0)} after')


def _positive(text):
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _draw(figure, planned, path):
    try:
        _chart(figure, planned, path)
    except (OSError, ValueError) as error:
        raise base.Refused(
            f'{path} cannot be drawn: {error}. Name a file that can be '
            'written and ends with .png, .svg or .pdf.') from error


def _figure():
    """Return the module of matplotlib that draws.

    :raises Refused: without matplotlib
    """
    try:
        from matplotlib import figure
    except ImportError as error:
        raise base.Refused(
            '--plot needs matplotlib, which is not installed here. "pip '
            'install matplotlib" installs it; without --plot the plan is '
            'told all the same.') from error
    return figure


def _chart(figure, planned, path):
    """Draw the free nodes of each compute service before and after.

    :param figure: the module of matplotlib
    :param planned: a :class:`.forecast.Forecast`
    :param path: of the file; its suffix is the format
    :raises ValueError: if matplotlib does not know the format
    """
    hosts = sorted(planned.before.keys() | planned.after.keys())
    rows = range(len(hosts))
    picture = figure.Figure(
        figsize=(8, 1.2 + 0.5 * len(hosts)), layout='constrained')
    axes = picture.subplots()
    for name, counts, offset in (
            ('before', planned.before, -_HEIGHT / 2),
            ('after', planned.after, _HEIGHT / 2)):
        bars = axes.barh([row + offset for row in rows],
                         [counts.get(host, 0) for host in hosts],
                         _HEIGHT, label=name)
        axes.bar_label(bars, padding=3)
    axes.set_yticks(list(rows), hosts)
    axes.invert_yaxis()
    axes.set_xlabel('free nodes')
    axes.margins(x=0.1)
    axes.legend()
    picture.savefig(path)
