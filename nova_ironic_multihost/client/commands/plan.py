# SPDX-License-Identifier: Apache-2.0

"""plan: show which nodes move when compute services come or go."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import uuid

from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring

COLUMNS = 'From', 'To', 'Free nodes', 'Held nodes'

#: Namespace of the uuids of imagined nodes.
_IMAGINED = uuid.UUID('6f1f1f0e-1d0c-5a53-9d0e-2f6a0b7c8d9e')

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
        planned = plan(self.report(parsed_args), parsed_args.add,
                       parsed_args.remove, parsed_args.zone,
                       parsed_args.partition, parsed_args.nodes)
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
    :param planned: a :class:`Forecast`
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


@dataclasses.dataclass(frozen=True)
class Move:
    """A number of nodes that move from one compute service to another.

    :param source: '' for nodes without an owner.
    :param target: '' if no host may take them; they stay.
    :param free: free nodes; these move by themselves.
    :param held: nodes with a server or a leaked machine; these move when the
        source is forced down.
    """

    source: str
    target: str
    free: int
    held: int


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The effects of a change.

    :param moves: by source and target.
    :param nodes: number of nodes considered.
    :param anyway: number of the moving nodes that would also move without
        the change, maybe to another host.
    :param before: member of the ring -> its free nodes without the change,
        after all moves.
    :param after: member of the ring -> its free nodes with the change.
    """

    moves: tuple[Move, ...]
    nodes: int
    anyway: int
    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class _Place:
    """The host of a node, and its use.

    :param owner: host of its server; without a server, of its record.
    :param held: Ironic holds it for a server, known to nova or not.
    :param used: nova has that server.
    """

    uuid: str
    owner: HostKey | None
    held: bool = False
    used: bool = False


@dataclasses.dataclass(frozen=True)
class _Share:
    """The hosts that share the nodes of a partition.

    :param up: these keep their leaked machines.
    :param serving: these keep their servers: in nova, and not forced down.
    """

    preferences: ring.Preferences
    zones: Mapping[HostKey, str]
    up: Set[HostKey]
    serving: Set[HostKey]

    def owner(self, place: _Place) -> HostKey | None:
        """Return the owner of a node after all moves, None for none."""
        owner = place.owner
        if place.held and owner in (self.serving if place.used else self.up):
            return owner
        zone = self._zone(owner)
        found = (self.preferences.takeover_target(place.uuid, zone)
                 if place.used else
                 self.preferences.host_for(place.uuid, zone))
        # No host may take it: it stays with its owner, if that one lives.
        if found is None and owner in self.serving:
            return owner
        if found is None or place.held:
            return found
        # When a zone has no member left, a host without zone takes its free
        # nodes; from there they move on to the member that the ring prefers.
        return self.preferences.host_for(place.uuid, self._zone(found))

    def _zone(self, host: HostKey | None) -> str | None:
        return self.zones.get(host) if host is not None else None


def plan(report: ownership_report.OwnershipReport, add: Sequence[str] = (),
         remove: Sequence[str] = (), zone: str | None = None,
         partition: str | None = None, imagined: int | None = None
         ) -> Forecast:
    """Return which nodes would move.

    It uses the driver's hash ring. A free node moves to the member that the
    ring prefers; a server of a host that is forced down moves to the takeover
    target.

    :param report: the present state.
    :param remove: hosts that are removed for good.
    :param zone: availability zone of the added hosts; None for that of the
        host aggregates.
    :param partition: label of their partition; None if there is only one.
    :param imagined: number of free nodes to use instead of Ironic's nodes.
    :raises Refused: when the change does not fit the cloud
    """
    _refuse(report, add, remove)
    added, removed = (frozenset(map(host_key, hosts))
                      for hosts in (add, remove))
    # The nodes of removed hosts do not define a partition.
    report = ownership_report.OwnershipReport(
        report.seen, report.settings, gone=removed)
    changed = _partition_of(
        report, partition, needed=bool(add) or imagined is not None)
    zones = dict(report.zones)
    if zone:
        zones.update(dict.fromkeys(added, zone))
    hosts = report.seen.up_hosts, frozenset(
        host for host, service in report.seen.service_of.items()
        if not service.forced_down)
    sums = _Sums()
    for part in report.partitions.found:
        old = report.preferences(part)
        members = old.members.keys() | (added if part is changed else ())
        before = _Share(old, zones, *hosts)
        after = _Share(
            ring.Preferences({host: zones.get(host)
                              for host in members - removed},
                             old.points, old.cross_zones),
            zones, *((those | added) - removed for those in hosts))
        if imagined is None:
            sums.add(_places(report, part), before, after)
        elif part is changed:
            sums.add(_imagined(imagined, old), before, after)
    return sums.forecast()


def _refuse(report: ownership_report.OwnershipReport, add: Sequence[str],
            remove: Sequence[str]) -> None:
    for host in remove:
        if host_key(host) not in report.seen.service_of and (
                report.partitions.of_host(host_key(host)) is None):
            raise base.Refused(
                f'nova has no compute service {host} that could be removed. '
                'Look at "nova-ironic-multihost list".')
    for host in add:
        if report.is_member(host_key(host)):
            raise base.Refused(
                f'{host} shares the nodes already. Name one that does not.')
    both = set(map(host_key, add)).intersection(map(host_key, remove))
    if both:
        raise base.Refused(f'{", ".join(sorted(both))} cannot be added and '
                           'removed at once. Name it once.')


def _partition_of(
    report: ownership_report.OwnershipReport, label: str | None, needed: bool
) -> ownership_report.NodeShare:
    """Return the partition of the added hosts and imagined nodes."""
    found = {part.label: part for part in report.partitions.found}
    labels = ', '.join(f'"{label}"' for label in sorted(found))
    if label is None:
        if len(found) == 1 or not needed:
            return next(iter(found.values()))
        raise base.Refused(f'The nodes are shared in {len(found)} partitions. '
                           f'Say --partition with one of {labels}.')
    if label not in found:
        raise base.Refused(f'There is no partition "{label}". '
                           f'Name one of {labels}.')
    return found[label]


def _places(
    report: ownership_report.OwnershipReport, part: ownership_report.NodeShare
) -> Iterable[_Place]:
    seen = report.seen
    for node in report.nodes(part):
        used = seen.usage(node) is cloud_state.Usage.USED
        owner = seen.owner_of.get(node.uuid)
        if used and node.instance_uuid is not None:
            owner = seen.instance_of[node.instance_uuid].key or owner
        yield _Place(node.uuid, owner, node.instance_uuid is not None, used)


def _imagined(number: int, preferences: ring.Preferences
              ) -> Iterable[_Place]:
    for index in range(number):
        name = str(uuid.uuid5(_IMAGINED, str(index)))
        yield _Place(name, preferences.host_for(name))


class _Sums:
    """Counts the moves of nodes."""

    def __init__(self) -> None:
        self._moves: dict[tuple[str, str], collections.Counter[bool]] = {}
        self._nodes = 0
        self._anyway = 0
        self._before: collections.Counter[HostKey] = collections.Counter()
        self._after: collections.Counter[HostKey] = collections.Counter()

    def add(self, places: Iterable[_Place], old: _Share, new: _Share) -> None:
        """Count nodes of one partition, without and with the change."""
        for counts, share in (self._before, old), (self._after, new):
            counts.update(dict.fromkeys(share.preferences.members, 0))
        for place in places:
            self._nodes += 1
            before, after = old.owner(place), new.owner(place)
            if not place.held:
                for counts, owner, share in (
                        (self._before, before, old),
                        (self._after, after, new)):
                    if owner in share.preferences.members:
                        counts[owner] += 1
            if after == place.owner:
                continue
            self._anyway += before != place.owner
            self._moves.setdefault(
                (place.owner or '', after or ''),
                collections.Counter())[place.held] += 1

    def forecast(self) -> Forecast:
        """Return the sums."""
        return Forecast(
            tuple(Move(*hosts, counts[False], counts[True])
                  for hosts, counts in sorted(self._moves.items())),
            self._nodes, self._anyway, dict(sorted(self._before.items())),
            dict(sorted(self._after.items())))
