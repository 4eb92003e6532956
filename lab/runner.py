# SPDX-License-Identifier: Apache-2.0

"""``tools/lab run NAME``: do an experiment and print its figures.

Brings up a lab for it when none is up, and stops that one afterwards.
"""

import argparse
import inspect
import json
import sys

from lab.bench import measuring
from lab.bench import wanted
from lab import errors
from lab import experiments
from lab import lock
from lab import options



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
        'the experiment ran to its end, whatever the figures say; with '
        '--assert 1 when they are not what they must be.')
    names = parser.add_subparsers(dest='experiment', metavar='NAME',
                                  required=True)
    for name in experiments.NAMES:
        module = experiments.load(name)
        lesson = inspect.getdoc(module)
        one = names.add_parser(
            name, help=lesson.splitlines()[0], description=lesson,
            formatter_class=argparse.RawDescriptionHelpFormatter)
        _add_options(one)
        if hasattr(module, 'add_options'):
            module.add_options(one)
        one.set_defaults(func=run)


def _add_options(parser):
    parser.add_argument(
        '--json', action='store_true',
        help='print the figures as one line of JSON')
    parser.add_argument(
        '--driver', choices=('ours', 'stock'),
        help='which virt driver (default: that of the lab that is up, or '
        f'{wanted.DRIVER})')
    parser.add_argument(
        '--computes', type=options.positive, metavar='N',
        help='number of nova-computes (default: those of the lab that is '
        f'up, or {wanted.COMPUTES})')
    parser.add_argument(
        '--nodes', type=options.positive, metavar='N',
        help='number of Ironic nodes (default: those of the lab that is '
        f'up, or {wanted.NODES})')
    parser.add_argument(
        '--set', action='append', default=[], dest='options',
        metavar='SECTION.OPTION=VALUE',
        help='an option for all nova services of the lab; may be repeated')
    options.add_release(parser)
    parser.add_argument(
        '--assert', action='store_true', dest='strict',
        help='exit with 1, and say why, when the figures are not what they '
        'must be')
    parser.add_argument(
        '--keep', action='store_true',
        help='leave a lab that was brought up for this running')
    parser.add_argument(
        '--reset', action='store_true',
        help='make a lab that is up and does not suit one that does, instead '
        'of refusing; that is faster than down and up')


def run(args, settings):
    """Carry out ``lab run NAME``; returns the exit status."""
    from lab import progress as progresses
    from lab import stack as stacks

    module = experiments.load(args.experiment)
    progress = progresses.Progress()
    stack = stacks.Stack(settings, progress)
    shape = stack.shape()
    borrowed = shape is not None
    needed = _needs(module, args).asked(
        args.computes, args.nodes, args.driver, args.options)
    cold = getattr(module, 'COLD', False)
    choices = module.choices(args) if hasattr(module, 'choices') else {}
    fresh = not borrowed or args.reset and (
        cold or not needed.made(shape) or not measuring.is_ready(settings))
    if not fresh:
        _be_suited(shape, needed, cold)
    if hasattr(module, 'install'):
        module.install(args, settings, progress)
    try:
        if fresh:
            stack.up(*needed.complete, cold, args.reset)
            shape = stack.shape()
        with lock.hold(settings.run / 'lock', f'run {args.experiment}'):
            figures = measuring.measure(
                args.experiment, module, settings, progress, shape, choices)
    finally:
        if not borrowed and not args.keep:
            stack.down()
    if args.json:
        print(json.dumps(figures))
    else:
        _print_table(figures)
    if not args.strict:
        return 0
    for sentence in figures['failed']:
        print(f'{args.experiment}: {sentence}', file=sys.stderr)
    return 1 if figures['failed'] else 0


def _needs(module, args):
    """The lab that an experiment needs, before the other options."""
    if hasattr(module, 'needs'):
        return module.needs(args)
    return getattr(module, 'NEEDS', wanted.Wanted())


def _be_suited(shape, needed, cold):
    """Insist on the lab that is up being what the experiment needs.

    :raises LabError: when it has to be taken down first
    """
    if cold:
        raise errors.LabError(
            'This experiment begins with computes that were never started, '
            'and brings up a lab of its own. Take the one that is up down '
            'first: tools/lab down')
    if needed.differs(shape):
        raise errors.LabError(
            f'The lab that is up is of another shape '
            f'({needed.differs(shape)}). Leave those options out, or take '
            'it down first: tools/lab down')


def _print_table(figures):
    from rich import console
    from rich import table

    grid = table.Table(
        'figure', table.Column('value', overflow='fold'))
    for name, value in figures.items():
        if isinstance(value, dict):
            value = '\n'.join(f'{k}: {v}' for k, v in value.items()) or '-'
        elif isinstance(value, list):
            value = '\n'.join(str(item) for item in value) or '-'
        grid.add_row(name.replace('_', ' '), str(value))
    console.Console(file=sys.stdout).print(grid)
