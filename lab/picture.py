# SPDX-License-Identifier: Apache-2.0

"""A timeline as a picture: one strip per compute, events as lines.

Each strip shows over time how many nodes the compute owns: free ones in
the compute's colour, those with a server darker below them. While nova
does not call the compute up its strip is hatched grey.
"""

import dataclasses

# Okabe and Ito's palette: tells apart with any kind of colour vision.
COLOURS = ('#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9',
           '#D55E00', '#F0E442')
WIDTH = 9.0     # inches at 100 dots: as wide as a README shows it
DOTS = 200
STRIP = 1.15    # inches per compute


@dataclasses.dataclass(frozen=True)
class Strip:
    """What is drawn for one compute; lists run along with ``times``."""

    host: str
    times: tuple
    free: tuple
    used: tuple
    dead: tuple    # (from, to) spans in which it was not up

    @property
    def top(self):
        """The most nodes that it ever owned."""
        return max((f + u for f, u in zip(self.free, self.used,
                                          strict=True)), default=0)


def strips(timeline):
    """A Strip for each host of a :class:`lab.timeline.Timeline`."""
    times = tuple(sample.t for sample in timeline.samples)
    found = []
    for host in timeline.hosts:
        counts = [sample.count(host) for sample in timeline.samples]
        found.append(Strip(host, times,
                           tuple(free for free, _ in counts),
                           tuple(used for _, used in counts),
                           _dead_spans(timeline, host)))
    return found


def _dead_spans(timeline, host):
    spans = []
    since = None
    for sample in timeline.samples:
        if host in sample.up:
            if since is not None:
                spans.append((since, sample.t))
            since = None
        elif since is None:
            since = sample.t
    if since is not None:
        spans.append((since, timeline.samples[-1].t))
    return tuple(spans)


def label_rows(times, widths, span):
    """Which row each event's label goes to, so that none overlap.

    :param times: where labels begin, ascending, in seconds
    :param widths: how wide each is, in the same unit
    :param span: seconds that the picture shows
    :returns: (rows, starts): for each label a row, 0 being the lowest, and
              where to begin, moved left where it would leave the picture
    """
    ends = []
    rows, starts = [], []
    for begin, width in zip(times, widths, strict=True):
        begin = max(0.0, min(begin, span - width))
        row = next((number for number, end in enumerate(ends)
                    if begin >= end), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = begin + width
        rows.append(row)
        starts.append(begin)
    return rows, starts


def draw(timeline, path, title):
    """Write the picture of a timeline as PNG.

    :param path: where to; the folder is made when it is missing
    :param title: one line above the picture
    :returns: the path
    """
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    from matplotlib import ticker

    found = strips(timeline)
    begin = timeline.samples[0].t
    span = timeline.samples[-1].t - begin
    top = max(strip.top for strip in found) * 1.18 + 1
    # A letter of this size is about 0.068 inch wide; the strips 8.2 inch.
    second = span / (WIDTH - 0.8)
    rows, starts = label_rows(
        [event.t - begin for event in timeline.events],
        [0.068 * second * (len(event.name) + 3)
         for event in timeline.events], span)
    head = 0.5 + 0.2 * (max(rows, default=0) + 1)
    height = head + STRIP * len(found) + 0.5
    figure, axes = pyplot.subplots(
        len(found), 1, sharex=True, squeeze=False, figsize=(WIDTH, height))
    figure.subplots_adjust(left=0.075, right=0.985, hspace=0.14,
                           top=1 - head / height, bottom=0.5 / height)
    for number, (strip, axis) in enumerate(zip(found, axes[:, 0],
                                               strict=True)):
        _draw_strip(axis, strip, COLOURS[number % len(COLOURS)], top)
        for event in timeline.events:
            axis.axvline(event.t, color='#222222', linewidth=0.9,
                         linestyle=(0, (4, 2)))
    axes[-1, 0].set_xlim(begin, begin + span)
    axes[-1, 0].xaxis.set_major_locator(
        ticker.MaxNLocator(nbins=12, steps=[1, 2, 3, 5, 6, 10]))
    axes[-1, 0].set_xlabel('seconds', fontsize=9, loc='left')
    figure.text(0.012, 1 - 0.2 / height, title, fontsize=11.5,
                fontweight='bold', va='center')
    _draw_labels(figure, axes[0, 0], timeline.events, rows, starts, begin)
    _draw_legend(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS)
    pyplot.close(figure)
    return path


def _draw_strip(axis, strip, colour, top):
    from matplotlib import colors

    dark = [0.55 * part for part in colors.to_rgb(colour)]
    both = [f + u for f, u in zip(strip.free, strip.used, strict=True)]
    for since, until in strip.dead:
        axis.axvspan(since, until, facecolor='#ececec', edgecolor='#bdbdbd',
                     hatch='////', linewidth=0, zorder=0)
    axis.fill_between(strip.times, strip.used, both, step='post',
                      color=colour, alpha=0.75, linewidth=0, zorder=2)
    axis.fill_between(strip.times, 0, strip.used, step='post', color=dark,
                      linewidth=0, zorder=2)
    axis.step(strip.times, both, where='post', color=dark, linewidth=1.1,
              zorder=3)
    axis.set_ylim(0, top)
    axis.tick_params(labelsize=8.5)
    axis.set_ylabel('nodes', fontsize=8.5)
    axis.yaxis.get_major_locator().set_params(integer=True, nbins=4)
    for side in ('top', 'right'):
        axis.spines[side].set_visible(False)
    axis.text(0.006, 0.93, strip.host, transform=axis.transAxes,
              fontsize=10, fontweight='bold', color=dark, va='top',
              zorder=5, bbox={'facecolor': 'white', 'alpha': 0.8,
                              'edgecolor': 'none', 'pad': 1.5})


def _draw_labels(figure, axis, events, rows, starts, begin):
    # Labels stand above the first strip, one row per 0.2 inch.
    inches = axis.get_window_extent().height / figure.dpi
    for event, row, start in zip(events, rows, starts, strict=True):
        level = 1 + (0.07 + 0.2 * row) / inches
        axis.plot([event.t, event.t], [1, level],
                  transform=axis.get_xaxis_transform(), clip_on=False,
                  color='#222222', linewidth=0.9, linestyle=(0, (4, 2)))
        axis.text(begin + start, level, f' {event.name}', fontsize=9,
                  transform=axis.get_xaxis_transform(), va='bottom',
                  bbox={'facecolor': 'white', 'edgecolor': 'none',
                        'pad': 0.6})


def _draw_legend(figure):
    from matplotlib import patches

    figure.legend(
        handles=[
            patches.Patch(color='#9a9a9a', label='free'),
            patches.Patch(color='#3c3c3c', label='with a server'),
            patches.Patch(facecolor='#ececec', edgecolor='#bdbdbd',
                          hatch='////', label='compute not up')],
        loc='lower right', ncol=3, fontsize=8.5, frameon=False,
        bbox_to_anchor=(0.99, 0.0), columnspacing=1.2, handlelength=1.4,
        borderaxespad=0.1)
