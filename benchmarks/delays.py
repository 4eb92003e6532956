# SPDX-License-Identifier: Apache-2.0

"""When was a change seen? Values in, figures out.

A driver has seen a change when what it knows of the node is what Ironic had
after that change, or after a later one: of two quick changes it sees the last
one, and of one that is undone at once nothing is left to be seen.
"""

import bisect
import dataclasses
import math
import statistics
import typing


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of a node in Ironic.

    :param kind: what was done.
    :param node: uuid.
    :param at: when it was done, in seconds.
    :param content: what Ironic has of the node then, None if it is gone.
    """

    kind: str
    node: str
    at: float
    content: typing.Any


@dataclasses.dataclass(frozen=True)
class Known:
    """What somebody knew of a node from a moment on."""

    at: float
    content: typing.Any


def delays(changes, history, looks):
    """Return the seconds until each change was seen, None if it never was.

    :param changes: of one node, in their order.
    :param history: :class:`Known` of that node, in their order; the first is
        from before all changes, if it was there.
    :param looks: the moments at which its knower looked, in their order.
    """
    times = [known.at for known in history]

    def known_at(moment):
        index = bisect.bisect_right(times, moment)
        return history[index - 1].content if index else None

    def seen(number):
        change = changes[number]
        later = changes[number:]
        for moment in sorted({change.at, *(
                one for one in (*looks, *times) if one > change.at)}):
            if any(one.at <= moment and one.content == known_at(moment)
                   for one in later):
                return moment - change.at
        return None

    return [seen(number) for number in range(len(changes))]


def summary(found):
    """Return figures of delays: how many, median, 95 %, longest, lost.

    :param found: seconds, None for what was never seen.
    """
    seen = sorted(one for one in found if one is not None)
    return {'changes': len(found), 'lost': len(found) - len(seen),
            'median': round(statistics.median(seen), 2) if seen else None,
            '95 %': round(share(seen, 0.95), 2) if seen else None,
            'longest': round(seen[-1], 2) if seen else None}


def share(ordered, part):
    """Return the value up to which a part of some ordered ones are."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
