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

"""``tools/bench``: measures, nova's driver beside ours."""

import argparse
import json
import os
import pathlib
import sys

from lab import errors
from lab import install
from lab import progress as progresses
from lab import settings as places
from lab import stack

_DESCRIPTION = """\
Measures what nova's own Ironic driver costs in a large cloud, and ours, both
in one run on this machine.

  tools/bench listing --nodes 1000 --hosts 3        a minute
  tools/bench listing --nodes 100000 --hosts 10     half an hour
"""
_EPILOG = """\
The databases of a lab of its own (in .bench, with other ports than that of
tools/lab) are filled directly; it is stopped afterwards. What is missing is
installed first, as for tools/lab, whose LAB_VENV and LAB_UV hold here, too.
The table and one line of JSON go to stdout, progress to stderr.
"""

#: Of its lab: the directory and the first port.
DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / '.bench'
BASE_PORT = 27000

#: Nobody sends heartbeats; nova is to take all for up.
OPTIONS = ('DEFAULT.service_down_time=86400',)


def parser():
    """Return the parser of the command line."""
    main = argparse.ArgumentParser(
        prog='tools/bench', description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    main.add_argument('--base-port', type=int, default=BASE_PORT,
                      help='first port of its lab (default: %(default)s)')
    commands = main.add_subparsers(dest='command', required=True,
                                   metavar='COMMAND')
    listing = commands.add_parser(
        'listing', help='what it costs to know which nodes there are',
        description="What an audit costs before it comes to nova's tracker.")
    listing.add_argument('--nodes', type=int, default=1000,
                         help='how many (default: %(default)s)')
    listing.add_argument('--hosts', type=int, default=3,
                         help='compute services (default: %(default)s)')
    listing.add_argument('--json', action='store_true',
                         help='print no table')
    listing.set_defaults(func=_listing)
    return main


def _listing(args, settings, progress):
    from benchmarks import listing

    found = listing.measure(settings, OPTIONS, progress, args.nodes,
                            args.hosts)
    if not args.json:
        print('\n'.join(listing.table(found)))
    print(json.dumps(found))


def _enter_venv(settings, progress, argv):
    """Install if need be, and go on as a process of the lab's venv."""
    install.Install(settings, progress).ensure()
    if os.path.realpath(sys.prefix) != os.path.realpath(settings.venv):
        python = settings.program('python')
        os.execv(python, [
            python, str(settings.repository / 'tools' / 'bench'), *argv])


def main(argv=None):
    """Run one command; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(argv)
    progress = progresses.Progress()
    try:
        settings = places.load(DIRECTORY, args.base_port)
        _enter_venv(settings, progress, argv)
        one = stack.Stack(settings, progress)
        one.up(1, 1, options=OPTIONS, cold=True)
        try:
            args.func(args, settings, progress)
        finally:
            one.down()
    except errors.LabError as error:
        print(f'bench: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('bench: interrupted', file=sys.stderr)
        return 130
    return 0
