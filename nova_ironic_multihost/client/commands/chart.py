# SPDX-License-Identifier: Apache-2.0

"""Draw the chart of a plan; the import needs matplotlib."""

from matplotlib import figure

_HEIGHT = 0.36


def draw(planned, path):
    """Draw the free nodes of each compute service before and after.

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
