# SPDX-License-Identifier: Apache-2.0

"""nova-ironic-multihost-check: is every node owned by exactly one compute?"""

import argparse
import json
import sys

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import findings

PROGRAM = 'nova-ironic-multihost-check'

_DESCRIPTION = """\
Ask nova, placement and Ironic, through their APIs, whether everything is in
its place:

  - every Ironic node has exactly one record in nova, on a compute service
    that is up, and one resource provider;
  - no record and no provider stands for a node that Ironic does not have;
  - a free node of an enabled compute service is not barred from scheduling;
  - Ironic holds nodes for servers that exist, and every server has its node;
  - no server is in the middle of something for more than an hour;
  - with --allocations, servers and allocations belong to each other.

Nothing is changed. Prints one line for each finding, "kind: sentence", and a
summary; the documentation has what to do about each kind.
"""

_EPILOG = """\
examples:
  nova-ironic-multihost-check
        with OS_CLOUD or the other OS_* variables, as any OpenStack client
  nova-ironic-multihost-check --os-cloud admin --os-baremetal-cloud system
        Ironic shows all nodes to system scope only ("system_scope: all" in
        clouds.yaml), nova wants an admin of a project
  nova-ironic-multihost-check --host compute-1 --host compute-2 --wait 300
        after a restart: both must be up and everything at rest in 5 minutes
  nova-ironic-multihost-check --json | jq .owners
        how many nodes each compute service owns

The three are asked one after the other, so a single look may catch something
that changes just then; --wait looks again.

exit status: 0 consistent, 1 something was found, 2 it cannot be asked (no
credentials, not allowed, an API is down; standard error says what to do).
"""


def main(argv=None):
    """Run the command.

    :param argv: arguments; default: those of this process
    :returns: exit status
    """
    args = parser().parse_args(argv)
    try:
        cloud = cloud_client.connect(args.os_cloud, args.os_baremetal_cloud)
        seen, found = findings.wait(
            lambda: cloud.read(args.allocations), args.wait, args.host)
    except cloud_client.SurveyError as error:
        print(f'{PROGRAM}: {error}', file=sys.stderr)
        return arguments.UNKNOWN
    except KeyboardInterrupt:
        print(f'{PROGRAM}: interrupted', file=sys.stderr)
        return arguments.UNKNOWN
    notes = findings.notes(seen, seen.at)
    if args.json:
        print(json.dumps(answer(seen, found, notes)))
    else:
        for line in lines(seen, found, notes):
            print(line)
    return arguments.FOUND if found else arguments.CONSISTENT


def parser():
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog=PROGRAM, description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_clouds(top)
    arguments.add_look(top)
    top.add_argument(
        '--json', action='store_true',
        help='print {"consistent": ..., "findings": [{"kind", "subject", '
        '"sentence"}], "notes": [the same], "nodes": N, "owners": {host: '
        'number}} instead')
    return top


def answer(seen, found, notes):
    """Return the dict that --json prints."""
    return findings.answer(found) | {
        'notes': findings.answer(notes)['findings'],
        'nodes': len(seen.nodes), 'owners': seen.owners()}


def lines(seen, found, notes):
    """Yield the lines of the output for people."""
    yield from map(str, found)
    yield from (f'note: {note}' for note in notes)
    yield arguments.summary(seen, found)


if __name__ == '__main__':
    sys.exit(main())
