# SPDX-License-Identifier: Apache-2.0

"""Builds that a host has just got when it is killed, with a real RabbitMQ.

``python -m lab.delivery --url rabbit://...``, in an environment with nova and
this package. Builds are sent to a host that is killed and started again and
again, each time when a few have come, or were copied, a number that the seed
gives: it has taken others then, and is sending copies. It carries out none.

It is an RPC server of nova's, with the methods of nova's manager that this
package puts there. In the end it is left alone until all have been copied that
come; a build is lost of which there is no copy then, and none may wait in its
queue any more. With ``--stock`` builds are acknowledged when they come, as
oslo.messaging does.
"""

import functools
import json
import multiprocessing
import pathlib
import random
import sys
import tempfile
import time
import types

from lab import broker

HOST = 'host-1'

#: What is noted of a build.
CAME, BEGINS = 'came', 'begins'


def serve(stock, notes, ready, end):
    """Be the compute service, until killed or told to end.

    :param stock: acknowledge each build when it comes
    :param notes: which builds came, and were to begin
    """
    from nova.compute import manager
    from nova.compute import rpcapi
    from nova.objects import base
    from nova import rpc
    import oslo_messaging

    from nova_ironic_multihost.adapters import listeners
    from nova_ironic_multihost.adapters.patches import apply
    from nova_ironic_multihost.adapters.patches import handlers
    from nova_ironic_multihost.adapters.patches import operations
    from nova_ironic_multihost.adapters.patches import table
    from nova_ironic_multihost.adapters import rpc_queue

    copier = rpc_queue.BuildCopier(HOST)

    def copy(instance, node, arguments):
        notes.add(f'{instance} {CAME}')
        copier.copy(arguments)

    def begin(self, context, instance, *build, **arguments):
        notes.add(f'{instance.uuid} {BEGINS}')

    compute = object.__new__(manager.ComputeManager)
    compute.build_and_run_instance = types.MethodType(
        functools.wraps(manager.ComputeManager.build_and_run_instance)(
            begin), compute)
    layers = {operations.accept_build} | (
        set() if stock else {handlers.hold_builds})
    apply.apply(
        [row for row in table.rows() if row.layer in layers],
        {'manager': compute, 'transport': listeners.transport_driver()},
        types.SimpleNamespace(
            backups=types.SimpleNamespace(keep=copy),
            nodes=types.SimpleNamespace(adopt=lambda uuid, node: False),
            in_flight=types.SimpleNamespace(
                begin=lambda uuid: None, end=lambda uuid: None),
            attendance=listeners.Attendance()))
    server = rpc.get_server(oslo_messaging.Target(
        topic=rpcapi.RPC_TOPIC, server=HOST), [compute],
        base.NovaObjectSerializer())
    server.start()
    ready.set()
    while not end.is_set():
        # To wait for it would stop eventlet's threads.
        time.sleep(0.05)
    server.stop()
    server.wait()


def create():
    """Have the queue of copies, as the driver has."""
    from nova_ironic_multihost.adapters import rpc_queue

    # Of a topic of its own: no other queue of this broker is touched.
    box = rpc_queue.RpcQueues(None).open_copies(HOST)
    box.create()
    box.close()


class Trial:
    """One run.

    :param builds: uuids of the builds
    :param stock: see :func:`serve`
    :param notes: see :func:`serve`
    """

    def __init__(self, builds, chance, stock, notes):
        self._builds = builds
        self._chance = chance
        self._stock = stock
        self._notes = notes
        self._context = multiprocessing.get_context('fork')
        self._deadline = time.monotonic() + broker.DEADLINE

    def run(self, kills):
        """Send some, and kill, again and again; end politely.

        :param kills: how often the host is killed
        """
        host, end = self._host()
        create()
        share = (len(self._builds) - 1) // kills
        for kill in range(kills):
            sender = self._context.Process(target=broker.send, args=(
                HOST, self._builds[kill * share:(kill + 1) * share]))
            sender.start()
            self._wait(self._chance.choice((CAME, BEGINS)),
                       self._chance.randint(1, share))
            host.kill()
            host.join()
            if self._chance.random() < 0.5:
                # Some wait when it starts.
                sender.join()
            host, end = self._host()
            sender.join()
        self._settle()
        end.set()
        host.join(broker.DEADLINE)

    def _host(self):
        ready, end = self._context.Event(), self._context.Event()
        host = self._context.Process(
            target=serve, args=(self._stock, self._notes, ready, end),
            daemon=True)
        host.start()
        if not ready.wait(broker.DEADLINE):
            raise RuntimeError('The host did not start.')
        return host, end

    def _wait(self, what, more):
        """Wait until so many more notes are there."""
        goal = self._count(what) + more
        while self._count(what) < goal and time.monotonic() < self._deadline:
            time.sleep(0.0005)

    def _count(self, what):
        return sum(note.endswith(what) for note in self._notes.read())

    def _settle(self):
        """Wait until each build was to begin that is not lost."""
        # In the queue behind them all.
        broker.send(HOST, self._builds[-1:])
        awaited = self._builds[-1:] if self._stock else self._builds
        wanted = {f'{build} {BEGINS}' for build in awaited}
        while (not wanted <= {*self._notes.read()}
               and time.monotonic() < self._deadline):
            time.sleep(0.05)


def left(box, name):
    """Return the builds in a queue, a list, and delete it."""
    found = []
    while request := box.take():
        found.append(request.instance)
    box._box.queue_delete(name)
    box.close()
    return found


def judge(builds):
    """Return the figures, and delete the queues."""
    from nova.compute import rpcapi
    from nova_ironic_multihost.adapters import rpc_queue

    queues = rpc_queue.RpcQueues(None)
    waiting = left(queues.open(HOST), rpc_queue.queue(HOST))
    copied = left(queues.open_copies(HOST), rpc_queue.copies(HOST))
    box = queues.open(HOST)
    box._box.queue_delete(rpcapi.RPC_TOPIC)
    box._box.exchange_delete(rpcapi.RPC_TOPIC)
    box.close()
    return {'builds': len(builds),
            'lost': len({*builds} - {*waiting, *copied}),
            'unknown': len({*waiting, *copied} - {*builds}),
            'waiting': len(waiting), 'copies': len(copied)}


def main():
    """Run it once and print the figures as a line of JSON."""
    parser = broker.parser(__doc__)
    parser.add_argument('--stock', action='store_true')
    parser.add_argument('--prefetch', type=int, default=0)
    parser.add_argument('--share', type=int, default=10,
                        help='builds for each kill')
    parser.add_argument('--kills', type=int, default=20)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    builds = broker.draw(chance, options.share * options.kills + 1)
    broker.configure(options.url, options.quorum, options.prefetch)
    with tempfile.TemporaryDirectory() as directory:
        notes = broker.Notes(pathlib.Path(directory) / 'came')
        Trial(builds, chance, options.stock, notes).run(options.kills)
        figures = judge(builds) | {'seed': options.seed}
    print(json.dumps(figures))
    return int(any(figures[bad] for bad in ('lost', 'unknown', 'waiting')))


if __name__ == '__main__':
    sys.exit(main())
