# SPDX-License-Identifier: Apache-2.0

"""The table: who is up, who owns how many nodes, who prefers how many."""

import collections
import dataclasses
import json
import sys
import time

from lab import configuration
from lab import preference
from lab import reasons
from lab import view
from nova_ironic_multihost.client import findings as consistency

SHOWN = 4    # findings below the table


@dataclasses.dataclass(frozen=True)
class Row:
    """One nova-compute.

    :ivar state: up, down or fenced, and whether disabled, as nova has it
    :ivar process: running, paused or stopped, as this machine has it
    :ivar free: nodes it owns without a server
    :ivar used: nodes it owns with a server
    :ivar share: percent of all nodes that the ring would give it, or None
    :ivar since: epoch seconds since when its process runs or, when it is
        down, of its last sign of life; None when unknown
    """

    host: str
    state: str
    process: str
    free: int
    used: int
    share: float | None = None
    since: float | None = None


def state_of(service):
    """nova's opinion of a service in a word or two."""
    words = [('fenced' if service.forced_down
              else 'up' if service.up else 'down')]
    if service.stop_marker:
        words.append('stopping')
    elif service.disabled:
        words.append('disabled')
    if not service.mapped:
        words.append('not mapped')
    return ', '.join(words)


def rows(seen, processes, started, shares):
    """The rows of the table.

    :param seen: an Observation
    :param processes: {name: running, paused or stopped} of every compute
    :param started: {name: epoch seconds} of those that run
    :param shares: {host in lower case: percent}; hosts without one get None
    :returns: a list of :class:`Row`, also for owners that are no service
    """
    names = {name.lower(): name for name in processes}
    names.update((s.key, s.host) for s in seen.services)
    for record in seen.records:
        names.setdefault(record.owner, record.host)
    found = []
    for key in sorted(names, key=lambda name: (len(name), name)):
        name = names[key]
        service = seen.service_of.get(key)
        owned = seen.owned_by(key)
        used = sum(1 for node in owned if node in seen.used_nodes)
        alive = service is not None and service.up
        since = started.get(name) if alive or service is None else (
            service.seen or None)
        found.append(Row(
            name, state_of(service) if service else 'unknown to nova',
            processes.get(name, 'not ours'), len(owned) - used, used,
            shares.get(key), since))
    return found


def ring_shares(seen, driver, partitions):
    """Percent of all nodes that each member of the ring prefers.

    :param driver: 'ours' or 'stock'; there is nothing to tell for stock
    :param partitions: points per member on the ring
    :returns: {host in lower case: percent}
    """
    if driver != 'ours':
        return {}
    members = reasons.members(seen)
    if not members or not seen.nodes:
        return {}
    prefer = preference.Preference(partitions)
    counts = collections.Counter(
        prefer(members, node.uuid) for node in seen.nodes)
    return {host: 100.0 * counts[host] / len(seen.nodes)
            for host in members}


def explain(seen, driver, options=()):
    """The nodes that are not simply kept where they are, and why.

    :param driver: 'ours' or 'stock'; there is nothing to tell for stock
    :param options: 'SECTION.OPTION=VALUE' strings that nova was given
    :returns: a list of :class:`lab.reasons.Explained`
    """
    if driver != 'ours':
        return []
    ours = configuration.overrides(options).get('ironic_multihost', {})
    return reasons.explain(
        seen, preference.partitions(driver, options),
        ours.get('move_across_zones', '').lower() == 'true',
        ours.get('instance_takeover', 'forced_down'))


def duration(seconds):
    """Seconds in words that fit into a table: 42 s, 3 min, 2.5 h."""
    if seconds < 120:
        return f'{max(0, seconds):.0f} s'
    if seconds < 7200:
        return f'{seconds / 60:.0f} min'
    return f'{seconds / 3600:.1f} h'


class Board:
    """Puts rows together from the lab that is up.

    :param settings: :class:`lab.settings.Settings`
    :param driver: 'ours' or 'stock'
    :param options: 'SECTION.OPTION=VALUE' strings that nova was given
    """

    def __init__(self, settings, driver, options=()):
        from lab import computes

        self._settings = settings
        self._driver = driver
        self._partitions = preference.partitions(driver, options)
        self._options = options
        self._computes = computes.Computes(settings)

    def rows(self, seen):
        """The rows for an Observation."""
        states = {name: self._computes.process_state(name)
                  for name in self._computes.names()}
        started = {name: at for name in states
                   if (at := self._started(name))}
        return rows(seen, states, started,
                    ring_shares(seen, self._driver, self._partitions))

    def explain(self, seen):
        """The nodes that are not simply kept; see :func:`explain`."""
        return explain(seen, self._driver, self._options)

    def _started(self, name):
        # A process signs its pid file when it starts.
        try:
            return (self._settings.run / f'{name}.pid').stat().st_mtime
        except OSError:
            return None


def table(found_rows, now):
    """The rows as a rich Table."""
    from rich import table as tables
    from rich import text

    grid = tables.Table()
    grid.add_column('compute', style='bold')
    grid.add_column('state')
    grid.add_column('process')
    for title in ('free', 'used', 'ring share', 'since'):
        grid.add_column(title, justify='right')
    for row in found_rows:
        colour = 'green' if row.state == 'up' else (
            'yellow' if row.state.startswith('up') else 'red')
        grid.add_row(
            row.host, text.Text(row.state, style=colour), row.process,
            str(row.free), str(row.used),
            '-' if row.share is None else f'{row.share:.0f} %',
            '-' if row.since is None else duration(now - row.since))
    return grid


def screen(found_rows, findings, now, notes=()):
    """The table with what moves and what is inconsistent below it, for rich.

    :param notes: lines about nodes that are not simply kept
    """
    from rich import console
    from rich import text

    lines = [text.Text(f'  {note}', style='yellow') for note in notes]
    lines += [text.Text(f'  {line}', style='red')
              for line in summary(findings)] or [
        text.Text('  consistent', style='green')]
    return console.Group(table(found_rows, now), *lines)


def summary(findings):
    """The findings in few lines: a table must stay on its screen."""
    lines = [finding.sentence for finding in findings[:SHOWN]]
    if len(findings) > SHOWN:
        lines.append(f'and {len(findings) - SHOWN} more: tools/lab check')
    return lines


def register(subparsers):
    """Add ``lab status`` to the command line."""
    parser = subparsers.add_parser(
        'status', help='show the computes and what they own',
        description='Show for each nova-compute what nova says (up, down, '
        'disabled, fenced), what its process does, how many nodes it owns '
        'without and with a server, how many percent of all nodes the hash '
        'ring prefers it for, and since when it runs or is silent. Below '
        'it: nodes that are not simply kept where they are, and why; and '
        'everything that is inconsistent (see: tools/lab check --help).',
        epilog='Exit status: 0 when the lab is up. Example: tools/lab '
        'status --watch in one terminal, tools/lab compute kill compute-1 '
        'in another.')
    how = parser.add_mutually_exclusive_group()
    how.add_argument('--json', action='store_true',
                     help='print {"computes": [...], "explained": [...], '
                     '"findings": [...]}')
    how.add_argument('--nodes', action='store_true',
                     help='print one line for each node that is not simply '
                     'kept where it is: uuid and why')
    how.add_argument('--watch', action='store_true',
                     help='show it anew every second until Ctrl-C')
    parser.set_defaults(func=run)


def run(args, settings):
    """Carry out ``lab status``; returns the exit status."""
    from lab import progress
    from lab import stack

    shape = stack.Stack(settings, progress.Progress()).shape()
    if shape is None:
        print('The lab is not up. Start it with: tools/lab up',
              file=sys.stderr)
        return 1
    board = Board(settings, shape['driver'], shape['options'])
    if args.watch:
        return _watch(settings, board)
    seen = view.read(settings)
    findings = consistency.inconsistencies(seen, time.time())
    found = board.rows(seen)
    explained = board.explain(seen)
    if args.nodes:
        for one in explained:
            print(f'{one.node} {one.sentence}')
    elif args.json:
        print(json.dumps({
            'driver': shape['driver'], 'nodes': len(seen.nodes),
            'computes': [dataclasses.asdict(row) for row in found],
            'explained': [dataclasses.asdict(one) for one in explained],
            'findings': [dataclasses.asdict(f) for f in findings]}))
    else:
        from rich import console

        console.Console().print(screen(
            found, findings, seen.at, reasons.summary(explained)))
    return 0


def _watch(settings, board):
    from rich import live

    with live.Live(auto_refresh=False) as terminal:
        try:
            while True:
                seen = view.read(settings)
                terminal.update(screen(
                    board.rows(seen),
                    consistency.inconsistencies(seen, time.time()), seen.at,
                    reasons.summary(board.explain(seen))), refresh=True)
                time.sleep(1)
        except KeyboardInterrupt:
            return 0
