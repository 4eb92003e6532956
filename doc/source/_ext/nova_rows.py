# SPDX-License-Identifier: Apache-2.0

"""Directive ``nova-rows``: what is replaced in nova, from the code.

``:used:`` lists what is only called or read instead.
"""

from docutils import nodes
from docutils.parsers.rst import directives
from docutils import statemachine
from sphinx.util import docutils

from nova_ironic_multihost.adapters.patches import table


def lines(used):
    """Yield the lines of a list-table."""
    yield '.. list-table::'
    yield '   :header-rows: 1'
    yield f'   :widths: {"40 50 10" if used else "34 40 16 10"}'
    yield ''
    layer = [] if used else ['layer']
    yield from _row(('attribute', 'without it this is lost', *layer, 'nova'))
    for row in table.ROWS:
        if bool(row.layer) is used:
            continue
        layer = [] if used else [f'``{row.layer.__name__}``']
        yield from _row((
            f'``{row.full()}``', row.purpose, *layer, _releases(row)))


def _releases(row):
    if row.until < table.LATEST:
        return f'to {row.until}'
    return f'from {row.since}' if row.since > table.OLDEST else 'all'


def _row(cells):
    first, *rest = cells
    yield f'   * - {first}'
    for cell in rest:
        yield f'     - {cell}'


class NovaRows(docutils.SphinxDirective):
    """Puts the table where it is named."""

    option_spec = {'used': directives.flag}

    def run(self):
        """Return the nodes of the table."""
        place = nodes.Element()
        self.state.nested_parse(
            statemachine.StringList(
                list(lines('used' in self.options)), source=__file__),
            self.content_offset, place)
        return place.children


def setup(app):
    """Register the directive."""
    app.add_directive('nova-rows', NovaRows)
    return {'parallel_read_safe': True}
