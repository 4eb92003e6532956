# SPDX-License-Identifier: Apache-2.0

"""What experiments with servers of a dead or lost compute have in common."""

import dataclasses
import time

from lab.bench import criteria
from lab.bench import operations
from lab import errors
from lab import ledger
from lab import timeline

# Seconds in which an operation of a user has to be over.
BOUND = 30.0
# Taking over is a matter of one audit or two, and of how busy the machine is
# that all of nova runs on; how long it took is told.
AUDITS = 3.0
BUSY = 60.0
# The reaper of nova-compute runs every 5 s here.
RETURNED = 15.0

START_AGAIN = dataclasses.replace(operations.START, name='start again')

#: What must be of its servers before that.
MEANWHILE = (
    criteria.none('error', '{} servers are in ERROR'),
    criteria.none('stuck', '{} servers are stuck in the middle of '
                  'something'))


class Servers:
    """Servers that were booted on one compute, and what becomes of them.

    Each has a label, which says what it is for.

    :param bench: :class:`lab.bench.bench.Bench`
    :param host: the compute
    :param made: {label: (uuid of the server, uuid of its node)}
    """

    def __init__(self, bench, host, made):
        self._bench = bench
        self.host = host
        self.made = dict(made)

    def __getitem__(self, label):
        return self.made[label][0]

    def await_taken_over(self, patience):
        """When all are taken over; None when they are not in time.

        :param patience: seconds that it may last on a machine at rest
        """
        uuids = [server for server, _ in self.made.values()]
        try:
            at = self._bench.recorder.wait_for(
                lambda seen: taken_over(seen, self.host, uuids),
                patience + BUSY, f'servers of {self.host} being taken over')
        except timeline.NeverHappened:
            self._bench.note('servers are not taken over')
            return None
        self._bench.note('servers are taken over')
        return at

    def start_again(self, label):
        """A chain of operations for a server, if it was stopped meanwhile.

        It must not be stopped once more by what waits in the queue.

        :returns: {label: list of Operation}, or nothing
        """
        instance = self._bench.recorder.view.instance_of.get(self[label])
        if instance is None or instance.vm_state != 'stopped':
            return {}
        return {label: [START_AGAIN]}

    def operator(self, bound=BOUND):
        """An Operator that knows which machines are held."""
        recorder = self._bench.recorder
        return operations.Operator(
            self._bench.cloud, lambda server: holds(recorder.view, server),
            bound)

    def ledger(self):
        """The Ledger of these servers and their machines."""
        return ledger.read(
            self._bench.settings, [s for s, _ in self.made.values()],
            [node for _, node in self.made.values()])

    def meanwhile(self, kept):
        """Figures of a Ledger: error and stuck."""
        living = [s for s in kept.servers.values() if not s.deleted]
        return {'error': sum(1 for s in living if s.vm_state == 'error'),
                'stuck': sum(1 for s in living if s.task_state)}

    def returned(self, before, after):
        """Figures of what the compute did after it had returned.

        :param before: the Ledger right before
        :param after: the one when all was at rest again
        """
        touched = ledger.touched(before, after)
        return {'changed': ledger.differences(before, after),
                'touched': [label for label, (_, node) in self.made.items()
                            if node in touched],
                'deeds': ledger.deeds_of(before, after, self.host)}

    def delete(self):
        """Delete those that are left; one that does not go is a finding."""
        seen = self._bench.recorder.view
        try:
            self._bench.cloud.delete(
                server for server, _ in self.made.values()
                if (instance := seen.instance_of.get(server))
                and not instance.deleted)
        except errors.LabError as error:
            self._bench.say(str(error))


class Rests:
    """Notes when servers that were asked for something were at rest.

    :param bench: the Bench, whose recorder is listened to
    :param asked: {label: (uuid, Operation)}, asked for by now
    """

    def __init__(self, bench, asked):
        self._bench = bench
        self._asked = asked
        # A look that began before is one of the time before.
        self._since = time.time() + 1
        self._at = {}
        bench.recorder.listen(self.see)

    def see(self, seen):
        """Learn from an Observation."""
        if seen.at < self._since:
            return
        now = self._bench.recorder.now()
        for label, (server, operation) in self._asked.items():
            if at_rest(seen, server, operation.status is None):
                self._at.setdefault(label, now)

    def seconds(self, since, patience):
        """{label: seconds}, None for those that are not at rest in time.

        :param since: when the seconds begin
        """
        try:
            self._bench.recorder.wait_for(
                lambda seen: len(self._at) == len(self._asked), patience,
                'rest')
        except timeline.NeverHappened:
            self._bench.say('not all servers are at rest')
        return {label: between(since, self._at.get(label))
                for label in self._asked}


def bring_back(bench, name, fenced=True):
    """Start a dead compute, and take the fence away when it lives.

    :returns: (when it was started, when nova calls it up)
    """
    started = bench.note(f'start {name}')
    bench.computes.start(name)
    if fenced:
        bench.note(f'unfence {name}')
        bench.computes.unfence(name)
    return started, bench.await_up(name)


def holds(seen, server):
    """Whether Ironic holds a machine for a server."""
    return any(node.instance_uuid == server for node in seen.nodes)


def taken_over(seen, host, servers):
    """Whether each server is on a live compute with the record of its node.

    And nova's API takes requests for it: it refuses them while the new owner
    looks what is to be finished.

    :param seen: an Observation
    :param host: the compute that they were on
    :param servers: uuids; those that are gone do not count
    """
    from nova_ironic_multihost.rules import takeover

    for server in servers:
        instance = seen.instance_of.get(server)
        if instance is None or instance.deleted:
            continue
        if (instance.host_key == host.lower()
                or instance.host_key not in seen.up_hosts
                or seen.owner_of.get(instance.node) != instance.host_key
                or takeover.is_mark(instance.task_state)):
            return False
    return True


def at_rest(seen, server, gone):
    """Whether nothing goes on with a server any more.

    :param gone: whether it must be gone for that, its machine too
    """
    instance = seen.instance_of.get(server)
    if instance is None or instance.deleted:
        return not holds(seen, server)
    return not gone and not instance.task_state


def between(since, at):
    """Seconds from one time to another, None when one is not known."""
    if since is None or at is None:
        return None
    return round(at - since, 1)


def undisturbed(figures, when):
    """Sentences on what :meth:`Servers.returned` told.

    :param when: what each begins with
    """
    return [*(f'{when}{sentence}' for sentence in figures['changed']),
            *criteria.unmet(figures, criteria.none(
                'touched', 'something was done to the machines of: {}'),
                when=when)]


def undone(figures):
    """Sentences on asked_before and not_done, which several have."""
    return [*(f'{label}: neither done nor given up'
              for label, seconds in figures['asked_before'].items()
              if seconds is None),
            *(f'{operation}: {why}'
              for operation, why in figures['not_done'].items())]
