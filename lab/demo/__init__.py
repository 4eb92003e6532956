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

"""One command that shows what all this is for.

Brings up the stack, boots servers, kills a compute, shows its free nodes
arriving on the others, boots another server, starts the compute again,
tells what happened and how long it took, draws it and checks that all is
in its place.
"""

import contextlib
import dataclasses
import shutil
import sys
import time

from lab import errors
from lab import lock
from nova_ironic_multihost.check import findings as consistency

SERVERS = 6
STILL = 11.0    # seconds: longer than one audit
CHECK = 60.0
LEAD = 4.0      # seconds before the first event that the picture shows


@dataclasses.dataclass
class Story:
    """What was measured; seconds unless it says otherwise.

    Filled in as the demo goes on, told at its end.
    """

    computes: int = 0
    nodes: int = 0
    stack_up: float = 0.0
    split: tuple = ()
    boot: float = 0.0
    killed: str = ''
    free: int = 0          # nodes of the killed compute
    stranded: int = 0      # servers of the killed compute
    noticed: float = 0.0
    arrived: float = 0.0
    moves: int = 0         # changes of owner after the kill
    again: float = 0.0
    again_on: str = ''
    up_again: float = 0.0
    returned: int = 0      # free nodes that it owns at the end
    moves_back: int = 0    # changes of owner after the start
    on_dead: int = 0       # free nodes on a compute that was not up

    def lines(self):
        """The story in sentences."""
        yield (f'{self.computes} nova-computes shared {self.nodes} Ironic '
               f'nodes: {", ".join(map(str, self.split))}. The stack was up '
               f'in {self.stack_up:.0f} s.')
        yield f'{SERVERS} servers were ACTIVE after {self.boot:.1f} s.'
        yield (f'{self.killed} was killed. nova noticed after '
               f'{self.noticed:.1f} s, and {self.arrived:.1f} s after the '
               f'kill its {self.free} free nodes belonged to live computes, '
               f'in {self.moves} moves.')
        yield (f'With it still dead, another server was ACTIVE after '
               f'{self.again:.1f} s, on {self.again_on}.')
        yield (f'{self.killed} was started again and up after '
               f'{self.up_again:.1f} s; in the end it had {self.returned} '
               f'free nodes, in {self.moves_back} moves. Meanwhile '
               + (f'up to {self.on_dead} free nodes were' if self.on_dead
                  else 'no free node was')
               + ' recorded on a compute that was not up.')
        if self.stranded:
            yield (f'Not done yet: the {self.stranded} server(s) of '
                   f'{self.killed} kept running while it was dead, but no '
                   'compute looked after them. They stay with their compute '
                   'until it is back.')


class PlainStage:
    """Shows the demo as lines of text, one after the other."""

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        pass

    def say(self, line):
        """Print a line."""
        print(line, flush=True)

    def show(self, board, seen):
        """Ignore a view; :meth:`say_counts` tells what matters."""

    def say_counts(self, board, seen):
        """Print who owns how many nodes, in one line."""
        self.say('            ' + '   '.join(
            f'{row.host} ({row.state}): {row.free} free, {row.used} used'
            for row in board.rows(seen)))


class LiveStage:
    """Shows the demo on a terminal: lines above a table that lives."""

    def __init__(self):
        from rich import live
        from rich import text

        self._text = text.Text
        self._live = live.Live(auto_refresh=False)

    def __enter__(self):
        self._live.start()
        return self

    def __exit__(self, kind, value, traceback):
        self._live.stop()

    def say(self, line):
        """Print a line above the table."""
        # Options of print would also change how the table is drawn.
        self._live.console.print(self._text(line))

    def show(self, board, seen):
        """Draw the table anew."""
        from lab import status

        self._live.update(status.screen(
            board.rows(seen), consistency.inconsistencies(seen, time.time()),
            seen.at), refresh=True)

    def say_counts(self, board, seen):
        """Do nothing: the table is there to be seen."""


def register(subparsers):
    """Add ``lab demo`` to the command line."""
    parser = subparsers.add_parser(
        'demo', help='watch three computes share one Ironic and lose one',
        description='Bring up a real OpenStack on this machine, boot '
        'servers, kill one nova-compute, watch its free nodes arrive on the '
        'others, boot another server, start the compute again, and tell '
        'what happened with seconds and a picture. Installs what it needs '
        'the first time. Stops everything at the end.',
        epilog='Exit status: 0 when everything happened as told and the '
        'check at the end found nothing.')
    parser.add_argument('--computes', type=int, default=3, metavar='N',
                        help='number of nova-computes (default: 3)')
    parser.add_argument('--nodes', type=int, default=30, metavar='N',
                        help='number of Ironic nodes (default: 30)')
    parser.add_argument('--keep', action='store_true',
                        help='leave the stack running, to play with')
    parser.set_defaults(func=run)


def run(args, settings):
    """Carry out ``lab demo``; returns the exit status."""
    from lab import progress
    from lab import stack as stacks

    if args.computes < 2 or args.nodes < 2 * SERVERS:
        raise errors.LabError(
            f'The demo needs at least 2 computes and {2 * SERVERS} nodes.')
    stack = stacks.Stack(settings, progress.Progress())
    if stack.shape() is not None:
        raise errors.LabError(
            'A lab is up already and the demo brings up its own. Stop it '
            'first: tools/lab down')
    try:
        began = time.monotonic()
        stack.up(args.computes, args.nodes, 'ours')
        story = Story(computes=args.computes, nodes=args.nodes,
                      stack_up=time.monotonic() - began)
        with lock.hold(settings.run / 'lock', 'demo'):
            picture, found = _play(settings, story)
    except BaseException:
        stack.down()
        raise
    print('\nWhat happened')
    for line in story.lines():
        print(f'- {line}')
    for finding in found:
        print(f'- Not in its place: {finding.sentence}')
    if not found:
        print('- The check at the end found everything in its place.')
    print(f'\nPicture: {picture}\n', flush=True)
    if args.keep:
        print('The stack is still up: tools/lab status --watch, tools/lab '
              '--help; stop it with: tools/lab down')
    else:
        stack.down()
    return 1 if found else 0


def _play(settings, story):
    """Everything between up and down.

    :returns: (path of the picture, findings of the check)
    """
    from lab.bench import bench as benches
    from lab import picture
    from lab import status
    from lab import timeline

    board = status.Board(settings, 'ours')
    with contextlib.ExitStack() as exits:
        stage = exits.enter_context(
            LiveStage() if sys.stdout.isatty() else PlainStage())
        recorder = exits.enter_context(timeline.recorder(settings))
        recorder.listen(lambda seen: stage.show(board, seen))
        bench = benches.of_lab(settings, stage.say, recorder, 'ours')
        begin = _settle(bench)
        stage.say_counts(board, recorder.view)
        _boot(bench, story)
        stage.say_counts(board, recorder.view)
        _lose(bench, story)
        stage.say_counts(board, recorder.view)
        _boot_again(bench, story)
        _return(bench, story)
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
        f'{story.killed} is killed and comes back')
    return shutil.copy(drawn, settings.directory / 'demo.png'), found


def _settle(bench):
    """Wait until no node moves; returns where the picture begins."""
    if not bench.recorder.wait_quiet(STILL, 90):
        raise errors.LabError(
            'The nodes never stopped moving after the start; look at '
            'tools/lab logs compute-1')
    return max(0.0, bench.recorder.now() - LEAD)


def _boot(bench, story):
    story.split = tuple(bench.recorder.timeline.split())
    at = bench.note(f'boot {SERVERS} servers')
    servers = bench.cloud.boot(SERVERS, 'demo')
    story.boot = bench.recorder.now() - at
    _insist_active(bench, servers)
    bench.say(f'{SERVERS} servers are ACTIVE')


def _insist_active(bench, servers):
    """All servers are active in a view from now on."""
    def settled(seen):
        return all(uuid in seen.instance_of for uuid in servers)

    bench.recorder.watch(2)
    bench.recorder.wait_for(settled, 10, 'nova writing down the servers')
    bad = [i for uuid in servers
           if (i := bench.recorder.view.instance_of[uuid]
               ).vm_state != 'active']
    if bad:
        raise errors.LabError(
            f'{len(bad)} of {len(servers)} servers did not become ACTIVE; '
            f'look at tools/lab logs {bad[0].host or "nova-conductor"}')


def _lose(bench, story):
    """Kill the compute with most nodes; wait for its free ones."""
    name, nodes = bench.busiest
    seen = bench.recorder.view
    free = seen.free_of(name)
    story.killed, story.free = name, len(free)
    story.stranded = len(nodes) - len(free)
    killed = bench.kill(name)
    story.noticed = bench.await_down(name) - killed
    bench.await_arrival(name, free)
    timeline = bench.recorder.timeline
    story.arrived = timeline.arrived(free, name.lower(), killed)
    story.moves = len(timeline.moves(killed))
    bench.tell('            its servers stay with it: taking them over is '
               'not done yet')


def _boot_again(bench, story):
    at = bench.note('boot another server')
    [server] = bench.cloud.boot(1, 'demo-again')
    story.again = bench.recorder.now() - at
    _insist_active(bench, [server])
    story.again_on = bench.recorder.view.instance_of[server].host
    bench.say(f'it is ACTIVE on {story.again_on}')


def _return(bench, story):
    """Start the compute again; wait until nodes come back and stay."""
    started, up = bench.start(story.killed)
    story.up_again = up - started
    bench.recorder.wait_for(
        lambda seen: seen.free_of(story.killed), 60,
        f'free nodes arriving on {story.killed}')
    if not bench.recorder.wait_quiet(STILL, 90):
        raise errors.LabError(
            'The nodes never stopped moving after the compute had '
            f'returned; look at tools/lab logs {story.killed}')
    bench.say(f'{len(bench.recorder.view.free_of(story.killed))} free nodes '
              f'are on {story.killed}, and stay')
    timeline = bench.recorder.timeline
    story.returned = len(bench.recorder.view.free_of(story.killed))
    story.moves_back = len(timeline.moves(started))
    story.on_dead = timeline.on_dead_hosts(started, free=True)
