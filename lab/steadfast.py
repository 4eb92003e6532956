# SPDX-License-Identifier: Apache-2.0

"""Users who go on when what they ask is away, and ask again."""

import collections.abc
import dataclasses
import time

from lab import workload

# An answer takes a second or two on a busy machine.
ANSWER_TIMEOUT = 30
# Besides the seconds for which something is away.
BUILD_TIMEOUT = workload.BUILD_TIMEOUT
_PERIOD = 1.0


@dataclasses.dataclass
class Insistence:
    """Asks again when it is refused, or gets no answer.

    :ivar retried: exceptions that are worth another try
    :ivar bound: seconds after which the error of the last try is raised
    :ivar refused: how often there was one
    """

    retried: tuple
    bound: float
    refused: int = 0
    clock: collections.abc.Callable = time.monotonic
    sleep: collections.abc.Callable = time.sleep

    def __call__(self, ask, *args):
        """Call a function until it succeeds; returns what it returned."""
        deadline = self.clock() + self.bound
        while True:
            try:
                return ask(*args)
            except self.retried:
                self.refused += 1
                if self.clock() > deadline:
                    raise
            self.sleep(_PERIOD)


class User:
    """One who has servers, and wants each request to be taken.

    What nova has taken is not asked for again.

    :param cloud: :class:`lab.cloud.Cloud`
    :param insist: :class:`Insistence`
    :param missing: exception for a server that is not there
    """

    def __init__(self, cloud, insist, missing):
        self._cloud = cloud
        self._insist = insist
        self._missing = missing

    def create(self, name):
        """Ask for a server with a name of its own; returns its id."""
        asked = False

        def create():
            nonlocal asked
            # A request that has failed may have left a server.
            if asked:
                for server in self._cloud.nova('GET', '/servers')['servers']:
                    if server['name'] == name:
                        return server['id']
            asked = True
            return self._cloud.create(name)

        return self._insist(create)

    def settled(self, server):
        """What nova says of a server, once it is ACTIVE or ERROR.

        :returns: what it says when the time is over, if it never is
        """
        return self._until(server, lambda found: found.get('status') in (
            'ACTIVE', 'ERROR'))

    def reboot(self, server):
        """Reboot a server, unless it is in ERROR by now.

        :returns: what nova says of it once that is over, or the time is
        """
        def reboot():
            if self._look(server).get('status') != 'ERROR':
                self._cloud.nova('POST', f'/servers/{server}/action',
                                 {'reboot': {'type': 'HARD'}})

        self._insist(reboot)
        return self._until(server, is_at_rest)

    def delete(self, server):
        """Delete a server; tells whether it went away in time."""
        def delete():
            try:
                self._cloud.nova('DELETE', f'/servers/{server}')
            except self._missing:
                # The request before was taken, though it has failed.
                pass

        self._insist(delete)
        return not self._until(server, lambda found: not found)

    def _until(self, server, condition):
        deadline = self._insist.clock() + self._insist.bound
        while True:
            found = self._insist(self._look, server)
            if condition(found) or self._insist.clock() > deadline:
                return found
            self._insist.sleep(_PERIOD)

    def _look(self, server):
        try:
            return self._cloud.nova('GET', f'/servers/{server}')['server']
        except self._missing:
            return {}


class Workload(workload.Workload):
    """Workers that are such users, and reboot each server as well.

    One that is neither ACTIVE nor ERROR in time, or not back from its
    reboot, is left as it is: deleting it would hide that it is stuck.

    :param outage: seconds for which something may be away
    """

    TIMEOUT = ANSWER_TIMEOUT

    def __init__(self, settings, workers, prefix, clock, outage):
        super().__init__(settings, workers, prefix, clock)
        self._bound = outage + BUILD_TIMEOUT
        # Of building, rebooting and deleting.
        self._patience = 3 * self._bound

    def _live(self, cloud, name):
        # Needed only where there is a cloud.
        from keystoneauth1 import exceptions

        insist = Insistence((exceptions.ClientException,), self._bound)
        user = User(cloud, insist, exceptions.NotFound)
        asked = self._clock()
        server = user.create(name)
        found = user.settled(server)
        settled = self._clock()
        left, deleted = True, False
        try:
            if found.get('status') == 'ACTIVE':
                # A build may fail after nova has called it ACTIVE.
                found = user.reboot(server)
            if found.get('status') in ('ACTIVE', 'ERROR') and is_at_rest(
                    found):
                deleted = user.delete(server)
                left = False
        except exceptions.ClientException:
            # nova never took it.
            pass
        return workload.Life(
            server, asked, settled, outcome(found),
            fault=found.get('fault', {}).get('message', ''),
            deleted=deleted, refused=insist.refused, left=left)


def is_at_rest(found):
    """Whether nothing goes on with a server.

    :param found: what nova says of it
    """
    return not found.get('OS-EXT-STS:task_state')


def outcome(found):
    """What became of a server: ACTIVE, ERROR or STUCK.

    :param found: what nova says of it
    """
    status = found.get('status')
    return status if status in ('ACTIVE', 'ERROR') else 'STUCK'
