# SPDX-License-Identifier: Apache-2.0

"""Types of the options of the command line."""

import argparse

from lab import settings


def positive(text):
    """argparse type: a whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('must be 1 or more')
    return number


def add_release(parser):
    """Add the option that says which OpenStack a lab is made of."""
    parser.add_argument(
        '--release', choices=settings.RELEASES,
        help='which OpenStack; each has an environment of its own (default: '
        f'that of the lab that is up, or {settings.DEFAULT_RELEASE})')
