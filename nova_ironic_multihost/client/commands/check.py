# SPDX-License-Identifier: Apache-2.0

"""check: is every node owned by exactly one compute service?"""

from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.client import services

COLUMNS = 'Kind', 'Subject', 'Sentence'


class Check(base.CloudCommand, lister.Lister):
    """Check that every node has exactly one owner, and find inconsistencies.

    Every Ironic node has exactly one record in nova, on a compute service
    that is up, and one resource provider. Every server has its node, and
    Ironic holds nodes for servers that exist. No task of a server takes more
    than an hour. With --allocations, servers and allocations belong to each
    other. The documentation has what to do about each kind. Nothing is
    changed.
    """

    _epilog = """\
examples:
  nova-ironic-multihost check
        with OS_CLOUD or the other OS_* variables, as any OpenStack client
  nova-ironic-multihost --os-cloud admin --os-baremetal-cloud system check
        Ironic shows all nodes to system scope only ("system_scope: all" in
        clouds.yaml), nova wants an admin of a project
  nova-ironic-multihost check --host compute-1 --wait 300
        after a restart: it must be up and everything at rest in 5 minutes
  nova-ironic-multihost check -f json --allocations
  nova-ironic-multihost check -f value -c Kind -c Sentence
        a line for each

The three are asked one after the other, so a single look may catch something
that changes just then; --wait looks again.

exit status: 0 consistent, 1 something was found, 2 the cloud cannot be asked
"""

    def add_options(self, parser):
        """Add the options."""
        arguments.add_extent(parser)
        parser.add_argument(
            '--wait', type=arguments.seconds, default=0, metavar='SECONDS',
            help='look again until nothing is found and no server is in the '
            'middle of something, at most this long (default: look once)')

    def take_action(self, parsed_args):
        """Return the findings; keep the exit status."""
        seen, found = findings.wait(
            lambda: services.with_heartbeats(
                self.cloud, self.cloud.read(parsed_args.allocations)),
            parsed_args.wait, parsed_args.host)
        self.status = arguments.LEFT if found else arguments.DONE
        self.tell(findings.summary(seen, found))
        return COLUMNS, [(one.kind, one.subject, one.sentence)
                         for one in found]
