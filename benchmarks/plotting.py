# SPDX-License-Identifier: Apache-2.0

"""A picture of several runs: what something costs over the number of nodes."""

import json
import pathlib

from lab import errors

#: Command -> {title: path to the figure in what that measures}.
PARTS = {
    'listing': {
        'an audit, nothing has changed: wall clock, s': ('steady', 'wall'),
        'the same: CPU of the compute service, s': ('steady', 'cpu'),
        'in a minute: CPU of Ironic, s': ('minute', 'ironic'),
        'the first audit: memory at its peak, MB': ('first', 'peak')},
    'start': {'start, until a build is accepted, s': ('accepted',)},
    'audit': {"audit with nova's tracker, nothing changed, s": (
        'steady', 'wall')},
    'failover': {'all free nodes of a dead one moved, s': ('moved',)}}

#: Of those who cannot tell all colours from each other, too.
COLOURS = {'stock': '#D55E00', 'ours': '#0072B2'}

#: A figure that is 0 has no place on a logarithmic scale.
LEAST = 1e-3


def read(path):
    """Return the JSON in the last line of what a command has printed.

    :raises LabError: when it is nothing of which there is a picture.
    """
    try:
        found = json.loads(pathlib.Path(path).read_text().splitlines()[-1])
        if found['command'] in PARTS:
            return found
    except (OSError, ValueError, IndexError, KeyError, TypeError) as exc:
        raise errors.LabError(f'{path}: {exc}') from exc
    raise errors.LabError(
        f'{path} is not what one of these has printed: {", ".join(PARTS)}.')


def lines(runs, path):
    """Return {driver: (numbers of nodes, figures, whether each was measured)}.

    :param runs: what :func:`read` returned, of one command.
    :param path: to the figure, see :data:`PARTS`.
    """
    runs = sorted(runs, key=lambda run: run['nodes'])

    def figure(run, driver):
        found = run[driver]
        for name in path:
            found = found[name]
        return max(LEAST, found)

    return {driver: (
        [run['nodes'] for run in runs],
        [figure(run, driver) for run in runs],
        [driver == 'ours' or run.get('stock nodes', run['nodes'])
         == run['nodes'] for run in runs])
        for driver in COLOURS}


def draw(runs, path):
    """Write the picture as PNG; what was not measured is hollow."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot

    parts = [(title, lines(its, part)) for command, some in PARTS.items()
             if (its := [run for run in runs if run['command'] == command])
             for title, part in some.items()]
    columns = 2 if len(parts) == 4 else min(3, len(parts))
    rows = -(-len(parts) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.5 * columns, 3.25 * rows),
        layout='constrained', squeeze=False)
    for axis in axes.flat[len(parts):]:
        axis.remove()
    for axis, (title, found) in zip(axes.flat, parts, strict=False):
        for driver, (nodes, figures, measured) in found.items():
            colour = COLOURS[driver]
            axis.plot(nodes, figures, color=colour, label=driver)
            axis.scatter(nodes, figures, edgecolors=colour, zorder=3,
                         c=[colour if one else 'white' for one in measured])
        axis.set(xscale='log', yscale='log', xlabel='nodes')
        axis.set_title(title, fontsize=10)
        axis.grid(True, which='major', color='#dddddd')
    axes[0, 0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
    pyplot.close(figure)
