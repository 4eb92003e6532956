# SPDX-License-Identifier: Apache-2.0

"""Servers asked for to try a mechanism, and where they may land."""

import dataclasses
import time

from lab import errors

NO_VALID_HOST = 'No valid host was found'
BUILD_TIMEOUT = 120.0


@dataclasses.dataclass(frozen=True)
class Wish:
    """Servers asked for at once, and where they may land.

    :ivar what: what was asked for, in words
    :ivar nodes: uuids of the right nodes; none when there must be none
    """

    what: str
    servers: tuple
    nodes: frozenset

    def problem(self, found):
        """What is wrong with what came of it, in words, or ''.

        :param found: {server: its description by nova}
        """
        for server in self.servers:
            status = found[server]['status']
            node = found[server]['OS-EXT-SRV-ATTR:hypervisor_hostname']
            fault = found[server].get('fault', {}).get('message', '')
            if status not in ('ACTIVE', 'ERROR'):
                return f'{self.what}: still {status}'
            if self.nodes and status == 'ERROR':
                return f'{self.what}: {fault or status}'
            if self.nodes and node not in self.nodes:
                return (f'{self.what}: landed on a wrong node of '
                        f'{found[server]["OS-EXT-SRV-ATTR:host"]}')
            if not self.nodes and status == 'ACTIVE':
                return (f'{self.what}: found a node of '
                        f'{found[server]["OS-EXT-SRV-ATTR:host"]} where '
                        'there is none')
            if not self.nodes and not fault.startswith(NO_VALID_HOST):
                return f'{self.what}: {fault or status}'
        return ''


class Trial:
    """Servers asked for to try one mechanism.

    Ask with :meth:`lands` and :meth:`nowhere`, then :meth:`settle`; as often
    as it takes.
    """

    def __init__(self, bench, stage):
        self._bench = bench
        self._stage = stage
        self._wishes = []
        self._problems = []
        self._servers = []

    def lands(self, what, nodes, count=1, hints=None, **request):
        """Ask for servers that must land on these nodes, one on each."""
        if not nodes:
            # What could be a right node there has not moved there.
            self._problems.append(f'{what}: there is no such node')
            return
        self._ask(what, frozenset(nodes), count, hints, request)

    def nowhere(self, what, hints=None, **request):
        """Ask for a server for which there must be no node."""
        self._ask(what, frozenset(), 1, hints, request)

    def settle(self):
        """Wait for the servers; nodes of those that landed where they may.

        :returns: list of node uuids, in the order of asking
        """
        wanted = {s for wish in self._wishes for s in wish.servers}
        deadline = time.monotonic() + BUILD_TIMEOUT
        while True:
            found = {s['id']: s for s in self._bench.cloud.servers()
                     if s['id'] in wanted}
            if (all(s['status'] in ('ACTIVE', 'ERROR')
                    for s in found.values())
                    or time.monotonic() > deadline):
                break
            time.sleep(0.5)
        problems = [wish.problem(found) for wish in self._wishes]
        self._problems += filter(None, problems)
        landed = [
            found[server]['OS-EXT-SRV-ATTR:hypervisor_hostname']
            for wish, problem in zip(self._wishes, problems, strict=True)
            if wish.nodes and not problem for server in wish.servers]
        self._wishes = []
        return landed

    def clear(self):
        """Delete the servers and wait until all nodes can be had again."""
        self._bench.cloud.delete(self._servers)
        self._servers = []
        try:
            self._stage.await_free()
        except errors.LabError as error:
            self.miss(str(error))

    def miss(self, sentence):
        """Note that something else than a boot went wrong."""
        self._problems.append(sentence)

    def result(self):
        """'pass', or what went wrong; the servers are deleted."""
        self.clear()
        return '; '.join(self._problems) or 'pass'

    def _ask(self, what, nodes, count, hints, request):
        prefix = f'scheduler-{len(self._servers) + 1}'
        cloud = self._bench.cloud
        more = {'flavorRef': self._stage.flavor()} | request
        if count > 1:
            more |= {'min_count': count, 'max_count': count}
        before = {s['id'] for s in cloud.servers()}
        first = cloud.create(prefix, hints, **more)
        servers = (first,) if count == 1 else tuple(
            s['id'] for s in cloud.servers() if s['id'] not in before)
        self._servers += servers
        self._wishes.append(Wish(what, servers, nodes))
