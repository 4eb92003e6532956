# SPDX-License-Identifier: Apache-2.0

"""Options, exit statuses and words that the commands share."""

import argparse
import math
import os

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import findings

#: Exit statuses.
DONE, LEFT, UNKNOWN = range(3)


def add_clouds(options: argparse.ArgumentParser) -> None:
    """Add the options for the credentials."""
    options.add_argument(
        '--os-cloud', metavar='NAME',
        help='entry of clouds.yaml for nova and placement (default: '
        'OS_CLOUD, or the other OS_* variables)')
    add_baremetal_cloud(options)


def add_baremetal_cloud(options: argparse.ArgumentParser) -> None:
    """Add the option for Ironic's credentials; no OpenStack client has it."""
    options.add_argument(
        '--os-baremetal-cloud', metavar='NAME',
        default=os.environ.get('OS_BAREMETAL_CLOUD') or None,
        help='entry of clouds.yaml for Ironic (default: OS_BAREMETAL_CLOUD, '
        'or the same)')


def add_extent(options: argparse.ArgumentParser) -> None:
    """Add the options for additional checks."""
    options.add_argument(
        '--host', action='append', default=[], metavar='HOST',
        help='this compute service must exist and be up; may be given '
        'several times')
    options.add_argument(
        '--allocations', action='store_true',
        help='also compare allocations with servers: one request for each '
        'node, eight at a time')


def add_look(options: argparse.ArgumentParser) -> None:
    """Add the options for additional checks and for the waiting time."""
    add_extent(options)
    options.add_argument(
        '--wait', type=seconds, default=0, metavar='SECONDS',
        help='look again until nothing is found and no server is in the '
        'middle of something, at most this long (default: look once)')


def seconds(text: str) -> float:
    """Parse seconds of the command line."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError('0 or more seconds')
    return number


def summary(seen: cloud_state.CloudState,
            found: list[findings.Finding]) -> str:
    """Return the last line of a check."""
    counts = (f'{counted(len(seen.nodes), "node")}, '
              f'{counted(len(seen.up_hosts), "compute service")} up')
    if found:
        return f'{counts}: {counted(len(found), "finding")}'
    return f'{counts}: each node has exactly one owner'


def counted(number: int, word: str) -> str:
    """Return a number with its noun: 1 node, 2 nodes."""
    return f'{number} {word}' + ('' if number == 1 else 's')
