# SPDX-License-Identifier: Apache-2.0

"""leaks: list machines without a server."""

from cliff import lister

from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client.commands import shared_arguments
from nova_ironic_multihost.client import leaks

COLUMNS = ('Node', 'Name', 'Provision state', 'Held for', 'Server', 'Owner',
           'Freed by', 'Next')


class ListLeaks(base.CloudCommand, lister.Lister):
    """List machines without a server, and what happens to each.

    Held for   leaked: a server that nova has deleted. unknown server: a
               server that nova does not know. no server: it is active, and
               held for no server.
    Freed by   the compute service that will tear the machine down by itself;
               empty if there is none.
    """

    EPILOG = """\
examples:
  nova-ironic-multihost leaks
  nova-ironic-multihost leaks -f value -c Node -c Next

exit status: 0, or 2 if the cloud cannot be asked
"""

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        shared_arguments.add(parser)
        return parser

    def take_action(self, parsed_args):
        """Return the table."""
        found = leaks.found(shared_arguments.judged(self, parsed_args))
        if not found:
            self.tell('none: each machine has a server')
        return COLUMNS, [
            (one.node, one.name, one.provision_state, one.kind.value,
             one.server, one.owner, one.frees, one.next) for one in found]
