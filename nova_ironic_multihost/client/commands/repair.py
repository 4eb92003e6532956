# SPDX-License-Identifier: Apache-2.0

"""repair: mend what the check finds."""

from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client.commands import acting
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client.commands import shared_arguments
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import repair

COLUMNS = 'Finding', 'Result', 'Sentence'


def _failed(finding, sentence):
    return repair.Outcome(finding, repair.Result.FAILED, sentence)


class Repair(base.CloudCommand, lister.Lister):
    """Mend what the check finds and what the APIs can mend safely.

    It deletes resource providers of nodes that neither Ironic nor nova has,
    deletes allocations of servers that nova has deleted, and allocates the
    node of a server that has no allocation. Each is looked at again before.
    Compute services go on meanwhile, and it can be run again at any time.

    Result  repaired, gone (it is in order by now), mends itself, by hand,
            refused (not safe now), or failed. The sentence has the reason,
            the compute service that mends it, or the command.
    """

    EPILOG = """\
examples:
  nova-ironic-multihost repair --dry-run
  nova-ironic-multihost repair allocation-without-instance
        all findings of a kind
  nova-ironic-multihost repair provider-without-node:1c1f3a52-...
        one finding: its kind and its subject, as "check" shows them

It asks for the allocations of each node, as "check --allocations" does.

exit status: 0 nothing is left, 1 something is left or FINDING is not found,
2 the cloud cannot be asked
"""

    _status = acting.DONE

    def get_parser(self, prog_name):
        """Add the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--dry-run', action='store_true',
            help='look, and write nothing')
        parser.add_argument(
            'finding', metavar='FINDING', nargs='?',
            help='a kind, or KIND:SUBJECT (default: all that "check" finds)')
        shared_arguments.add(parser)
        return parser

    def take_action(self, parsed_args):
        """Mend the findings one by one; keep the exit status."""
        name = parsed_args.finding
        kind, colon, subject = (name or '').partition(':')
        # An empty variable of a shell must not mean all findings.
        if name == '' or colon and not subject:
            raise base.Refused(
                f'"{name}" names no finding. Name a kind or KIND:SUBJECT; '
                'without the argument all findings are mended.')
        if name and kind not in findings.KINDS:
            raise base.Refused(
                f'"{kind}" is no kind of finding. Name one of: '
                f'{", ".join(findings.KINDS)}.')
        cloud = self.survey()
        seen = cloud.read(allocations=True, zones=True)
        found = [one for one in findings.inconsistencies(seen, seen.at)
                 if kind in ('', one.kind) and subject in ('', one.subject)]
        if subject and not found:
            self._status = acting.LEFT
            self.tell(f'"check --allocations" finds no {name}: it is in order '
                      'by now, or its name is misspelled')
        # An allocation bars the deletion of its provider.
        found.sort(key=lambda one: 'allocation' not in one.kind)
        repairer = repair.Repairer(cloud, ownership_report.OwnershipReport(
            seen, shared_arguments.given(parsed_args)))
        outcomes = []
        for one in found:
            # The table has each write, so no error may lose it.
            stop = False
            try:
                outcome = repairer.repair(one, parsed_args.dry_run)
            except cloud_client.SurveyError as error:
                # If it is Unanswered the others would wait as well.
                stop = isinstance(error, cloud_client.Unanswered)
                outcome = _failed(one, f'{error} Run the same command again.')
            except Exception as error:  # noqa: BLE001
                self.trace()
                stop, outcome = True, _failed(one, base.unexpected(error))
            outcomes.append(outcome)
            if stop:
                self._status = arguments.UNKNOWN
                break
        self._summarize(found, outcomes)
        return COLUMNS, [
            (one.finding.name, one.result.value, one.sentence)
            for one in outcomes]

    def _summarize(self, found, outcomes):
        left = len(found) - sum(one.result.done for one in outcomes)
        if left:
            self._status = self._status or acting.LEFT
        self.tell(f'{arguments.counted(len(found), "finding")}, {left} left')

    def run(self, parsed_args):
        """Run the command; return the exit status."""
        return super().run(parsed_args) or self._status
