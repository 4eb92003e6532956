# SPDX-License-Identifier: Apache-2.0

"""One command that shows what all this is for.

Brings up the stack, boots servers, kills a compute that has some, shows its
free nodes arriving on the others, boots another server, fences the compute,
shows its servers being taken over, reboots one of them there, starts the
compute again, tells what happened and how long it took, draws it and checks
that all is in its place and nothing happened twice.
"""

import contextlib
import shutil
import sys
import time

from lab.bench import bench as benches
from lab.demo import play
from lab.demo import stages
from lab.demo import story as stories
from lab import errors
from lab import lock
from lab import options
from nova_ironic_multihost.client import findings as consistency

CHECK = 60.0


def register(subparsers):
    """Add ``lab demo`` to the command line."""
    parser = subparsers.add_parser(
        'demo', help='watch three computes share one Ironic and lose one',
        description='Bring up a real OpenStack on this machine, boot '
        'servers, kill a nova-compute that has some, watch its free nodes '
        'arrive on the others, boot another server, fence the compute, watch '
        'its servers being taken over, reboot one of them there, start the '
        'compute again, and tell what happened with seconds and a picture. '
        'Installs what it needs the first time. Stops everything at the '
        'end.',
        epilog='Exit status: 0 when everything happened as told, nothing '
        'twice, and the check at the end found nothing.')
    parser.add_argument('--computes', type=options.positive, default=3,
                        metavar='N',
                        help='number of nova-computes (default: 3)')
    parser.add_argument('--nodes', type=options.positive, default=30,
                        metavar='N',
                        help='number of Ironic nodes (default: 30)')
    parser.add_argument('--keep', action='store_true',
                        help='leave the stack running, to play with')
    parser.set_defaults(func=run)


def run(args, settings):
    """Carry out ``lab demo``; returns the exit status."""
    from lab import progress
    from lab import stack as stacks

    if args.computes < 2 or args.nodes < 2 * play.SERVERS:
        raise errors.LabError(
            f'The demo needs at least 2 computes and {2 * play.SERVERS} '
            'nodes.')
    stack = stacks.Stack(settings, progress.Progress())
    if stack.shape() is not None:
        raise errors.LabError(
            'A lab is up already and the demo brings up its own. Stop it '
            'first: tools/lab down')
    try:
        began = time.monotonic()
        stack.up(args.computes, args.nodes, 'ours')
        story = stories.Story(computes=args.computes, nodes=args.nodes,
                              stack_up=time.monotonic() - began)
        with lock.hold(settings.run / 'lock', 'demo'):
            picture, found = _play(settings, story)
    except BaseException:
        stack.down()
        raise
    problems = [*story.failures(), *(finding.sentence for finding in found)]
    print('\nWhat happened')
    for line in story.lines():
        print(f'- {line}')
    for sentence in problems:
        print(f'- Not as it must be: {sentence}')
    if not found:
        print('- The check at the end found everything in its place.')
    print(f'\nPicture: {picture}\n', flush=True)
    if args.keep:
        print('The stack is still up: tools/lab status --watch, tools/lab '
              '--help; stop it with: tools/lab down')
    else:
        stack.down()
    return 1 if problems else 0


def _play(settings, story):
    """Everything between up and down.

    :returns: (path of the picture, findings of the check)
    """
    from lab import picture
    from lab import status
    from lab import timeline

    board = status.Board(settings, 'ours')
    with contextlib.ExitStack() as exits:
        stage = exits.enter_context(
            stages.LiveStage() if sys.stdout.isatty()
            else stages.PlainStage())
        recorder = exits.enter_context(timeline.recorder(settings))
        recorder.listen(lambda seen: stage.show(board, seen))
        demo = play.Play(
            benches.of_lab(settings, stage.say, recorder, 'ours'), story)
        begin = demo.settle()
        stage.say_counts(board, recorder.view)
        for act in (demo.boot, demo.lose, demo.boot_again, demo.take_over,
                    demo.bring_back):
            act()
            stage.say_counts(board, recorder.view)
        _, found = consistency.wait(lambda: recorder.view, CHECK)
        recorded = recorder.timeline.since(begin)
    kept = settings.directory / 'timelines' / (
        f'demo-{time.strftime("%Y%m%d-%H%M%S")}.json')
    timeline.save(recorded, kept, experiment='demo', driver='ours',
                  computes=story.computes, nodes=story.nodes)
    drawn = picture.draw(
        recorded, kept.with_suffix('.png'),
        f'{story.computes} nova-computes, {story.nodes} nodes, one Ironic: '
        f'{story.killed} is killed, fenced, and comes back')
    return shutil.copy(drawn, settings.directory / 'demo.png'), found
