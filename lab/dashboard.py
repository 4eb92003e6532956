# SPDX-License-Identifier: Apache-2.0

"""A picture of the dashboard for operators, as the lab's Prometheus fills it.

Grafana comes from no package registry. This draws each panel at its place and
with its own queries; colours and fonts differ.
"""

import datetime
import itertools
import json
import math
import re
import time

#: Of the grid that panels are placed on, and inches of one of its cells.
WIDTH, CELL = 24, (0.55, 0.36)

#: Of those who cannot tell all colours from each other, too.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9',
           '#F0E442', '#000000')

#: Series of a panel that have a place in its legend.
NAMED = 8


def panels(dashboard):
    """Yield (panel, its (x, y, width, height)), rows too.

    :param dashboard: the JSON of the dashboard, as a dict
    """
    for panel in dashboard['panels']:
        yield panel, tuple(panel['gridPos'][side] for side in 'xywh')


def expression(target, seconds):
    """The query of a panel's target, without Grafana's variables.

    :param seconds: what rates are made of
    """
    return re.sub(r'\[[^]]*\]', f'[{seconds}s]',
                  target['expr'].replace('$instance', '.*'))


def legend(target, labels):
    """The name of a series, as Grafana makes it of its labels."""
    return re.sub(r'{{(\w+)}}', lambda found: labels.get(found[1], ''),
                  target.get('legendFormat') or '').strip()


def series(ask, panel, since, step):
    """Return [(name, [time], [value])] of a panel, times as datetime.

    :param ask: (path, parameters) -> the ``data`` of Prometheus's answer
    :param since: seconds since 1970
    :param step: seconds from one value to the next
    """
    found = []
    for target in panel['targets']:
        answer = ask('query_range', {
            'query': expression(target, 12 * step), 'start': since,
            'end': time.time(), 'step': step})
        for one in answer['result']:
            times, values = zip(*one['values'], strict=True)
            found.append((
                legend(target, one['metric']),
                [datetime.datetime.fromtimestamp(each) for each in times],
                [float(each) for each in values]))
    return found


def with_gaps(times, values):
    """Return both, with NaN in each gap, so that no line crosses it."""
    step = min((after - before for before, after
                in itertools.pairwise(times)), default=None)
    drawn = [(times[0], values[0])]
    for time_, value in zip(times[1:], values[1:], strict=True):
        if time_ - drawn[-1][0] > 1.5 * step:
            drawn.append((time_, math.nan))
        drawn.append((time_, value))
    return zip(*drawn, strict=True)


def draw(path, dashboard, ask, since, step):
    """Write the picture as PNG; the parameters are those of the others."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot

    placed = list(panels(dashboard))
    height = max(y + h for _, (_, y, _, h) in placed)
    figure = pyplot.figure(figsize=(WIDTH * CELL[0], height * CELL[1]))
    for panel, (x, y, width, tall) in placed:
        if panel['type'] == 'row':
            figure.text((x + 1) / WIDTH, 1 - (y + 0.7) / height,
                        panel['title'], fontsize=12, weight='bold')
            continue
        # Room for the title above, for numbers left and below, and for the
        # legend under them.
        below = 2.2 if panel['type'] == 'timeseries' else 1.2
        axis = figure.add_axes((
            (x + 1) / WIDTH, 1 - (y + tall - below) / height,
            (width - 1.5) / WIDTH, (tall - 1.2 - below) / height))
        axis.set_title(panel['title'], fontsize=10, loc='left')
        _KINDS[panel['type']](
            axis, panel, series(ask, panel, since, step))
        if panel['type'] != 'stat':
            axis.set_xlim(datetime.datetime.fromtimestamp(since),
                          datetime.datetime.now())
            axis.tick_params(labelsize=7)
            axis.xaxis.set_major_formatter(
                matplotlib.dates.DateFormatter('%H:%M'))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _number(axis, panel, found):
    axis.set_axis_off()
    axis.text(0.5, 0.4, '  '.join(
        f'{values[-1]:g} {name}'.strip() for name, _, values in (
            (name, times, [round(each, 1) for each in values])
            for name, times, values in found)) or 'no data',
        ha='center', va='center', fontsize=18)


def _states(axis, panel, found):
    mappings = panel['fieldConfig']['defaults']['mappings']
    good = next(
        float(value) for mapping in mappings
        for value, shown in mapping['options'].items()
        if shown['color'] == 'green')
    for line, (_, times, values) in enumerate(found):
        for begin, end, value in zip(times, times[1:], values, strict=False):
            axis.barh(line, end - begin, left=begin, height=0.7,
                      color=COLOURS[2 if value == good else 1])
    axis.set_yticks(range(len(found)), [name for name, _, _ in found])
    axis.invert_yaxis()


def _lines(axis, panel, found):
    for number, (name, times, values) in enumerate(found):
        times, values = with_gaps(times, values)
        axis.plot(times, values, color=COLOURS[number % len(COLOURS)],
                  label=name if number < NAMED else None, linewidth=1.2)
    axis.set_ylim(bottom=0)
    axis.grid(True, color='#dddddd')
    if any(name for name, _, _ in found):
        axis.legend(frameon=False, fontsize=7, ncols=4, loc='upper left',
                    bbox_to_anchor=(0, -0.12))


_KINDS = {'stat': _number, 'state-timeline': _states, 'timeseries': _lines}


def read(repository):
    """Return the dashboard for operators, as a dict."""
    return json.loads((repository / 'etc' / 'grafana'
                       / 'nova-ironic-multihost.json').read_text())
