# SPDX-License-Identifier: Apache-2.0

"""Operations on servers, each with the seconds that it took.

What an operation did is told by nova's API, as a user would see it, and for
those that end a server by Ironic as well: it is over when the machine is not
held for the server any more.
"""

import collections.abc
import concurrent.futures
import dataclasses
import time

from lab import errors

# From 2.93 on nova's own driver cannot rebuild a server (bug 2127017).
OLD_REBUILD = '2.92'
MICROVERSION = '2.96'
BUILD_TIMEOUT = 120.0
_PERIOD = 0.3


@dataclasses.dataclass(frozen=True)
class Operation:
    """Something that a user asks of a server.

    :ivar name: for people
    :ivar body: of the request to ``/action``; None deletes the server
    :ivar status: of the server afterwards; None for no server
    """

    name: str
    body: dict | None
    status: str | None
    microversion: str = MICROVERSION


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of an operation: seconds, None where it was not done.

    :ivar why: what happened instead
    """

    seconds: float | None
    why: str = ''


REBOOT = Operation('reboot', {'reboot': {'type': 'HARD'}}, 'ACTIVE')
SOFT_REBOOT = Operation('soft reboot', {'reboot': {'type': 'SOFT'}}, 'ACTIVE')
STOP = Operation('stop', {'os-stop': None}, 'SHUTOFF')
START = Operation('start', {'os-start': None}, 'ACTIVE')
RESCUE = Operation('rescue', {'rescue': {}}, 'RESCUE')
UNRESCUE = Operation('unrescue', {'unrescue': None}, 'ACTIVE')
DELETE = Operation('delete', None, None)
FORCE_DELETE = Operation('force-delete', {'forceDelete': None}, None)


def rebuild(image, microversion=MICROVERSION):
    """Rebuild with an image, as clients of a microversion do."""
    return Operation(f'rebuild {microversion}',
                     {'rebuild': {'imageRef': image}}, 'ACTIVE', microversion)


@dataclasses.dataclass(frozen=True)
class Operator:
    """Does operations and waits for each, at most for ``bound`` seconds.

    :ivar cloud: :class:`lab.cloud.Cloud`
    :ivar is_held: function of a server: a machine is held for it
    :ivar clock: seconds
    """

    cloud: object
    is_held: collections.abc.Callable
    bound: float = 30.0
    clock: collections.abc.Callable = time.monotonic
    sleep: collections.abc.Callable = time.sleep

    def ask(self, server, operation):
        """Ask and do not wait; '' or why nova refused."""
        from keystoneauth1 import exceptions

        try:
            if operation.body is None:
                self.cloud.nova('DELETE', f'/servers/{server}')
            else:
                self.cloud.nova('POST', f'/servers/{server}/action',
                                operation.body, operation.microversion)
        except exceptions.HttpError as error:
            return f'refused: {error}'
        return ''

    def do(self, server, operation):
        """Ask and wait; returns the :class:`Outcome`."""
        began = self.clock()
        refused = self.ask(server, operation)
        if refused:
            return Outcome(None, refused)
        return self.wait(server, operation, began)

    def wait(self, server, operation, began):
        """Wait for an operation that was asked for; its Outcome.

        :param began: on the clock, where its seconds begin
        """
        deadline = self.clock() + self.bound
        while True:
            done, why = self._look(server, operation)
            now = self.clock()
            if done:
                return Outcome(round(now - began, 1))
            if now > deadline or done is None:
                return Outcome(None, why)
            self.sleep(_PERIOD)

    def _look(self, server, operation):
        """(True, False for not yet or None for failed, what is the case)."""
        from keystoneauth1 import exceptions

        try:
            found = self.cloud.nova('GET', f'/servers/{server}')['server']
        except exceptions.NotFound:
            if operation.status is not None:
                return None, 'the server is gone'
            return not self.is_held(server), 'gone, its machine is held'
        task = found['OS-EXT-STS:task_state']
        if task:
            return False, f'{found["status"]}, in {task}'
        if found['status'] == operation.status:
            return True, ''
        if found['status'] == 'ERROR' and operation.status is not None:
            fault = found.get('fault', {}).get('message', 'no fault')
            return None, f'ERROR: {fault}'
        return False, found['status']

    def chains(self, chains):
        """Do chains of operations at the same time, each in its order.

        A chain ends with the first operation that is not done.

        :param chains: list of (server, list of operations)
        :returns: {name of operation: Outcome}, in the order of the chains
        """
        def chain(server, operations):
            found = {}
            for operation in operations:
                found[operation.name] = self.do(server, operation)
                if found[operation.name].seconds is None:
                    break
            return found

        # Made when first used, and not for several at once.
        self.cloud.compute_services()
        with concurrent.futures.ThreadPoolExecutor(len(chains)) as pool:
            done = list(pool.map(lambda pair: chain(*pair), chains))
        result = {}
        for (_, operations), found in zip(chains, done, strict=True):
            for operation in operations:
                result[operation.name] = found.get(
                    operation.name, Outcome(None, 'not tried'))
        return result


def seconds(outcomes):
    """{name: seconds, or None where it was not done}."""
    return {name: outcome.seconds for name, outcome in outcomes.items()}


def not_done(outcomes):
    """{name: why}, of those that were not done."""
    return {name: outcome.why for name, outcome in outcomes.items()
            if outcome.seconds is None}


def ask_on(bench, host, labels, prefix):
    """Ask for a server for each label on a host, and do not wait for them.

    :param labels: names, which may be sentences
    :returns: {label: (uuid of the server, uuid of its node)}
    :raises LabError: when the host has too few free nodes
    """
    nodes = bootable(bench.recorder.view, host)
    if len(nodes) < len(labels):
        raise errors.LabError(
            f'{host} has {len(nodes)} free nodes and {len(labels)} are '
            'needed; take more with --nodes.')
    # One node each: the scheduler gives a request for one host no other
    # node to try when two of them collide.
    return {label: (bench.cloud.create(
        f'{prefix}-{number}', host=host, hypervisor_hostname=node), node)
        for number, (label, node)
        in enumerate(zip(labels, nodes, strict=False), 1)}


def boot_on(bench, host, labels, prefix):
    """Boot a server for each label on a host, all at the same time.

    :param labels: names, which may be sentences
    :returns: {label: (uuid of the server, uuid of its node)}
    :raises LabError: when the host has too few free nodes, or a server does
        not become active there
    """
    made = ask_on(bench, host, labels, prefix)
    servers = {server for server, _ in made.values()}

    def settled(seen):
        found = [seen.instance_of.get(server) for server in servers]
        return all(i and not i.task_state and i.vm_state != 'building'
                   for i in found)

    bench.recorder.wait_for(settled, BUILD_TIMEOUT, f'building {len(made)} '
                            'servers')
    seen = bench.recorder.view
    bad = [label for label, (server, _) in made.items()
           if seen.instance_of[server].vm_state != 'active']
    if bad:
        raise errors.LabError(
            f'{len(bad)} of {len(made)} servers did not become active on '
            f'{host}; see why with: tools/lab logs {host}')
    return made


def bootable(seen, host):
    """Free nodes of a host that placement would give away."""
    providers = seen.provider_of
    return [node for node in seen.free_of(host)
            if node in providers and not providers[node].used
            and providers[node].reserved < providers[node].total]


def usable(seen, nodes, host):
    """Whether builds can be sent to all of some nodes, and not to a host."""
    def is_usable(node):
        owner = seen.owner_of.get(node)
        service = seen.service_of.get(owner)
        provider = seen.provider_of.get(node)
        return (owner != host.lower() and service is not None and service.up
                and service.mapped and not service.disabled
                and provider is not None and provider.total
                and not provider.reserved)

    return all(map(is_usable, nodes))
