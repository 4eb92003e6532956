# SPDX-License-Identifier: Apache-2.0

"""Options, exit statuses and words that the commands share."""

import argparse
from collections import abc
import os

#: Exit statuses.
DONE, LEFT, UNKNOWN = range(3)


def add_clouds(options: argparse.ArgumentParser) -> None:
    """Add the options for the credentials."""
    options.add_argument(
        '--os-cloud', metavar='NAME',
        help='entry of clouds.yaml for nova and placement (default: '
        'OS_CLOUD, or the other OS_* variables)')
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


def seconds(text: str) -> float:
    """Parse seconds of the command line."""
    number = float(text)
    # time.sleep takes no more than some 300 years.
    if not 0 <= number <= 1e9:
        raise argparse.ArgumentTypeError('0 or more seconds, at most 1e9')
    return number


def counted(number: int, word: str) -> str:
    """Return a number with its noun: 1 node, 2 nodes."""
    return f'{number} {word}' + ('' if number == 1 else 's')


def some(names: abc.Sequence[str], shown: int = 5) -> str:
    """Return names in words, only the first few of many."""
    more = len(names) - shown
    return ', '.join(names[:shown]) + (f' and {more} more' if more > 0
                                       else '')
