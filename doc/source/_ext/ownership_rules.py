# SPDX-License-Identifier: Apache-2.0

"""Directive ``ownership-rules``: the table of the rules, from the code."""

from docutils import nodes
from docutils import statemachine
from sphinx.util import docutils

from nova_ironic_multihost.rules import ownership

HEADER = ('#', '``instance_uuid`` in Ironic', 'owner', 'the ring prefers me',
          'then', 'what ``lab status`` and the log say')
WIDTHS = '4 20 16 14 22 24'


def table():
    """Return the lines of a list-table."""
    yield '.. list-table::'
    yield '   :header-rows: 1'
    yield f'   :widths: {WIDTHS}'
    yield ''
    yield from _row(HEADER)
    for number, rule in ownership.RULES.items():
        reasons = [reason.value for reason in ownership.Reason
                   if number in reason.rules]
        yield from _row((str(number), rule.instance, rule.owner,
                         rule.preferred, rule.outcome, '; '.join(reasons)))


def _row(cells):
    first, *rest = cells
    yield f'   * - {first}'
    for cell in rest:
        yield f'     - {cell}'


class OwnershipRules(docutils.SphinxDirective):
    """Puts the table where it is named."""

    def run(self):
        """Return the nodes of the table."""
        place = nodes.Element()
        self.state.nested_parse(
            statemachine.StringList(list(table()), source=__file__),
            self.content_offset, place)
        return place.children


def setup(app):
    """Register the directive."""
    app.add_directive('ownership-rules', OwnershipRules)
    return {'parallel_read_safe': True}
