# SPDX-License-Identifier: Apache-2.0

"""Nothing happens for a minute: does any node change its owner?

With --questions it is counted what the computes ask the other services in
that minute. They are restarted for it, behind relays of this process, as the
lab itself asks the same services.

Figures: moves and split, the number of nodes that each live compute owns;
with --questions asked, the number of questions of all computes to each
service, and questions, what each was and how many bytes came back.
Must be: no moves.
"""

from lab.bench import criteria

SECONDS = 60.0

#: Audits of a compute after its start until it does nothing but wait.
AUDITS = 1.2


def add_options(parser):
    """Add the options of this experiment."""
    parser.add_argument(
        '--questions', action='store_true',
        help='count what the computes ask the other services')


def choices(args):
    """What :func:`run` gets from the options."""
    return {'questions': args.questions}


def run(bench, questions=False):
    """Watch; returns the figures."""
    return _counted(bench) if questions else _watched(bench)


def _watched(bench):
    since = bench.note('begin')
    bench.recorder.watch(SECONDS)
    timeline = bench.recorder.timeline
    return {'watched': SECONDS,
            'moves': len(timeline.moves(since)),
            'split': timeline.split()}


def _counted(bench):
    from lab import questions

    names = bench.computes.names()
    with questions.Counting(bench.settings) as counting:
        bench.computes.restart(names, counting.options)
        for name in names:
            bench.await_up(name)
        bench.await_places()
        bench.recorder.watch(AUDITS * bench.audit)
        counting.tally.begin()
        figures = _watched(bench)
        found = counting.tally.found()
        bench.computes.restart(names)
    for name in names:
        bench.await_up(name)
    return figures | {
        'asked': {service: sum(its.questions for its in asked.values())
                  for service, asked in found.items()},
        'questions': {f'{service}: {what}': list(its)
                      for service, asked in found.items()
                      for what, its in asked.items()}}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(figures, criteria.none(
        'moves', '{} moves although nothing happened'))
