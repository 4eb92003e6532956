# SPDX-License-Identifier: Apache-2.0

"""Directive ``house-modules``: the modules of a room, from their docstrings.

Its argument is a package below nova_ironic_multihost. Each module is a row:
its path, and the first sentence of its docstring.
"""

import ast
import pathlib

from docutils import nodes
from docutils import statemachine
from sphinx.util import docutils

PACKAGE = pathlib.Path(__file__).parents[3] / 'nova_ironic_multihost'


def table(room):
    """Return the lines of a list-table."""
    yield '.. list-table::'
    yield '   :widths: 30 70'
    yield ''
    for path in sorted((PACKAGE / room).glob('*.py')):
        said = ast.get_docstring(ast.parse(path.read_text()))
        if said:
            sentence = ' '.join(said.split('\n\n')[0].split())
            yield f'   * - ``{path.relative_to(PACKAGE)}``'
            yield f'     - {sentence}'


class HouseModules(docutils.SphinxDirective):
    """Puts the table where it is named."""

    required_arguments = 1

    def run(self):
        """Return the nodes of the table."""
        place = nodes.Element()
        self.state.nested_parse(
            statemachine.StringList(
                list(table(self.arguments[0])), source=__file__),
            self.content_offset, place)
        return place.children


def setup(app):
    """Register the directive."""
    app.add_directive('house-modules', HouseModules)
    return {'parallel_read_safe': True}
