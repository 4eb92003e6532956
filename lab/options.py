# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
