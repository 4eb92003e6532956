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

"""Experiments on a real stack, each of which ends in figures.

``tools/lab run NAME`` does one of them, prints its figures and keeps the
timeline and a picture of it. Each experiment is a module with a
``run(bench)`` that returns a dict; its docstring says what it does and
what its figures mean. A module may have ``NEEDS``, a :class:`Wanted`: the
lab that it is for, where not any will do.
"""

import argparse
import ast
import dataclasses
import importlib
import json
import pathlib
import sys
import time

from lab import check
from lab import errors
from lab import lock

NAMES = ('steady', 'kill', 'restart', 'add', 'freeze', 'deadops', 'churn')
COMPUTES = 3
NODES = 30
DRIVER = 'ours'
SETTLE = 90
# Seconds before the first event that a timeline shows.
LEAD = 4.0


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What lab an experiment is asked for; None where anything will do."""

    computes: int | None = None
    nodes: int | None = None
    driver: str | None = None
    options: tuple = ()

    def asked(self, computes, nodes, driver):
        """This with what the command line says, where this says nothing.

        :raises LabError: when the command line says something else
        """
        given = {'computes': computes, 'nodes': nodes, 'driver': driver}
        for name, value in given.items():
            mine = getattr(self, name)
            if mine is not None and value not in (None, mine):
                raise errors.LabError(
                    f'This experiment begins with --{name} {mine}; leave '
                    f'--{name} {value} out.')
        return dataclasses.replace(self, **{
            name: value for name, value in given.items()
            if value is not None})

    def differs(self, shape):
        """How a lab that is up differs from this, in words, or ''.

        :param shape: what :meth:`lab.stack.Stack.shape` returned
        """
        pairs = [('computes', self.computes, len(shape['computes'])),
                 ('nodes', self.nodes, shape['nodes']),
                 ('driver', self.driver, shape['driver'])]
        found = [f'{label} {is_} instead of {wanted}'
                 for label, wanted, is_ in pairs
                 if wanted is not None and wanted != is_]
        found += [f'not up with --set {option}' for option in self.options
                  if option not in shape['options']]
        return ', '.join(found)


def register(subparsers):
    """Add ``lab run`` to the command line."""
    parser = subparsers.add_parser(
        'run', help='run an experiment and print its figures',
        description='Run an experiment on the lab and print its figures. '
        'When no lab is up, one is brought up for it and stopped '
        'afterwards. Each experiment explains itself and its figures: '
        'tools/lab run NAME --help',
        epilog='Example: tools/lab run kill --driver stock --json. '
        'Steps are told on stderr, figures on stdout. Exit status: 0 when '
        'the experiment ran to its end, whatever the figures say.')
    names = parser.add_subparsers(dest='experiment', metavar='NAME',
                                  required=True)
    for name in NAMES:
        one = names.add_parser(
            name, help=_teach(name).splitlines()[0],
            description=_teach(name),
            formatter_class=argparse.RawDescriptionHelpFormatter)
        _add_options(one)
        if name == 'churn':
            _add_churn_options(one)
        one.set_defaults(func=run)


def _teach(name):
    # Read, not imported: what they import may not be installed yet.
    source = pathlib.Path(__file__).with_name(f'{name}.py').read_text()
    return ast.get_docstring(ast.parse(source))


def _add_options(parser):
    parser.add_argument(
        '--json', action='store_true',
        help='print the figures as one line of JSON')
    parser.add_argument(
        '--driver', choices=('ours', 'stock'),
        help='which virt driver (default: that of the lab that is up, or '
        f'{DRIVER})')
    parser.add_argument(
        '--computes', type=_positive, metavar='N',
        help='number of nova-computes (default: those of the lab that is '
        f'up, or {COMPUTES})')
    parser.add_argument(
        '--nodes', type=_positive, metavar='N',
        help='number of Ironic nodes (default: those of the lab that is '
        f'up, or {NODES})')
    parser.add_argument(
        '--keep', action='store_true',
        help='leave a lab that was brought up for this running')


def _add_churn_options(parser):
    parser.add_argument(
        '--cycles', type=_positive, default=10, metavar='N',
        help='kill and restart this often (default: 10)')
    parser.add_argument(
        '--seed', type=int, metavar='N',
        help='choose as a run with this seed did (default: by chance; '
        'printed)')


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('must be 1 or more')
    return number


def run(args, settings):
    """Carry out ``lab run NAME``; returns the exit status."""
    from lab import progress as progresses
    from lab import stack as stacks

    progress = progresses.Progress()
    stack = stacks.Stack(settings, progress)
    shape = stack.shape()
    borrowed = shape is not None
    module = importlib.import_module(f'{__name__}.{args.experiment}')
    wanted = getattr(module, 'NEEDS', Wanted()).asked(
        args.computes, args.nodes, args.driver)
    if borrowed and wanted.differs(shape):
        raise errors.LabError(
            f'The lab that is up is of another shape '
            f'({wanted.differs(shape)}). Leave those options out, or take '
            'it down first: tools/lab down')
    try:
        if not borrowed:
            stack.up(wanted.computes or COMPUTES, wanted.nodes or NODES,
                     wanted.driver or DRIVER, wanted.options)
            shape = stack.shape()
        with lock.hold(settings.run / 'lock', f'run {args.experiment}'):
            figures = _measure(args, settings, progress, shape)
    finally:
        if not borrowed and not args.keep:
            stack.down()
    if args.json:
        print(json.dumps(figures))
    else:
        _print_table(figures)
    return 0


def _measure(args, settings, progress, shape):
    """Run the experiment on a lab that is up; returns all figures."""
    from lab import cloud
    from lab import computes
    from lab.experiments import bench as benches
    from lab import timeline
    from lab import view

    module = importlib.import_module(f'{__name__}.{args.experiment}')
    services = computes.Computes(settings)
    _be_ready(settings, services)
    kept = settings.directory / 'timelines' / (
        f'{args.experiment}-{shape["driver"]}-'
        f'{time.strftime("%Y%m%d-%H%M%S")}.json')
    with timeline.recorder(settings) as recorder:
        bench = benches.Bench(settings, progress.note, recorder, services,
                              cloud.Cloud(settings), **_choices(args))
        # A stack that has just come up may still be sorting itself out.
        if not bench.await_quiet():
            progress.note('Nodes have moved all the time so far; the '
                          'experiment begins nevertheless.')
        started = time.monotonic()
        begin = max(0.0, bench.recorder.now() - LEAD)
        servers = sum(1 for i in recorder.view.instances if not i.deleted)
        conditions = {
            'experiment': args.experiment, 'driver': shape['driver'],
            'computes': len(shape['computes']), 'nodes': shape['nodes'],
            'servers_before': servers, 'options': list(shape['options'])}
        try:
            figures = module.run(bench)
        except timeline.NeverHappened as error:
            timeline.save(recorder.timeline.since(begin), kept, **conditions)
            raise errors.LabError(
                f'{error}. What was seen until then: {kept}') from error
        seconds = time.monotonic() - started
        found = check.wait(lambda: view.read(settings), SETTLE)
        leaked = len(recorder.view.leaked())
        recorded = recorder.timeline
    result = {**conditions, 'seconds': round(seconds, 1), **figures,
              'leaked': leaked, 'consistent': not found,
              'findings': _by_kind(found), 'timeline': str(kept)}
    timeline.save(recorded.since(begin), kept, **conditions)
    result['picture'] = _draw(recorded.since(begin), kept, args, shape)
    for finding in found:
        progress.note(f'{finding.kind}: {finding.sentence}')
    return result


def _choices(args):
    """What churn is told on the command line, for a Bench."""
    if args.experiment != 'churn':
        return {}
    seed = int(time.time()) if args.seed is None else args.seed
    return {'cycles': args.cycles, 'seed': seed}


def _be_ready(settings, services):
    """Insist on a lab in which nothing is broken yet."""
    from lab import view

    for name in services.names():
        state = services.process_state(name)
        if state != 'running':
            raise errors.LabError(
                f'{name} is {state}; an experiment begins with all computes '
                f'running: tools/lab compute start {name} (or resume), or '
                'take the lab down and let the experiment bring up its own')
    found = check.wait(lambda: view.read(settings), SETTLE)
    if found:
        raise errors.LabError(
            f'The lab is not consistent to begin with '
            f'({found[0].sentence}). Start afresh with: tools/lab down')


def _by_kind(found):
    kinds = {}
    for finding in found:
        kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
    return kinds


def _draw(recorded, kept, args, shape):
    from lab import picture

    title = (f'{args.experiment}: {len(shape["computes"])} computes, '
             f'{shape["nodes"]} nodes, driver: {shape["driver"]}')
    return str(picture.draw(recorded, kept.with_suffix('.png'), title))


def _print_table(figures):
    from rich import console
    from rich import table

    grid = table.Table(
        'figure', table.Column('value', overflow='fold'))
    for name, value in figures.items():
        if isinstance(value, dict):
            value = '\n'.join(f'{k}: {v}' for k, v in value.items()) or '-'
        grid.add_row(name.replace('_', ' '), str(value))
    console.Console(file=sys.stdout).print(grid)
