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
