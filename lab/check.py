# SPDX-License-Identifier: Apache-2.0

"""Is everything in its place? The consistency check as a command."""

import dataclasses
import json

from lab import errors
from lab import state
from lab import view
from nova_ironic_multihost.client import findings as consistency


def register(subparsers):
    """Add ``lab check`` to the command line."""
    parser = subparsers.add_parser(
        'check', help='say whether everything is in its place',
        description='Compare what nova, placement and Ironic say: every '
        'node has one record on a live, mapped host and one provider; '
        'allocations and servers match; Ironic holds no node for a server '
        'that is gone; nothing is stuck. Prints one line for each finding.',
        epilog='Exit status: 0 when consistent, 1 when something was found. '
        'Example: tools/lab compute kill compute-1; tools/lab check --wait '
        '60')
    parser.add_argument(
        '--wait', type=float, default=0, metavar='SECONDS',
        help='look again every second until all is consistent, at most this '
        'long (default: look once)')
    parser.add_argument(
        '--json', action='store_true',
        help='print {"consistent": ..., "findings": [...]} instead')
    parser.set_defaults(func=run)


def run(args, settings):
    """Carry out ``lab check``; returns the exit status."""
    # Another lab may be up at the ports of this one.
    if state.State(settings).read()['phase'] != 'up':
        raise errors.LabError('The lab is not up; run "tools/lab up".')
    _, found = consistency.wait(lambda: view.read(settings), args.wait)
    if args.json:
        print(json.dumps({
            'consistent': not found,
            'findings': [dataclasses.asdict(one) for one in found]}))
    elif found:
        for finding in found:
            print(finding)
    else:
        print('consistent')
    return 1 if found else 0
