# SPDX-License-Identifier: Apache-2.0

"""``tools/bench``: measures, nova's driver beside ours."""

import argparse
import json
import os
import pathlib
import sys

from lab import errors
from lab import install
from lab import options
from lab import progress as progresses
from lab import settings as places
from lab import stack

_DESCRIPTION = """\
Measures what nova's own Ironic driver costs in a large cloud, and ours, both
in one run on this machine.

  tools/bench listing --nodes 1000 --hosts 3        a minute
  tools/bench listing --nodes 100000 --hosts 10     half an hour
  tools/bench peer-poll --nodes 10000 --hosts 30    who is there, who has died
  tools/bench idle --nodes 10000 --hosts 1          while nothing happens
  tools/bench changes --nodes 300                   how soon a change is seen
  tools/bench audit --nodes 1000                    with nova's tracker
  tools/bench claim --nodes 300                     how long builds wait
  tools/bench start --nodes 1000                    until a build is accepted
  tools/bench failover --nodes 1000                 a dead one's free nodes
  tools/bench disable --nodes 1000                  and enabled again
  tools/bench join --nodes 300                      until it has its share
  tools/bench takeover --nodes 100                  a fenced one's servers
  tools/bench decide --nodes 100000 --hosts 10      the decision alone
  tools/bench ring                                  how even, how many moves
  tools/bench client                                what the commands ask
  tools/bench plot 1000.json 10000.json --output sizing.png

A command and --help: what it measures, and how.
"""
_EPILOG = """\
All down to takeover need a whole stack: a lab of its own (in .bench, with
other ports than that of tools/lab), which is stopped afterwards. What is
missing is installed first, as for tools/lab, whose LAB_VENV and LAB_UV hold
here, too. Tables and one line of JSON go to stdout, progress to stderr.
"""

#: Of its lab: the directory and the first port.
DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / '.bench'
BASE_PORT = 27000

#: Nobody sends heartbeats; nova is to take all for up. Its conductor has two
#: processes, as where it is told nothing on two processors. Ironic does not
#: ask the machines, which there are not, whether they are on: it would be busy
#: with that alone, and touch nodes.
OPTIONS = ('DEFAULT.service_down_time=86400', 'conductor.workers=2',
           'ironic:conductor.sync_power_state_interval=0')



def parser():
    """Return the parser of the command line."""
    main = argparse.ArgumentParser(
        prog='tools/bench', description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    main.add_argument('--base-port', type=int, default=BASE_PORT,
                      help='first port of its lab (default: %(default)s)')
    main.add_argument('--dir', type=pathlib.Path, default=DIRECTORY,
                      help='where its lab lives (default: .bench in the '
                           'checkout)')
    main.add_argument('--keep', action='store_true',
                      help='leave its lab up for the next command, which '
                           'then begins at once')
    commands = main.add_subparsers(dest='command', required=True,
                                   metavar='COMMAND')
    for add in (_add_listing, _add_peer_poll, _add_idle, _add_changes,
                _add_audit, _add_claim, _add_start, _add_failover,
                _add_disable, _add_join, _add_takeover, _add_tasks,
                _add_decide, _add_ring, _add_client, _add_plot):
        add(commands)
    return main


def _add(commands, name, act, text, nodes=None):
    """Add a command; return its parser.

    :param act: called with the arguments and, in a lab, what that consists
        of.
    :param text: what it does; the first line is its summary.
    :param nodes: returns how many nodes are to be enrolled in its lab; None
        if it needs no lab.
    """
    command = commands.add_parser(
        name, help=text.splitlines()[0], description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    command.set_defaults(func=act, enrolled=nodes)
    return command


def _add_nodes(command, nodes):
    command.add_argument('--nodes', type=options.positive, default=nodes,
                         help='how many (default: %(default)s)')
    command.add_argument('--json', action='store_true',
                         help='print no table')


def _add_compared(command, nodes):
    _add_nodes(command, nodes)
    command.add_argument(
        '--stock', type=options.positive, metavar='NODES',
        help="how many nova's own driver is measured with, whose figures are "
             'then multiplied (default: as many)')


def _add_size(command, nodes=1000, hosts=3):
    _add_nodes(command, nodes)
    command.add_argument('--hosts', type=options.positive, default=hosts,
                         help='compute services (default: %(default)s)')


def _add_listing(commands):
    _add_size(_add(commands, 'listing', _listing, """\
what it costs to know which nodes there are

What an audit costs before it comes to nova's tracker, in a cloud whose rows
are put into the databases: the first one, one when nothing has changed, one
when 200 and 2,000 nodes have; and what Ironic is asked for in a minute.
""", nodes=lambda args: 1))


def _add_peer_poll(commands):
    _add_size(_add(commands, 'peer-poll', _peer_poll, """\
what it costs to see who is there, and that somebody has died

Every few seconds each compute service looks who is there. Counted are the
requests to nova's conductor, placement and Ironic, of one peer poll of one of
them: at rest, and when a host with its share of the nodes has just died. At
that one the records of its free nodes are moved; their audits come later and
are not counted. The cloud is that of "listing".
""", nodes=lambda args: 1), hosts=30)


def _add_idle(commands):
    _add_size(_add(commands, 'idle', _idle, """\
what is asked while nothing happens, and how much comes back

Counted is each kind of question of one compute service to nova's conductor,
Ironic, placement and RabbitMQ in ten minutes, and the bytes of the answers, of
which the figures are for one minute. The cloud is that of "listing".
""", nodes=lambda args: 1))


def _add_changes(commands):
    command = _add(commands, 'changes', _changes, """\
how soon a change in Ironic is seen, while many are made

Nodes are enrolled in a real Ironic, which compute services with nova's tracker
poll. Power, provision state, maintenance, traits, properties and resource
class of random nodes are changed, and nodes made and deleted, through Ironic's
API. It fails when a change is never seen, or later than 15 s, or when somebody
knows something wrong in the end.
""", nodes=lambda args: args.nodes)
    _add_size(command, nodes=300)
    command.add_argument('--changes', type=options.positive, default=2000,
                         help='how many (default: %(default)s)')
    command.add_argument('--rate', type=float, default=4,
                         help='changes in a second (default: %(default)s)')
    command.add_argument('--pause', type=float, default=10,
                         help='seconds between two polls: report_interval, '
                              'at most 10 (default: %(default)s)')
    command.add_argument('--seed', type=int, default=1,
                         help='of what is changed (default: %(default)s)')


def _add_audit(commands):
    _add_compared(_add(commands, 'audit', _audit, """\
what an audit costs with nova's tracker and placement

All that nova does at an audit, on a compute service that has all nodes: the
first one of a process; one when nothing has changed; one when nova reads all
of placement's associations again, which it does every 300 s; one when 200
nodes have changed in Ironic (a tenth if there are less than 2,000). Rows are
put into the databases of nova, placement and Ironic as nova's own driver would
leave them, so that "writes" is 0 when nothing has changed. "audited" is how
many nodes came to the tracker. 300 nodes take seven minutes in all on two busy
processors.
""", nodes=lambda args: 1), 300)


def _add_claim(commands):
    command = _add(commands, 'claim', _claim, """\
how long a build waits for its claim

nova's tracker has one lock, for claims and for audits. Timed is the claim
alone, of servers on free nodes: when nothing else is done, and while another
thread of the process audits all nodes, which have all changed. Each claim is
aborted. The cloud is that of "audit".
""", nodes=lambda args: 1)
    _add_nodes(command, 300)
    command.add_argument('--claims', type=options.positive, default=100,
                         help='in each case (default: %(default)s)')


def _add_start(commands):
    _add_compared(_add(commands, 'start', _start, """\
how long a nova-compute takes to start, until a build is accepted

A real nova-compute is started, to which builds are sent meanwhile through
nova's API. Timed is from the start of the process to the moment at which the
first of them has its claim: its server is on this host and goes on with the
network. Builds that nova gives up while it starts, as it takes them for
interrupted ones, are counted, and sent again. The cloud is that of "audit".
""", nodes=lambda args: 1), 300)


def _add_failover(commands):
    _add_compared(_add(commands, 'failover', _failover, """\
how soon the free nodes of a dead compute service can be built on

Three compute services share a cloud, as many nodes each, and one is taken for
dead. Timed is until the last of its free nodes is recorded on one of the two
others, which act at the same time, and how long their audits take afterwards.
The cloud is that of "audit".
""", nodes=lambda args: 1), 300)


def _add_disable(commands):
    _add_nodes(_add(commands, 'disable', _disable, """\
what it takes to disable a compute service, and to enable it

A compute service with all nodes is disabled and enabled three times, as nova's
API does it. Timed are the request of the operator and until the last node has
the trait COMPUTE_STATUS_DISABLED in placement, or none has; and the claims of
builds meanwhile. The cloud is that of "audit".
""", nodes=lambda args: 1), 300)


def _add_join(commands):
    _add_nodes(_add(commands, 'join', _join, """\
how a compute service that joins gets its share of the free nodes

One compute service has all nodes and another one starts. Both audit until no
more nodes move; timed is how long that takes, without the time from one audit
to the next, and the claims of builds on both meanwhile. The cloud is that of
"audit".
""", nodes=lambda args: 1), 300)


def _add_takeover(commands):
    _add_nodes(_add(commands, 'takeover', _takeover, """\
how soon the servers of a fenced compute service can be managed again

Three compute services share a cloud, and one whose nodes all have servers is
fenced. Timed is from the fence until the last of its servers can be managed on
one of the two others, which act at the same time: it is there and at rest, and
so is the record of its node. The fence comes when they have just looked, and
they look every 10 s, as with nova's defaults. nova's own driver takes no
servers over and is not run. The cloud is that of "audit".
""", nodes=lambda args: 1), 100)


def _add_tasks(commands):
    _add_nodes(_add(commands, 'tasks', _tasks, """\
what nova's other periodic tasks cost

Each periodic task of a compute service with all nodes but the audit is run
once: power states, deleted servers that are still there, and so on. The cloud
is that of "audit".
""", nodes=lambda args: 1), 300)


def _add_decide(commands):
    command = _add(commands, 'decide', _decide, """\
what the decision costs, without anything that is asked for

CPU and memory of deciding whose the nodes are: at first, when the members have
changed, when 0, 200 and 2,000 nodes have; beside it what nova's own driver
does at each audit. No lab is needed.
""")
    _add_size(command, hosts=10)
    command.add_argument('--zones', type=int, default=0,
                         help='availability zones that the hosts are in '
                              '(default: none)')


def _add_ring(commands):
    command = _add(commands, 'ring', _ring, """\
how even the ring is, and how many nodes move

For numbers of points, hosts and nodes: the fullest host's nodes over the mean,
milliseconds of CPU and memory to build the ring, and the nodes that move when
a host joins or leaves. No lab is needed.
""")
    command.add_argument('--rounds', type=options.positive, default=10,
                         help='sets of host names for each cell; 100,000 '
                              'nodes take a third of them (default: '
                              '%(default)s)')
    command.add_argument('--seed', type=int, default=1,
                         help='of the names and uuids '
                              '(default: %(default)s)')


def _add_client(commands):
    command = _add(commands, 'client', _client, """\
what the commands of operators ask, and how long they take

Each command of nova-ironic-multihost is run at 10, 1,000 and 10,000 nodes,
against APIs that answer from memory. Counted are the requests to nova,
placement and Ironic; timed is the process, without what the services need for
their answers. No lab is needed.
""")
    command.add_argument('--json', action='store_true',
                         help='print no table')


def _add_plot(commands):
    command = _add(commands, 'plot', _plot, """\
draw what several runs have given

Of "listing" seconds, CPU and memory, of "start", "audit" and "failover"
seconds, over the number of nodes, nova's driver and ours, with logarithmic
scales. Figures that were multiplied (--stock) are hollow. No lab is needed.
""")
    command.add_argument('files', nargs='+', metavar='FILE.json',
                         help='what these have printed, one run each')
    command.add_argument('--output', type=pathlib.Path, required=True,
                         metavar='FILE.png', help='where to')


def _listing(args, settings, progress):
    from benchmarks import listing

    return _print(args, listing, listing.measure(
        settings, OPTIONS, progress, args.nodes, args.hosts))


def _peer_poll(args, settings, progress):
    from benchmarks import polling

    return _print(args, polling, polling.measure(
        settings, OPTIONS, progress, args.nodes, args.hosts))


def _idle(args, settings, progress):
    from benchmarks import idling

    return _print(args, idling, idling.measure(
        settings, OPTIONS, progress, args.nodes, args.hosts))


def _changes(args, settings, progress):
    from benchmarks import changes

    found = changes.measure(
        settings, OPTIONS, progress, args.hosts,
        args.changes, args.rate, args.seed, args.pause)
    _print(args, changes, found)
    for sentence in (wrong := changes.failures(found)):
        print(f'bench: {sentence}', file=sys.stderr)
    return bool(wrong)


def _audit(args, settings, progress):
    from benchmarks import auditing

    return _print(args, auditing, auditing.measure(
        settings, OPTIONS, progress, args.nodes, _stock(args)))


def _claim(args, settings, progress):
    from benchmarks import claiming

    return _print(args, claiming, claiming.measure(
        settings, OPTIONS, progress, args.nodes, args.claims))


def _start(args, settings, progress):
    from benchmarks import starting

    return _print(args, starting, starting.measure(
        settings, OPTIONS, progress, args.nodes, _stock(args)))


def _failover(args, settings, progress):
    from benchmarks import failing

    return _print(args, failing, failing.measure(
        settings, OPTIONS, progress, args.nodes, _stock(args)))


def _stock(args):
    """Return how many nodes nova's own driver has."""
    return min(args.stock or args.nodes, args.nodes)


def _disable(args, settings, progress):
    from benchmarks import switching

    return _print(args, switching, switching.measure(
        settings, OPTIONS, progress, args.nodes))


def _join(args, settings, progress):
    from benchmarks import joining

    return _print(args, joining, joining.measure(
        settings, OPTIONS, progress, args.nodes))


def _takeover(args, settings, progress):
    from benchmarks import fencing

    return _print(args, fencing, fencing.measure(
        settings, OPTIONS, progress, args.nodes))


def _tasks(args, settings, progress):
    from benchmarks import recurring

    return _print(args, recurring, recurring.measure(
        settings, OPTIONS, progress, args.nodes))


def _decide(args, settings, progress):
    from benchmarks import deciding

    return _print(args, deciding, deciding.measure(
        progress, args.nodes, args.hosts, args.zones))


def _ring(args, settings, progress):
    from benchmarks import ring

    ring.measure(args.rounds, args.seed)


def _client(args, settings, progress):
    from benchmarks import asking

    return _print(args, asking, asking.measure(progress))


def _plot(args, settings, progress):
    from benchmarks import plotting

    plotting.draw([plotting.read(path) for path in args.files], args.output)
    print(args.output)


def _print(args, module, found):
    if not args.json:
        print('\n'.join(module.table(found)))
    print(json.dumps({'command': args.command, **found}))


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
        settings = places.load(args.dir, args.base_port)
        _enter_venv(settings, progress, argv)
        return _run(args, settings, progress)
    except errors.LabError as error:
        print(f'bench: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('bench: interrupted', file=sys.stderr)
        return 130


def _run(args, settings, progress):
    """Run a command, in a lab if it needs one; returns the exit status."""
    if args.enrolled is None:
        return int(args.func(args, settings, progress) or 0)
    one = stack.Stack(settings, progress)
    kept = one.shape() or {'nodes': 0}
    told = OPTIONS
    one.up(1, max(args.enrolled(args), kept['nodes']),
           options=told, cold=True,
           # One that was kept for another command may have been told less.
           reset=kept.get('options', list(told)) != list(told))
    try:
        return int(args.func(args, settings, progress) or 0)
    finally:
        if not args.keep:
            one.down()
