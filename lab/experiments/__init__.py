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
``run(bench)`` that returns a dict, and a ``failures(figures)`` that returns
a sentence for each figure that is not what it must be for this project's
driver; its docstring says what it does, what its figures mean and what they
must be. Every experiment also wants the lab consistent at its end. A module
may have ``NEEDS``, a :class:`Wanted`: the lab that it is for, where not any
will do; with ``COLD`` it is one whose computes were never started.
"""

import argparse
import ast
import dataclasses
import importlib
import json
import pathlib
import sys
import time

from lab import configuration
from lab import errors
from lab.experiments import criteria
from lab import lock
from lab import settings as places
from nova_ironic_multihost import consistency

NAMES = (
    'steady',
    'coldstart',
    'kill',
    'reaction',
    'restart',
    'freeze',
    'add',
    'drain',
    'fence-alive',
    'rbac-slip',
    'deadops',
    'dead-fenced',
    'split-brain',
    'churn',
    'upgrade',
    'rolling',
    'scheduler',
)
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

    def asked(self, computes, nodes, driver, options=()):
        """This with what the command line says, where this says nothing.

        :param options: to be set besides those of this
        :raises LabError: when the command line says something else
        """
        given = {'computes': computes, 'nodes': nodes, 'driver': driver}
        for name, value in given.items():
            mine = getattr(self, name)
            if mine is not None and value not in (None, mine):
                raise errors.LabError(
                    f'This experiment begins with --{name} {mine}; leave '
                    f'--{name} {value} out.')
        return dataclasses.replace(
            self, options=(*self.options, *options),
            **{name: value for name, value in given.items()
               if value is not None})

    @property
    def complete(self):
        """Computes, nodes, driver and options of the lab to bring up."""
        return (self.computes or COMPUTES, self.nodes or NODES,
                self.driver or DRIVER, self.options)

    def made(self, shape):
        """Whether a lab that is up is the very one to bring up for this.

        :param shape: what :meth:`lab.stack.Stack.shape` returned
        """
        return self.complete == (
            len(shape['computes']), shape['nodes'], shape['driver'],
            tuple(shape['options']))

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
        'the experiment ran to its end, whatever the figures say; with '
        '--assert 1 when they are not what they must be.')
    names = parser.add_subparsers(dest='experiment', metavar='NAME',
                                  required=True)
    for name in NAMES:
        one = names.add_parser(
            name, help=_teach(name).splitlines()[0],
            description=_teach(name),
            formatter_class=argparse.RawDescriptionHelpFormatter)
        _add_options(one)
        if name in _MORE_OPTIONS:
            _MORE_OPTIONS[name](one)
        one.set_defaults(func=run)


def _teach(name):
    # Read, not imported: what they import may not be installed yet.
    source = pathlib.Path(__file__).with_name(f'{_module(name)}.py')
    return ast.get_docstring(ast.parse(source.read_text()))


def _module(name):
    return name.replace('-', '_')


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
        '--set', action='append', default=[], dest='options',
        metavar='SECTION.OPTION=VALUE',
        help='an option for all nova services of the lab; may be repeated')
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


def _add_churn_options(parser):
    parser.add_argument(
        '--cycles', type=_positive, default=10, metavar='N',
        help='kill and restart this often (default: 10)')
    parser.add_argument(
        '--seed', type=int, metavar='N',
        help='choose as a run with this seed did (default: by chance; '
        'printed)')
    parser.add_argument(
        '--fence', action='store_true',
        help='force down what was killed when nova calls it down, until it '
        'is started again')


# What dead-fenced sets for each policy. The seconds must exceed those after
# which nova calls a compute down.
POLICIES = {
    'forced_down': (),
    'down': ('ironic_multihost.instance_takeover=down',
             'ironic_multihost.takeover_after=15'),
}


def _add_dead_fenced_options(parser):
    parser.add_argument(
        '--policy', choices=tuple(POLICIES), default='forced_down',
        help='fence the compute (forced_down), or have the driver take over '
        'the servers of one that is down for long (down), without a fence; '
        'default: forced_down')


_MORE_OPTIONS = {'churn': _add_churn_options,
                 'dead-fenced': _add_dead_fenced_options}


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('must be 1 or more')
    return number


def run(args, settings):
    """Carry out ``lab run NAME``; returns the exit status."""
    from lab import progress as progresses
    from lab import stack as stacks

    module = importlib.import_module(f'{__name__}.{_module(args.experiment)}')
    progress = progresses.Progress()
    stack = stacks.Stack(settings, progress)
    shape = stack.shape()
    borrowed = shape is not None
    wanted = getattr(module, 'NEEDS', Wanted()).asked(
        args.computes, args.nodes, args.driver,
        (*POLICIES.get(getattr(args, 'policy', None), ()), *args.options))
    cold = getattr(module, 'COLD', False)
    fresh = not borrowed or args.reset and (
        cold or not wanted.made(shape) or not _is_ready(settings))
    if not fresh:
        _be_suited(shape, wanted, cold)
    try:
        if fresh:
            stack.up(*wanted.complete, cold, args.reset)
            shape = stack.shape()
        with lock.hold(settings.run / 'lock', f'run {args.experiment}'):
            figures = _measure(args, module, settings, progress, shape,
                               cold)
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


def _be_suited(shape, wanted, cold):
    """Insist on the lab that is up being what the experiment needs.

    :raises LabError: when it has to be taken down first
    """
    if cold:
        raise errors.LabError(
            'This experiment begins with computes that were never started, '
            'and brings up a lab of its own. Take the one that is up down '
            'first: tools/lab down')
    if wanted.differs(shape):
        raise errors.LabError(
            f'The lab that is up is of another shape '
            f'({wanted.differs(shape)}). Leave those options out, or take '
            'it down first: tools/lab down')


def _measure(args, module, settings, progress, shape, cold):
    """Run the experiment on a lab that is up; returns all figures."""
    from lab import computes
    from lab import timeline
    from lab import view

    services = computes.Computes(settings)
    if not cold:
        _be_ready(settings, services)
    kept = settings.directory / 'timelines' / (
        f'{args.experiment}-{shape["driver"]}-'
        f'{time.strftime("%Y%m%d-%H%M%S")}.json')
    with timeline.recorder(settings) as recorder:
        bench = _bench(args, settings, progress, shape, recorder, services)
        # Nodes may have moved just now: for an audit more their old owners
        # take them for theirs.
        if not cold and not bench.settle().quiet:
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
        _, found = consistency.wait(lambda: view.read(settings), SETTLE)
        leaked = len(recorder.view.leaked())
        recorded = recorder.timeline
    result = {**conditions, 'seconds': round(seconds, 1), **figures,
              'leaked': leaked, 'consistent': not found,
              'findings': _by_kind(found)}
    result |= verdict(module, result)
    timeline.save(recorded.since(begin), kept, **conditions)
    result['timeline'] = str(kept)
    result['picture'] = _draw(recorded.since(begin), kept, args, shape)
    kept.with_suffix('.figures.json').write_text(json.dumps(result) + '\n')
    for finding in found:
        progress.note(f'{finding.kind}: {finding.sentence}')
    return result


def _bench(args, settings, progress, shape, recorder, services):
    from lab import cloud
    from lab.experiments import bench as benches
    from lab import preference

    options = shape['options']
    return benches.Bench(
        settings, progress.note, recorder, services, cloud.Cloud(settings),
        preference.Preference(
            preference.partitions(shape['driver'], options)),
        audit=configuration.number(
            options, 'DEFAULT', 'update_resources_interval', places.AUDIT),
        down_time=configuration.number(
            options, 'DEFAULT', 'service_down_time',
            places.SERVICE_DOWN_TIME),
        takeover_after=configuration.number(
            options, 'ironic_multihost', 'takeover_after', 0),
        **_choices(args))


def verdict(module, figures):
    """Whether an experiment's figures are what they must be.

    :param module: the experiment
    :param figures: dict of name to value
    :returns: dict of verdict ('pass' or 'fail') and failed, sentences
    """
    failed = [*module.failures(figures),
              *criteria.unmet(figures, criteria.CONSISTENT)]
    return {'verdict': 'fail' if failed else 'pass', 'failed': failed}


def _choices(args):
    """What some are told on the command line, for a Bench."""
    if args.experiment == 'dead-fenced':
        return {'policy': args.policy}
    if args.experiment != 'churn':
        return {}
    seed = int(time.time()) if args.seed is None else args.seed
    return {'cycles': args.cycles, 'seed': seed, 'fence': args.fence}


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
    _, found = consistency.wait(lambda: view.read(settings), SETTLE)
    if found:
        raise errors.LabError(
            f'The lab is not consistent to begin with '
            f'({found[0].sentence}). Start afresh with: tools/lab down')


def _is_ready(settings):
    """Whether nothing is broken in a lab that is up."""
    from lab import computes

    try:
        _be_ready(settings, computes.Computes(settings))
    except errors.LabError:
        return False
    return True


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
        elif isinstance(value, list):
            value = '\n'.join(str(item) for item in value) or '-'
        grid.add_row(name.replace('_', ' '), str(value))
    console.Console(file=sys.stdout).print(grid)
