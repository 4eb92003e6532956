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


"""tools/failover: stop one compute, see its free nodes taken over, start it.

The same check as everywhere says before, in between and afterwards whether
each node has exactly one owner.
"""

import argparse
import dataclasses
import json
import signal
import subprocess
import sys
import time

from nova_ironic_multihost.check import findings
from nova_ironic_multihost.check import survey
from nova_ironic_multihost.cmd import check

PROGRAM = 'tools/failover'

#: Seconds without a move after which all is at rest. With nova's defaults a
#: compute audits once a minute, and one that returns takes nodes from others
#: in its third audit.
STILL = 180.0

_DESCRIPTION = """\
Stop one compute service of a running cloud, wait until every free node that
it owned is owned by compute services that are up, start it again, and wait
until it is up and no node moves any more. Before, in between and at the end
everything else must be in its place, as nova-ironic-multihost-check says.

Nodes with servers stay with the compute service that is stopped. It is
started again whatever happens, but for a kill of this script with SIGKILL.
"""

_EPILOG = """\
example, on a machine with devstack:
  OS_CLOUD=devstack-admin tools/failover --host $(hostname) --within 90 \\
    --os-baremetal-cloud devstack-system-admin \\
    --stop 'sudo systemctl stop devstack@n-cpu' \\
    --start 'sudo systemctl start devstack@n-cpu'

Nodes can move when nova notices, service_down_time after the last heartbeat,
and at the next audit of the others; --within has to allow for both.

exit status: 0 it went as it must, 1 it did not, 2 it cannot be tried (no
credentials, an API is down, a command fails; standard error says what to do).
"""


class CommandError(Exception):
    """A command to stop or start the compute failed; says which."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What happened; times in seconds, None for what did not happen.

    :ivar passed: whether it went as it must
    :ivar failed: '', 'before', 'stopped' or 'started': when it did not
    :ivar free: nodes of the host without a server before it was stopped
    :ivar used: nodes of the host with one; they stay
    :ivar taken_over: from the end of the stop command until all free nodes
        had another owner that was up
    :ivar moves: changes of owner in that time
    :ivar up_again: from the begin of the start command until nova called
        the host up
    :ivar at_rest: likewise until the last move, or until everything was in
        its place, whatever came last
    :ivar moves_back: changes of owner since the start command
    :ivar findings: what was wrong when it failed
    """

    host: str
    passed: bool = False
    failed: str = ''
    free: int = 0
    used: int = 0
    taken_over: float | None = None
    moves: int = 0
    up_again: float | None = None
    at_rest: float | None = None
    moves_back: int = 0
    findings: tuple = ()

    def lines(self):
        """The report in sentences."""
        if self.failed != 'before':
            yield (f'{self.host} owned {check.counted(self.free, "node")} '
                   f'without and {check.counted(self.used, "node")} with a '
                   'server when it was stopped.')
        if self.taken_over is not None:
            yield (f'{self.taken_over:.1f} s later others owned those '
                   f'without, in {check.counted(self.moves, "move")}.')
        if self.up_again is not None:
            yield f'Started again, it was up after {self.up_again:.1f} s.'
        if self.at_rest is not None:
            yield (f'All was at rest after {self.at_rest:.1f} s, in '
                   f'{check.counted(self.moves_back, "move")}.')
        for finding in self.findings:
            yield f'{finding.kind}: {finding.sentence}'
        yield 'passed' if self.passed else {
            'before': 'failed: not consistent to begin with, nothing was '
                      'stopped',
            'stopped': 'failed while it was stopped',
            'started': 'failed after it was started again'}[self.failed]


class Failover:
    """Plays it once.

    :param read: a function without arguments that returns an Observation
    :param run: a function that runs a shell command
    :param host: name of the compute service
    :param within: seconds for each of: consistent to begin with, taken
        over, up and consistent again
    :param still: seconds without a move that end it
    """

    def __init__(self, read, run, host, within, still=STILL,
                 clock=time.time, sleep=time.sleep):
        self._read = read
        self._run = run
        self._host = host
        self._within = within
        self._still = still
        self._clock = clock
        self._sleep = sleep

    def play(self, stop, start):
        """Stop it, watch, start it, watch.

        :param stop: shell command
        :param start: shell command; it runs even when something fails
        :returns: a :class:`Report`
        """
        report, seen = self._before()
        if report.failed:
            return report
        moves = _Moves(seen, self._clock())
        try:
            self._run(stop)
            report = self._stopped(report, moves)
        finally:
            began = self._clock()
            self._run(start)
        if report.failed:
            return report
        return self._started(report, _Moves(moves.seen, began), began)

    def _before(self):
        """A report to begin with, and what was seen last."""
        seen, found = findings.wait(
            self._read, self._within, [self._host], self._clock, self._sleep)
        others = {s.key for s in seen.services if s.up and not s.disabled}
        if not others - {self._host.lower()}:
            found = [*found, findings.Finding(
                'no-other-compute', self._host,
                f'no compute service but {self._host} is up and enabled: '
                'nobody could take its nodes')]
        free = len(seen.free_of(self._host))
        report = Report(
            self._host, failed='before' if found else '', free=free,
            used=len(seen.owned_by(self._host)) - free,
            findings=tuple(found))
        return report, seen

    def _stopped(self, report, moves):
        began = self._clock()
        for now, seen in self._looks(began + self._within):
            moves.see(seen, now)
            left = self._not_taken_over(seen, now)
            if not left:
                return dataclasses.replace(
                    report, taken_over=now - began, moves=moves.count)
        return dataclasses.replace(
            report, failed='stopped', moves=moves.count,
            findings=tuple(left))

    def _not_taken_over(self, seen, now):
        service = seen.service_of.get(self._host.lower())
        # Until then its nodes have an owner that is up, as nova sees it.
        if service and service.up:
            return [findings.Finding(
                'compute-still-up', self._host,
                f'nova still calls {self._host} up: look at the stop command '
                'and at service_down_time')]
        return [one for one in findings.inconsistencies(seen, now)
                if one.kind != findings.ON_DEAD_HOST]

    def _started(self, report, moves, began):
        """Watch until all has been in its place and still long enough."""
        clean_since = None
        for now, seen in self._looks(began + self._within + self._still):
            moves.see(seen, now)
            left = findings.inconsistencies(seen, now, [self._host])
            if report.up_again is None and (
                    self._host.lower() in seen.up_hosts):
                report = dataclasses.replace(report, up_again=now - began)
            if left:
                clean_since = None
                continue
            clean_since = clean_since or now
            rest = max(clean_since, moves.last)
            if now - rest >= self._still:
                return dataclasses.replace(
                    report, passed=True, at_rest=rest - began,
                    moves_back=moves.count)
        return dataclasses.replace(
            report, failed='started', moves_back=moves.count,
            findings=tuple(left) or (findings.Finding(
                'not-at-rest', self._host,
                f'nodes still change their owner {self._within:.0f} s after '
                'the start'),))

    def _looks(self, deadline):
        """(time, Observation) again and again; the last at the deadline."""
        while True:
            began = self._clock()
            seen = self._read()
            now = self._clock()
            yield now, seen
            if now >= deadline:
                return
            # A large cloud is not to be asked all the time.
            self._sleep(max(1, now - began))


class _Moves:
    """Counts changes of owner from one Observation to the next.

    :ivar seen: the latest
    :ivar last: the time of the last change; at first that of the begin
    """

    def __init__(self, seen, now):
        self.seen = seen
        self.last = now
        self.count = 0
        self._owner_of = dict(seen.owner_of)

    def see(self, seen, now):
        """Compare with what was seen before."""
        moved = sum(1 for node, owner in seen.owner_of.items()
                    if self._owner_of.get(node, owner) != owner)
        # A record that is missing for a while may return elsewhere.
        self._owner_of.update(seen.owner_of)
        self.seen = seen
        if moved:
            self.count += moved
            self.last = now


def main(argv=None):
    """Run the command.

    :param argv: arguments; default: those of this process
    :returns: exit status
    """
    args = parser().parse_args(argv)
    # A polite kill is to start the compute again, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cloud = survey.connect(args.os_cloud, args.os_baremetal_cloud)
        report = Failover(
            cloud.read, run, args.host, args.within, args.still).play(
                args.stop, args.start)
    except (survey.SurveyError, CommandError) as error:
        print(f'{PROGRAM}: {error}', file=sys.stderr)
        return check.UNKNOWN
    except KeyboardInterrupt:
        print(f'{PROGRAM}: interrupted', file=sys.stderr)
        return check.UNKNOWN
    if args.json:
        print(json.dumps(dataclasses.asdict(report)))
    else:
        for line in report.lines():
            print(line)
    return check.CONSISTENT if report.passed else check.FOUND


def run(command):
    """Run a shell command; what it prints goes to standard error.

    :raises CommandError: when it fails
    """
    print(f'{PROGRAM}: {command}', file=sys.stderr, flush=True)
    # The operator's own command line, to be read by a shell.
    done = subprocess.run(command, shell=True,  # noqa: S602
                          stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode:
        raise CommandError(
            f'"{command}" ended with status {done.returncode}. See whether '
            'the compute service runs.')


def parser():
    """The parser of the command line."""
    top = argparse.ArgumentParser(
        prog=PROGRAM, description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument('--host', required=True, metavar='HOST',
                     help='name of the compute service, as nova has it')
    top.add_argument('--stop', required=True, metavar='COMMAND',
                     help='shell command that stops it')
    top.add_argument('--start', required=True, metavar='COMMAND',
                     help='shell command that starts it')
    top.add_argument(
        '--within', required=True, type=float, metavar='SECONDS',
        help='how long all free nodes may take to get other owners; also '
        'how long everything may take to be in its place before, and after '
        'the start')
    top.add_argument(
        '--still', type=float, default=STILL, metavar='SECONDS',
        help='all is at rest when no node has moved for this long (default: '
        '%(default).0f, three audits of nova as it is configured by default)')
    check.add_clouds(top)
    top.add_argument('--json', action='store_true',
                     help='print one line of JSON')
    return top
