# SPDX-License-Identifier: Apache-2.0

"""The program nova-ironic-multihost."""

from importlib import metadata
import logging
import sys

from cliff import app
from cliff import commandmanager

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost import conf

#: The group of the commands' entry points.
NAMESPACE = 'nova_ironic_multihost.commands'

_DESCRIPTION = """\
Who owns which Ironic node, why, is it healthy, and what happens if: asks
nova, placement and Ironic through their APIs, as any OpenStack client does.
"""


class Shell(app.App):
    """The program; cliff finds the commands by their entry points."""

    NAME = base.PROGRAM
    # Libraries log only with -v.
    DEFAULT_VERBOSE_LEVEL = 0

    def __init__(self):
        super().__init__(
            _DESCRIPTION, metadata.version(base.PROGRAM),
            commandmanager.CommandManager(NAMESPACE),
            # --help after a command shows the help of that command.
            deferred_help=True)

    def build_option_parser(self, description, version, argparse_kwargs=None):
        """Add the options about the cloud: credentials and settings."""
        parser = super().build_option_parser(
            description, version, argparse_kwargs)
        parser.prog = self.NAME
        arguments.add_clouds(parser)
        parser.add_argument(
            '--ring-partitions', type=int, metavar='NUMBER',
            default={one.dest: one for one in conf.OPTS}[
                'ring_partitions'].default,
            help='[ironic_multihost]ring_partitions of the compute services, '
            'which no API shows (default: %(default)s)')
        parser.add_argument(
            '--move-across-zones', action='store_true',
            help='they have [ironic_multihost]move_across_zones = true')
        return parser

    def initialize_app(self, argv):
        """Show the help without a command, by changing cliff's argv."""
        if not self.options.verbose_level:
            # The error that follows such a warning says more.
            logging.getLogger('keystoneauth').setLevel(logging.ERROR)
        if not argv:
            self.interactive_mode = False
            argv.append('help')


def main(argv=None):
    """Run the program.

    :param argv: arguments; default: those of this process
    :returns: exit status
    """
    return Shell().run(sys.argv[1:] if argv is None else list(argv))


if __name__ == '__main__':
    sys.exit(main())
