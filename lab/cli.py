# SPDX-License-Identifier: Apache-2.0

"""The command line of the lab.

Nothing but the standard library may be needed to print help, to install,
to take a lab down and to read logs.
"""

import argparse
import json
import os
import signal
import sys

from lab import check
from lab import demo
from lab import errors
from lab import install
from lab import monitor
from lab import options
from lab import processes
from lab import progress
from lab import runner
from lab import settings as places
from lab import stack
from lab import status

_DESCRIPTION = """\
A real OpenStack on this machine, with several nova-compute services on one
Ironic whose machines are fake: start it, break it, watch it.

  tools/lab demo                     everything at once, in a few minutes
  tools/lab up                       3 computes, 30 nodes
  tools/lab status --watch           who owns what (in a second terminal)
  tools/lab compute kill compute-1   lose one
  tools/lab down
"""
_EPILOG = """\
The first command that needs them installs MariaDB, RabbitMQ, memcached
(apt-get, as root) and OpenStack (pip, into a venv of the lab's own). All
files are below the lab's directory, all ports are on 127.0.0.1 and follow
each other from the base port on; with another directory and another base
port a second lab runs beside the first one.

environment: LAB_DIR, LAB_BASE_PORT (see --dir and --base-port), LAB_VENV, the
Python environment (default: .lab/venv in the checkout), and LAB_UV, a uv that
installs in the place of pip.
"""
# Those that may install, and those that get by without anything installed.
_INSTALLING = ('install', 'up', 'demo', 'run')
_BARE = ('down', 'logs')
_COMPUTE_ACTIONS = {
    'start': 'start a stopped compute, or add one with a new name',
    'stop': 'end it with SIGTERM; it finishes what it is doing',
    'kill': 'end it with SIGKILL, as a crash would',
    'pause': 'freeze it (SIGSTOP), as a hang would',
    'resume': 'let a frozen one go on',
    'disable': 'disable the service in nova: no new servers',
    'enable': 'enable the service in nova',
    'fence': 'tell nova that it is down for sure (forced_down)',
    'unfence': 'take that back',
    'add': 'configure, start and map a new one to the cell',
    'forget': 'delete the service of one that is stopped and owns nothing',
}
_SERVICE_ACTIONS = {
    'start': 'start one that was stopped',
    'stop': 'end it with SIGTERM',
    'kill': 'end it with SIGKILL',
    'pause': 'freeze it (SIGSTOP): it takes connections and never answers',
    'resume': 'let a frozen one go on',
}


def main(argv=None):
    """Run one command.

    :returns: exit status
    """
    argv = sys.argv[1:] if argv is None else argv
    # A closed terminal and a polite kill are to clean up as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    args = parser().parse_args(argv)
    try:
        settings = places.load(
            args.dir, args.base_port, getattr(args, 'release', None))
        _enter_venv(args.command, settings, argv)
        return args.func(args, settings)
    except errors.LabError as error:
        print(f'lab: {error}', file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f'lab: {error.filename} belongs to another user; choose a '
              'directory of your own with --dir (and LAB_VENV for the Python '
              'environment).', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('lab: interrupted', file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def parser():
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog='tools/lab', description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument('--dir', metavar='DIRECTORY',
                     help="the lab's directory (default: .lab in the "
                     'checkout)')
    top.add_argument('--base-port', type=int, metavar='PORT',
                     help='first port (default: '
                     f'{places.DEFAULT_BASE_PORT}); the lab keeps it')
    commands = top.add_subparsers(dest='command', metavar='COMMAND',
                                  required=True)
    _add_install(commands)
    _add_up(commands)
    _add_down(commands)
    status.register(commands)
    _add_compute(commands)
    _add_service(commands)
    _add_boot(commands)
    _add_delete(commands)
    check.register(commands)
    monitor.register(commands)
    _add_logs(commands)
    runner.register(commands)
    demo.register(commands)
    return top


def _enter_venv(command, settings, argv):
    """Install if need be, and go on as a process of the venv."""
    if command in _BARE:
        return
    installation = install.Install(settings, progress.Progress())
    if command in _INSTALLING:
        installation.ensure()
    elif not installation.done():
        raise errors.LabError(
            'Nothing is installed yet; "tools/lab up" does that and starts '
            'the lab.')
    if os.path.realpath(sys.prefix) == os.path.realpath(settings.venv):
        return
    python = settings.program('python')
    script = str(settings.repository / 'tools' / 'lab')
    os.execv(python, [python, script, *argv])


def _add_install(commands):
    alone = commands.add_parser(
        'install', help='install what the other commands need',
        description='Install what is missing and start nothing. The first '
        'command that needs it does the same.',
        epilog='Example: sudo tools/lab install, where others are not root')
    options.add_release(alone)
    alone.set_defaults(func=_install)


def _install(args, settings):
    # Every command of its kind is here only when all is installed.
    print('Everything is installed.')
    return 0


def _add_up(commands):
    up = commands.add_parser(
        'up', help='start everything',
        description='Start keystone, placement, glance, neutron, Ironic, '
        'nova and the nova-computes, and enrol the nodes. Returns when each '
        'node can be scheduled to. Whatever an earlier lab kept is gone: '
        'each start is a fresh one.',
        epilog='Example: tools/lab up --computes 2 --nodes 10 --driver stock '
        '--set DEFAULT.update_resources_interval=60')
    up.add_argument('--computes', type=options.positive, default=3,
                    metavar='N', help='number of nova-computes (default: 3)')
    up.add_argument('--nodes', type=options.positive, default=30,
                    metavar='M', help='number of Ironic nodes (default: 30)')
    up.add_argument('--driver', choices=('ours', 'stock'), default='ours',
                    help="this project's driver or nova's own (default: ours)")
    up.add_argument('--cold', action='store_true',
                    help='do not start the nova-computes; return when the '
                    'rest is up')
    up.add_argument('--reset', action='store_true',
                    help='make a lab that is up, with whatever shape, one '
                    'that is as if it were new; that is faster than down '
                    'and up')
    up.add_argument('--set', action='append', default=[], dest='options',
                    metavar='SECTION.OPTION=VALUE',
                    help='an option for all nova services; may be repeated')
    options.add_release(up)
    _add_json(up)
    up.set_defaults(func=_up)


def _up(args, settings):
    report = progress.Progress()
    lab = stack.Stack(settings, report)
    fresh = lab.up(
        args.computes, args.nodes, args.driver, args.options, args.cold,
        args.reset)
    shape = lab.shape()
    if args.json:
        print(json.dumps(shape | {
            'started': fresh, 'openrc': str(settings.openrc),
            'seconds': {label: round(seconds, 1)
                        for label, seconds in report.steps}}))
        return 0
    # The installation was before, in another process.
    when = (f'after a start of {report.elapsed():.0f} s' if fresh
            else 'already')
    print(_up_text(when, shape, args.cold, settings.openrc))
    return 0


def _up_text(when, shape, cold, openrc):
    """Return the line of a lab that is up, and the next commands.

    :param when: "already", or after how long
    :param openrc: path of the file with the credentials
    """
    computes = f'{"no" if cold else len(shape["computes"])} computes'
    return (f'The lab is up {when}: {computes}, {shape["nodes"]} nodes, '
            f'driver {shape["driver"]}. Next:\n'
            f'  . {openrc}\n'
            '  nova-ironic-multihost list')


def _add_down(commands):
    down = commands.add_parser(
        'down', help='stop everything',
        description='Stop every process of this lab, also of one that is '
        'only half up or half down. A command that is at work on it is '
        'interrupted. Logs stay until the next up.')
    down.set_defaults(func=_down)


def _down(args, settings):
    stack.Stack(settings, progress.Progress()).down()
    return 0


def _add_compute(commands):
    compute = commands.add_parser(
        'compute', help='start, stop and break nova-computes',
        description='Do something to one nova-compute. Returns when it is '
        'done: a started compute is up in nova.',
        epilog='Example: tools/lab compute kill compute-1')
    actions = _add_actions(compute, _COMPUTE_ACTIONS, 'e.g. compute-1')
    actions['start'].add_argument(
        '--ahead', type=int, default=0, metavar='SECONDS',
        help='start it with a clock that is so far ahead; behind if negative')
    compute.set_defaults(func=_compute)


def _compute(args, settings):
    from lab import computes
    from lab import lock
    with lock.hold(settings.run / 'lock', f'compute {args.action}'):
        with progress.Progress().step(f'{args.action} {args.name}'):
            every = computes.Computes(settings)
            if getattr(args, 'ahead', 0):
                every.start_at(args.name, args.ahead)
            else:
                getattr(every, args.action)(args.name)
    return 0


def _add_service(commands):
    service = commands.add_parser(
        'service', help='take away what the nova-computes work with',
        description='Do something to one of the services that are there '
        'once: mariadb, rabbitmq, keystone, placement, ironic, nova-api, '
        'nova-conductor and so on. Returns when it is done: a started '
        'service answers.',
        epilog='Example: tools/lab service pause nova-conductor')
    _add_actions(service, _SERVICE_ACTIONS, 'e.g. ironic')
    service.set_defaults(func=_service)


def _service(args, settings):
    report = progress.Progress()
    lab = stack.Stack(settings, report)
    with report.step(f'{args.action} {args.name}'):
        getattr(lab, args.action)(args.name)
    return 0


def _add_boot(commands):
    boot = commands.add_parser(
        'boot', help='create servers and wait for them',
        description='Create servers, each on a node of its own, and wait '
        'until they are ACTIVE.',
        epilog='Exit status: 0 when all are ACTIVE. Example: tools/lab boot '
        '--count 5')
    boot.add_argument('--count', type=options.positive, default=1, metavar='N',
                      help='number of servers (default: 1)')
    _add_json(boot)
    boot.set_defaults(func=_boot)


def _boot(args, settings):
    client = _client(settings)
    with progress.Progress().step(f'boot {args.count} servers'):
        ids = client.boot(args.count)
    servers = {server['id']: server for server in client.servers()}
    found = [{'id': server, 'name': servers[server]['name'],
              'status': servers[server]['status'],
              'host': servers[server]['OS-EXT-SRV-ATTR:host'],
              'node': servers[server]['OS-EXT-SRV-ATTR:hypervisor_hostname'],
              'fault': servers[server].get('fault', {}).get('message')}
             for server in ids]
    if args.json:
        print(json.dumps(found))
    else:
        for server in found:
            print('{name:12}  {status:7}  {host}  {node}'.format(**server))
            if server['fault']:
                print(f'{"":12}  {server["fault"]}')
    return 0 if all(s['status'] == 'ACTIVE' for s in found) else 1


def _add_delete(commands):
    delete = commands.add_parser(
        'delete', help='delete servers and wait until they are gone',
        description='Delete servers and wait until nova has forgotten them.',
        epilog='Example: tools/lab delete --all')
    which = delete.add_mutually_exclusive_group(required=True)
    which.add_argument('names', nargs='*', default=[], metavar='NAME',
                       help='names of servers')
    which.add_argument('--all', action='store_true',
                       help='delete all servers')
    delete.set_defaults(func=_delete)


def _delete(args, settings):
    client = _client(settings)
    servers = {server['name']: server['id'] for server in client.servers()}
    names = list(servers) if args.all else args.names
    unknown = [name for name in names if name not in servers]
    if unknown:
        raise errors.LabError(
            f'There is no server {", ".join(unknown)}; there are '
            f'{", ".join(sorted(servers)) or "none"}.')
    with progress.Progress().step(f'delete {len(names)} servers'):
        client.delete(servers[name] for name in names)
    return 0


def _add_logs(commands):
    logs = commands.add_parser(
        'logs', help='print the log of a process',
        description='Print the log of a process of the lab.',
        epilog='Example: tools/lab logs compute-1 -f')
    logs.add_argument('name', metavar='NAME',
                      help='e.g. compute-1, nova-conductor, ironic')
    logs.add_argument('-f', '--follow', action='store_true',
                      help='go on as it grows, until Ctrl-C')
    logs.set_defaults(func=_logs)


def _logs(args, settings):
    known = sorted(path.stem for path in settings.logs.glob('*.log'))
    if args.name not in known:
        raise errors.LabError(
            f'There is no log {args.name}; there are '
            f'{", ".join(known) or "none yet"}.')
    log = processes.Processes(settings.run, settings.logs).log(args.name)
    if args.follow:
        os.execvp('tail', ['tail', '-n', '50', '-F', str(log)])
    with open(log, errors='replace') as lines:
        sys.stdout.writelines(lines)
    sys.stdout.flush()
    return 0


def _client(settings):
    from lab import cloud
    if stack.Stack(settings, progress.Progress()).shape() is None:
        raise errors.LabError('The lab is not up; run "tools/lab up".')
    return cloud.Cloud(settings)


def _add_actions(command, texts, example):
    """Let a command have one command for each action, with a NAME.

    :param texts: {action: what it does}
    :param example: of a name
    :returns: {action: its parser}
    """
    actions = command.add_subparsers(dest='action', metavar='ACTION',
                                     required=True)
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=text + '.')
        action.add_argument('name', metavar='NAME', help=example)
    return actions.choices


def _add_json(command):
    command.add_argument('--json', action='store_true',
                         help='print one line of JSON')
