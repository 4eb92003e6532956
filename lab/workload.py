# SPDX-License-Identifier: Apache-2.0

"""Users of the lab: workers that boot servers and delete them again.

Each worker does one server at a time, from the request to its end, and
writes down what became of it as a :class:`Life`. What all the lives add up
to is :func:`tally`, a pure function.
"""

import collections
import dataclasses
import threading
import time

# Who is unlucky has a compute that is killed again as soon as it goes on with
# the build, and takes a minute to start on a busy machine.
BUILD_TIMEOUT = 300
DELETE_TIMEOUT = 90
# A user who looks more often keeps the API from its work.
_PERIOD = 1.0


@dataclasses.dataclass(frozen=True)
class Life:
    """One server: when it was asked for, what became of it.

    ``asked`` and ``settled`` are seconds on the clock of the workers;
    ``hosts`` are the computes that nova's API named for it meanwhile, in
    lower case. ``outcome`` is ACTIVE, ERROR or STUCK (neither in time).
    ``refused`` is how often a request for it failed or got no answer.
    ``left`` are those that nobody has asked nova to delete.
    """

    server: str
    asked: float
    settled: float
    outcome: str
    hosts: frozenset = frozenset()
    fault: str = ''
    deleted: bool = False
    refused: int = 0
    left: bool = False


@dataclasses.dataclass(frozen=True)
class Outage:
    """A compute without a process in [since, until]."""

    host: str
    since: float
    until: float


class Choices:
    """Which computes the scheduler chose for each server.

    nova's API names no host before the compute has begun to build; until
    then the allocation tells, by the owner that its node had at that time.
    """

    def __init__(self):
        self._hosts = {}

    def see(self, seen):
        """Learn from an Observation."""
        for allocation in seen.allocations:
            self._hosts.setdefault(
                (allocation.consumer, allocation.provider),
                seen.owner_of.get(allocation.provider))

    def of(self, server):
        """Hosts in lower case that were chosen for a server."""
        return frozenset(host for (consumer, _), host in self._hosts.items()
                         if consumer == server and host)


def hit(life, outages):
    """Was a compute of this server killed while it was being built?"""
    return any(outage.host.lower() in life.hosts
               and life.asked <= outage.until
               and outage.since <= life.settled for outage in outages)


def tally(lives, outages):
    """Figures of a workload.

    An ERROR is "own compute killed" when a compute that nova had chosen
    for the server was without a process at some time of its build, and so
    is a server that got stuck; the messages of the other errors are told
    with their number.

    :returns: a dict that JSON can hold
    """
    outcomes = collections.Counter(life.outcome for life in lives)
    errors = [life for life in lives if life.outcome == 'ERROR']
    own = [life for life in errors if hit(life, outages)]
    others = [life for life in errors if not hit(life, outages)]
    stuck = [life for life in lives if life.outcome == 'STUCK']
    return {
        'servers': len(lives),
        'active': outcomes['ACTIVE'],
        'error': len(errors),
        'error_own_compute_killed': len(own),
        'error_others': len(others),
        'error_others_faults': dict(collections.Counter(
            life.fault or 'ERROR without a message' for life in others)),
        'stuck': len(stuck),
        'stuck_own_compute_killed': sum(
            1 for life in stuck if hit(life, outages)),
        'not_deleted': sum(1 for life in lives if not life.deleted),
    }


class Workload:
    """A number of workers; use as a context manager.

    Leaving it lets each worker end the server that it is at.

    :cvar TIMEOUT: seconds for which they wait for an answer, None for any
    :param settings: :class:`lab.settings.Settings` of a lab that is up
    :param workers: how many servers at a time
    :param prefix: what the servers' names begin with
    :param clock: seconds, the clock of all times in the lives
    """

    TIMEOUT = None

    def __init__(self, settings, workers, prefix, clock=time.monotonic):
        self._settings = settings
        # Of the longest life.
        self._patience = BUILD_TIMEOUT + DELETE_TIMEOUT + 30
        self._prefix = prefix
        self._clock = clock
        self._lives = []
        self._errors = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True)
            for number in range(1, workers + 1)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind, value, traceback):
        self._over.set()
        if kind is not None:
            return
        deadline = time.monotonic() + self._patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._errors:
            raise self._errors[0]

    @property
    def lives(self):
        """The lives that are over so far, in the order of their end."""
        with self._lock:
            return tuple(self._lives)

    def _work(self, number):
        # Needs the clients, which what is pure in here does not.
        from lab import cloud as clouds

        try:
            cloud = clouds.Cloud(self._settings, self.TIMEOUT)
            count = 0
            while not self._over.is_set():
                count += 1
                life = self._live(
                    cloud, f'{self._prefix}-{number}-{count:03}')
                with self._lock:
                    self._lives.append(life)
        except Exception as error:  # noqa: BLE001 - raised at the end
            self._errors.append(error)
            self._over.set()

    def _live(self, cloud, name):
        asked = self._clock()
        [server] = cloud.boot(1, name, wait=False)
        hosts = set()
        deadline = time.monotonic() + BUILD_TIMEOUT
        while True:
            details = cloud.nova('GET', f'/servers/{server}')['server']
            host = details.get('OS-EXT-SRV-ATTR:host')
            if host:
                hosts.add(host.lower())
            outcome = details['status']
            if outcome in ('ACTIVE', 'ERROR'):
                break
            if time.monotonic() > deadline:
                outcome = 'STUCK'
                break
            time.sleep(_PERIOD)
        settled = self._clock()
        fault = details.get('fault', {}).get('message', '')
        return Life(server, asked, settled, outcome, frozenset(hosts), fault,
                    self._delete(cloud, server))

    def _ask_to_delete(self, cloud, server, deadline):
        # Needed only where there is a cloud.
        from keystoneauth1 import exceptions

        while True:
            try:
                cloud.nova('DELETE', f'/servers/{server}')
            except exceptions.InternalServerError:
                # nova's API deletes servers of dead computes itself, and
                # fails if another takes one over in that moment. A user
                # would ask again.
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
            else:
                return

    def _delete(self, cloud, server):
        """Delete a server; tells whether it went away in time."""
        deadline = time.monotonic() + DELETE_TIMEOUT
        self._ask_to_delete(cloud, server, deadline)
        while time.monotonic() < deadline:
            listed = cloud.nova('GET', '/servers')['servers']
            if server not in {entry['id'] for entry in listed}:
                return True
            time.sleep(_PERIOD)
        return False
