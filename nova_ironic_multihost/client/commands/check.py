# SPDX-License-Identifier: Apache-2.0

"""check: is every node owned by exactly one compute service?"""

from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import findings

COLUMNS = 'Level', 'Kind', 'Subject', 'Sentence'


class Check(base.CloudCommand, lister.Lister):
    """Check that every node has exactly one owner, and find inconsistencies.

    It reads nova, placement and Ironic, and finds the same as
    nova-ironic-multihost-check. Level is finding, or note for a consistent
    state that you may not want. Nothing is changed.
    """

    EPILOG = """\
examples:
  nova-ironic-multihost check
  nova-ironic-multihost check --host compute-1 --wait 300
        after a restart: it must be up and everything at rest in 5 minutes
  nova-ironic-multihost check -f json --allocations

The three are asked one after the other, so a single look may catch something
that changes just then; --wait looks again.

exit status: 0 consistent, 1 something was found, 2 the cloud cannot be asked
"""

    _status = arguments.CONSISTENT

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        arguments.add_look(parser)
        return parser

    def take_action(self, parsed_args):
        """Return the findings and notes; keep the exit status."""
        cloud = self.survey()
        seen, found = findings.wait(
            lambda: cloud.read(parsed_args.allocations), parsed_args.wait,
            parsed_args.host)
        self._status = arguments.FOUND if found else arguments.CONSISTENT
        self.tell(arguments.summary(seen, found))
        rows = [('finding', one) for one in found] + [
            ('note', one) for one in findings.notes(seen, seen.at)]
        return COLUMNS, [
            (level, one.kind, one.subject, one.sentence)
            for level, one in rows]

    def run(self, parsed_args):
        """Run the check; return the exit status."""
        return super().run(parsed_args) or self._status
