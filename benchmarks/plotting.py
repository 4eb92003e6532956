# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A picture of several runs of :mod:`.listing`: cost over number of nodes."""

import json
import pathlib

from lab import errors

#: Title of a part of the picture -> (case, figure).
PARTS = {'an audit, nothing has changed: wall clock, s': ('steady', 'wall'),
         'the same: CPU of the compute service, s': ('steady', 'cpu'),
         'in a minute: CPU of Ironic, s': ('minute', 'ironic'),
         'the first audit: memory at its peak, MB': ('first', 'peak')}

COLOURS = {'stock': '#D55E00', 'ours': '#0072B2'}

#: What a scale with powers of ten cannot show.
LEAST = 1e-3


def read(path):
    """Return the JSON in the last line of what "listing" has printed.

    :raises LabError: when it is nothing of that kind.
    """
    try:
        found = json.loads(pathlib.Path(path).read_text().splitlines()[-1])
        if {'nodes', *COLOURS} <= found.keys():
            return found
    except (OSError, ValueError, IndexError, AttributeError) as exc:
        raise errors.LabError(f'{path}: {exc}') from exc
    raise errors.LabError(
        f'{path} is not what "tools/bench listing" has printed.')


def lines(runs, case, figure):
    """Return {driver: (numbers of nodes, figures)}, for a part.

    :param runs: what :func:`read` returned.
    """
    runs = sorted(runs, key=lambda run: run['nodes'])
    return {driver: (
        [run['nodes'] for run in runs],
        [max(LEAST, run[driver][case][figure]) for run in runs])
        for driver in COLOURS}


def draw(runs, path):
    """Write the picture as PNG."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, 2, figsize=(9, 6.5), layout='constrained')
    for axis, (title, part) in zip(axes.flat, PARTS.items(), strict=True):
        for driver, (nodes, figures) in lines(runs, *part).items():
            axis.plot(nodes, figures, marker='o', label=driver,
                      color=COLOURS[driver])
        axis.set(xscale='log', yscale='log', xlabel='nodes')
        axis.set_title(title, fontsize=10)
        axis.grid(True, which='major', color='#dddddd')
    axes[0, 0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
    pyplot.close(figure)
