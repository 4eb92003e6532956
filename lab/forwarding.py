# SPDX-License-Identifier: Apache-2.0

"""Builds in the queue of a dead host, with a real RabbitMQ and real deaths.

``python -m lab.forwarding --url rabbit://...``, in an environment with nova
and this package. Builds are sent to a host that is killed and started again
and again, and so is the reader of its queue, while two other hosts live.

The hosts are RPC servers of nova's: they are sent all that waits at once. What
the dead one had taken is lost with it, queue or not, so it writes down what
it takes, before it acknowledges; nothing else may be missing in the end. It
hangs after so many, until it is killed: however slow the machine is, most
builds are left for the reader, among them such as were on their way to it.
What arrives twice is counted: the guard of the driver lets it in once. The
reader is the driver's, with nova's answers made up. It pauses between sending
a build on and acknowledging it, so that it is killed there, too.

Nothing is judged by time: each kill comes after so many builds have arrived,
a number that the seed gives, and the judgement when each build is somewhere.
"""

import json
import multiprocessing
import pathlib
import random
import sys
import tempfile
import time
import types

from lab import broker

DEAD, LIVE = 'dead', ('live-1', 'live-2')

#: Seconds between sending a build on and acknowledging it.
PAUSE = 0.01


def serve(hosts, notes, ready, most=None):
    """Be the compute services of some hosts, until killed.

    :param notes: which builds have come
    :param most: how many are taken, None for all that come
    """
    from nova.compute import rpcapi
    from nova import rpc
    import oslo_messaging
    from oslo_messaging._drivers import amqpdriver

    class Listener(amqpdriver.RpcAMQPListener):
        left = most

        def __call__(self, message):
            while self.left == 0:
                time.sleep(60)
            if self.left is not None:
                self.left -= 1
            notes.add(message['args']['instance']['nova_object.data']['uuid'])
            super().__call__(message)

    class Endpoint:
        target = oslo_messaging.Target(version='6.9')

        def build_and_run_instance(self, context, **arguments):
            pass

    amqpdriver.RpcAMQPListener = Listener
    for host in hosts:
        rpc.get_server(oslo_messaging.Target(
            topic=rpcapi.RPC_TOPIC, server=host), [Endpoint()]).start()
    ready.set()
    while True:
        time.sleep(60)


def read():
    """Be the reader of the dead host's queue, until killed."""
    from nova_ironic_multihost.adapters import rpc_queue
    from nova_ironic_multihost.engine.builds import build_backups
    from nova_ironic_multihost.engine.builds import queue_forwarder
    from nova_ironic_multihost.rules import model
    from nova_ironic_multihost.rules import peers
    from nova_ironic_multihost.rules import ring

    class Slow(rpc_queue.RpcQueue):
        def drop(self, letter):
            time.sleep(PAUSE)
            super().drop(letter)

    rpc_queue.RpcQueue = Slow
    state = model.InstanceState(
        None, vm_state='building', task_state='scheduling')
    view = peers.view(
        [peers.ComputeService(DEAD, up=False, forced_down=True),
         *(peers.ComputeService(host, up=True) for host in LIVE)],
        peers.Partition(), LIVE[0])
    # Each build has the node that is called as it is.
    sources = types.SimpleNamespace(
        instance_states=lambda uuids: dict.fromkeys(uuids, state),
        consumers=lambda node: frozenset({node}),
        records=lambda nodes: [model.Record(node, DEAD) for node in nodes])
    preferences = ring.Preferences(dict.fromkeys(LIVE), 32)
    auditor = types.SimpleNamespace(
        cloud=sources, preferences=preferences, last=types.SimpleNamespace(
            host_aggregates=peers.KnownAggregates()))
    looks = types.SimpleNamespace(view=view, eligible=frozenset({DEAD}))
    host = preferences.ring.host_for(DEAD)
    reader = queue_forwarder.QueueForwarder(
        host,
        rpc_queue.RpcQueues(None),
        auditor,
        looks,
        build_backups.RequestSorter(
            host,
            auditor,
            looks,
            types.SimpleNamespace(count=lambda instance: 0),
        ),
    )
    while True:
        reader.once()
        time.sleep(0.05)


class Trial:
    """One run: who lives, and what has come.

    :param directory: where notes are kept
    :param builds: uuids of the builds
    """

    def __init__(self, directory, builds, chance):
        self._builds = builds
        self._chance = chance
        self._context = multiprocessing.get_context('fork')
        self._deadline = time.monotonic() + broker.DEADLINE
        self.taken = broker.Notes(directory / 'taken')
        self.arrived = broker.Notes(directory / 'arrived')
        self._running = []

    def start(self, target, *arguments):
        """Start a process and return it."""
        process = self._context.Process(
            target=target, args=arguments, daemon=True)
        process.start()
        self._running.append(process)
        return process

    def host(self, most):
        """Start the host that dies, and return it when it listens.

        :param most: how many builds it takes
        """
        return self._serve([DEAD], self.taken, most)

    def live(self):
        """Start the hosts that live."""
        self._serve(LIVE, self.arrived)

    def _serve(self, hosts, notes, most=None):
        ready = self._context.Event()
        process = self.start(serve, hosts, notes, ready, most)
        if not ready.wait(broker.DEADLINE):
            raise RuntimeError(f'{hosts} did not start')
        return process

    def found(self):
        """Return the builds that have come anywhere."""
        return {*self.taken.read(), *self.arrived.read()}

    def wait(self, notes, more):
        """Wait until so many more notes are there, or each build is found."""
        goal = len(notes.read()) + more
        while len(notes.read()) < goal and not self.done():
            if time.monotonic() > self._deadline:
                return
            time.sleep(0.002)

    def done(self):
        """Whether each build has come somewhere."""
        return self.found() >= {*self._builds}

    def run(self, kills, returns):
        """Send, and kill.

        :param kills: how often the reader is killed
        :param returns: how often the host returns, and is killed
        """
        self.host(0).kill()
        self.live()
        sender = self.start(broker.send, DEAD, self._builds)
        share = len(self._builds) // (kills + 2 * returns + 2)
        acts = ['kill'] * kills + ['return'] * returns
        self._chance.shuffle(acts)
        reader = self.start(read)
        for act in acts:
            if act == 'return':
                # Whoever has a message has it: both read for a moment.
                most = self._chance.randint(1, share)
                host = self.host(most)
                self.wait(self.taken, most)
                host.kill()
                host.join()
                continue
            self.wait(self.arrived, self._chance.randint(1, share))
            reader.kill()
            reader.join()
            reader = self.start(read)
        sender.join()
        while not self.done() and time.monotonic() < self._deadline:
            time.sleep(0.05)

    def end(self):
        """Kill whoever lives, and return the figures."""
        for process in self._running:
            process.kill()
            process.join()
        taken, arrived = self.taken.read(), self.arrived.read()
        return {
            'builds': len(self._builds),
            'lost': len({*self._builds} - {*taken, *arrived}),
            'unknown': len({*taken, *arrived} - {*self._builds}),
            'taken_by_the_dead': len(taken),
            'handed_on': len({*arrived}),
            'duplicates': len(taken) + len(arrived) - len(
                {*taken, *arrived})}


def clean_up():
    """Delete the queues; return what was left in that of the dead host."""
    from nova.compute import rpcapi
    from nova_ironic_multihost.adapters import rpc_queue

    box = rpc_queue.RpcQueues(None).open(DEAD)
    left = box._box.queue_delete(rpc_queue.queue(DEAD))
    for name in (rpcapi.RPC_TOPIC, *map(rpc_queue.queue, LIVE)):
        box._box.queue_delete(name)
    box._box.exchange_delete(rpcapi.RPC_TOPIC)
    box.close()
    return left


def main():
    """Run it once and print the figures as a line of JSON."""
    parser = broker.parser(__doc__)
    parser.add_argument('--builds', type=int, default=200)
    parser.add_argument('--kills', type=int, default=6)
    parser.add_argument('--returns', type=int, default=3)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    builds = broker.draw(chance, options.builds)
    broker.configure(options.url, options.quorum)
    with tempfile.TemporaryDirectory() as directory:
        trial = Trial(pathlib.Path(directory), builds, chance)
        try:
            trial.run(options.kills, options.returns)
        finally:
            figures = trial.end()
    figures |= {'left_in_the_queue': clean_up(), 'seed': options.seed}
    print(json.dumps(figures))
    return 1 if figures['lost'] or figures['unknown'] else 0


if __name__ == '__main__':
    sys.exit(main())
