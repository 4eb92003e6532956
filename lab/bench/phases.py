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
