# SPDX-License-Identifier: Apache-2.0

"""A compute goes out of service and comes back: what moves both times."""

import dataclasses

from lab.bench import criteria


@dataclasses.dataclass(frozen=True)
class Phase:
    """Something that is done to a compute, and watched until nodes rest.

    :ivar name: of its figures
    :ivar action: of :class:`lab.computes.Computes`
    :ivar empties: whether the compute must have no free node at its end
    """

    name: str
    action: str
    empties: bool = False


def run(bench, label, phases):
    """Put the compute with most nodes through phases; returns the figures.

    :param label: of the figure that names the compute
    :param phases: :class:`Phase` objects, in their order
    """
    name, nodes = bench.busiest
    return {label: name, 'its_nodes': len(nodes),
            **{phase.name: bench.phase(phase.action, name)
               for phase in phases}}


def failures(figures, phases):
    """What is not as it must be, in sentences."""
    return [sentence for phase in phases for sentence in criteria.unmet(
        figures[phase.name], *criteria.MOVES,
        *([criteria.LEFT] if phase.empties else []),
        when=f'{phase.name.replace("_", " ")}: ')]
