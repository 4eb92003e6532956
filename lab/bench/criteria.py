# SPDX-License-Identifier: Apache-2.0

"""What the figures of an experiment must be for a driver that works."""

import collections.abc
import dataclasses


@dataclasses.dataclass(frozen=True)
class Criterion:
    """What one figure must be.

    :ivar figure: its name
    :ivar met: function of its value
    :ivar sentence: what is wrong otherwise; {} is the value
    """

    figure: str
    met: collections.abc.Callable
    sentence: str


def none(figure, sentence):
    """A figure that must be 0, or an empty list."""
    return Criterion(figure, lambda value: not value, sentence)


def once(figure, sentence):
    """A figure that must be 0 or 1."""
    return Criterion(figure, lambda value: value <= 1, sentence)


def true(figure, sentence):
    """A figure that must be true, or a number that must be known."""
    return Criterion(
        figure, lambda value: value is not False and value is not None,
        sentence)


NEEDLESS = none('needless', '{} moves from a live compute to one that the '
                'ring does not prefer')
ONCE_PER_CHANGE = once('most_moves_per_change',
                       'a node moved {} times for one change of members')
UNSCHEDULABLE = none('unschedulable', '{} nodes moved to a compute that nova '
                     'does not send builds to')
QUIET = true('quiet', 'the nodes never came to rest where the ring wants '
             'them')
LEFT = none('left', '{} free nodes are left on the compute')
# In the order in which a reader wants to know.
MOVES = (NEEDLESS, ONCE_PER_CHANGE, UNSCHEDULABLE, QUIET)
CONSISTENT = true('consistent', 'the lab is not consistent at the end: see '
                  'findings')
LEAKED = none('leaked', '{} machines are held for servers that are gone')


def unmet(figures, *wanted, when=''):
    """What is wrong with figures.

    :param figures: dict of name to value
    :param wanted: :class:`Criterion` objects
    :param when: what each sentence begins with, such as 'enabled: '
    :returns: a list of sentences, empty when all is as it must be
    """
    return [f'{when}{criterion.sentence.format(figures[criterion.figure])}'
            for criterion in wanted
            if not criterion.met(figures[criterion.figure])]
