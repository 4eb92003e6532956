# SPDX-License-Identifier: Apache-2.0

"""Directive ``command-help``: what a command says when it is asked for help.

Its argument is a command of nova-ironic-multihost, or nothing for the program
itself.
"""

import contextlib
import io
import os
from unittest import mock

from docutils import nodes
from sphinx.util import docutils

from nova_ironic_multihost.client.commands import app


def help_of(*command):
    """Return the help of a command, as wide as a page."""
    with (contextlib.redirect_stdout(io.StringIO()) as out,
          mock.patch.dict(os.environ, {'COLUMNS': '79'}),
          contextlib.suppress(SystemExit)):
        app.main([*command, '--help'])
    return out.getvalue()


class CommandHelp(docutils.SphinxDirective):
    """Puts the help where it is named."""

    optional_arguments = 9

    def run(self):
        """Return the nodes of the help."""
        said = help_of(*self.arguments)
        if not said:
            raise self.error(f'There is no command {self.arguments}.')
        return [nodes.literal_block(said, said, language='none')]


def setup(app):
    """Register the directive."""
    app.add_directive('command-help', CommandHelp)
    return {'parallel_read_safe': False}
