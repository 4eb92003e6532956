# SPDX-License-Identifier: Apache-2.0

"""A nova-compute that audits when it is told, and says what that cost.

Runs in the environment of the lab, with the configuration of one of its
computes; nova's timers do not run, nor do ours until it is told to watch.
Reads commands from stdin, each a line of JSON: the name of a method of
:class:`Compute` and what it is called with. Answers each with a line of JSON
on stdout.
"""

import collections
from concurrent import futures
import contextlib
import functools
import json
import os
import sys
import time
import urllib.parse

from benchmarks import watching

#: Seconds between two claims, or between two looks whether something is done.
PAUSE = 0.05

#: Seconds from one turn of most timers to the next, with nova's defaults.
PERIOD = 10


def _memory(name):
    """Return a line of /proc/self/status, in MB."""
    with open('/proc/self/status') as lines:
        for line in lines:
            if line.startswith(name):
                return int(line.split()[1]) / 1024
    raise KeyError(name)


class Clock:
    """Stands for the module time: its clocks, but ahead by some seconds."""

    def __init__(self):
        self.ahead = 0

    def __getattr__(self, name):
        return getattr(time, name)

    def time(self):
        """Return the seconds since the epoch."""
        return time.time() + self.ahead

    def monotonic(self):
        """Return the seconds since some moment."""
        return time.monotonic() + self.ahead

    @contextlib.contextmanager
    def imported(self):
        """Let modules that are imported for the first time have it."""
        sys.modules['time'] = self
        try:
            yield
        finally:
            sys.modules['time'] = time


class Meter:
    """Counts what this process uses while it does something."""

    def __init__(self):
        from keystoneauth1 import session
        from oslo_messaging.rpc import client

        self._bytes = 0
        self._asked = collections.Counter()
        self._told = collections.Counter()
        request = session.Session.request
        call = client._BaseCallContext.call

        def count(*args, **kwargs):
            answer = request(*args, **kwargs)
            port = urllib.parse.urlsplit(answer.url).port
            self._asked[port] += 1
            if answer.request.method != 'GET':
                self._told[port] += 1
            self._bytes += len(answer.content)
            return answer

        def count_call(*args, **kwargs):
            self._asked['conductor'] += 1
            return call(*args, **kwargs)

        session.Session.request = count
        client._BaseCallContext.call = count_call

    def measure(self, act):
        """Return {name: figure} of doing something.

        ``wall`` and ``cpu`` in seconds, ``peak``: growth of memory in MB,
        ``requests`` and ``megabytes`` of all HTTP, ``asked``: {port, or
        ``conductor``: number of requests}, ``told``: the same of those that
        are no GET, ``result``.
        """
        with open('/proc/self/clear_refs', 'w') as peak:
            # The peak begins anew.
            peak.write('5')
        before = _memory('VmRSS')
        self._bytes = 0
        self._asked.clear()
        self._told.clear()
        wall, cpu = time.perf_counter(), time.process_time()
        result = act()
        asked = dict(self._asked)
        return {'wall': time.perf_counter() - wall,
                'cpu': time.process_time() - cpu,
                'peak': _memory('VmHWM') - before,
                'requests': sum(asked.values()) - asked.get('conductor', 0),
                'megabytes': self._bytes / 1e6, 'asked': asked,
                'told': dict(self._told), 'result': result}


class Compute:
    """The compute service, without nova's timers."""

    def __init__(self, file):
        from nova.conductor import rpcapi
        import nova.conf
        from nova import config
        from nova import context
        from nova import objects
        from nova.objects import base

        objects.register_all()
        config.parse_args(['nova-compute', '--config-file', file])
        base.NovaObject.indirection_api = rpcapi.ConductorAPI()
        from nova.compute import manager
        from nova.scheduler.client import report
        from nova.virt.ironic import driver  # noqa: F401

        self._clock = report.time = Clock()
        with self._clock.imported():
            from nova_ironic_multihost import loader

            # In a nova-compute os-vif does that.
            loader.register()
            self._manager = manager.ComputeManager()
        self._context = context.get_admin_context()
        self._driver = self._manager.driver
        #: What ours has besides; None with nova's own driver.
        self._ours = getattr(self._driver, 'service', None)
        self._nodes = getattr(self._ours, 'nodes', None)
        self._counted = collections.Counter()
        self._count(self._manager.rt)
        self._service = objects.Service.get_by_host_and_binary(
            self._context, nova.conf.CONF.host, 'nova-compute')
        self._manager.rt.set_service_ref(self._service)
        self._driver.init_host(nova.conf.CONF.host)

    def _count(self, tracker):
        """Count the nodes that nova's tracker audits."""
        audit = tracker.update_available_resource

        def counted(*args, **kwargs):
            self._counted['audited'] += 1
            try:
                audit(*args, **kwargs)
            except Exception:
                self._counted['failed'] += 1
                raise

        tracker.update_available_resource = counted

    def audit(self):
        """Do what nova does at an audit before it comes to the tracker."""
        nodes = self._driver.get_available_nodes(refresh=True)
        records = self._manager._get_compute_nodes_in_db(
            self._context, set(nodes), use_slave=True)
        # The driver's peer polls go on between two audits.
        if poll := getattr(self._nodes, 'poll_peers', None):
            poll()
        return {'nodes': len(nodes), 'records': len(records)}

    def start(self):
        """Do the first audit, as nova does before it listens for builds.

        :returns: see :meth:`update`.
        """
        return self._audited(
            lambda: self._manager.pre_start_hook(self._service))

    def update(self):
        """Do all that nova does at an audit, the tracker included.

        :returns: number of nodes that the tracker was given.
        :raises RuntimeError: it has failed on some; nova logs only.
        """
        return self._audited(lambda: self._manager.update_available_resource(
            self._context))

    def _audited(self, act):
        self._counted.clear()
        act()
        if failed := self._counted['failed']:
            raise RuntimeError(f'The tracker has failed on {failed} nodes')
        return self._counted['audited']

    def claim(self, builds, auditing=False):
        """Claim nodes for builds one after another, and abort each claim.

        :param builds: [uuid of the server, node, resource class] of each.
        :param auditing: audit in another thread meanwhile, once, and begin
            no claim after that.
        :returns: seconds of each claim.
        """
        if not auditing:
            return [self._claim(*build) for build in builds]
        found = []
        with futures.ThreadPoolExecutor(1) as pool:
            audit = pool.submit(self.update)
            for build in builds:
                if audit.done():
                    break
                found.append(self._claim(*build))
            audit.result()
        return found

    def _claim(self, server, node, resource_class):
        from nova import objects

        # As nova-conductor sends it with a build.
        instance = objects.Instance.get_by_uuid(
            self._context, server, expected_attrs=[
                'flavor', 'info_cache', 'metadata', 'numa_topology',
                'pci_requests', 'resources', 'system_metadata'])
        begin = time.perf_counter()
        claim = self._manager.rt.instance_claim(
            self._context, instance, node,
            {node: {'resources': {resource_class: 1}}}, {})
        seconds = time.perf_counter() - begin
        claim.abort()
        return seconds

    def switch(self, enabled, builds):
        """Enable or disable the service as nova-api does, and claim meanwhile.

        :param builds: see :meth:`claim`; claims end when all is done.
        :returns: seconds of the request, see :meth:`_claim_while`.
        """
        self._service.disabled = not enabled
        self._service.save()
        answered = []

        def request():
            begin = time.perf_counter()
            self._manager.set_host_enabled(self._context, enabled=enabled)
            answered.append(time.perf_counter() - begin)
            # What ours does then, within seconds.
            if poll := getattr(self._nodes, 'poll_peers', None):
                poll()
            self.keep_up()

        its = self._claim_while(request, builds)
        return {'request': answered[0], **its}

    def work(self, builds):
        """Audit, do what the driver does until the next one, claim meanwhile.

        :param builds: see :meth:`claim`.
        :returns: what :meth:`_claim_while` does, and ``seconds`` of the audit
            and ``after`` it.
        """
        took = []

        def act():
            took.append(time.perf_counter())
            self._manager.update_available_resource(self._context)
            took.append(time.perf_counter())
            if poll := getattr(self._nodes, 'poll_peers', None):
                poll()
            self.keep_up()
            took.append(time.perf_counter())

        its = self._claim_while(act, builds)
        begin, audited, done = took
        return {'seconds': audited - begin, 'after': done - audited, **its}

    def _claim_while(self, act, builds):
        """Claim nodes for builds until something is done, and abort that.

        :returns: dict of ``claims``: seconds of each, ``refused``: number of
            those that failed, ``audited``: nodes that the tracker audited.
        """
        self._counted.clear()
        found, refused = [], 0
        with futures.ThreadPoolExecutor(1) as pool:
            acting = pool.submit(act)
            for build in builds:
                if acting.done():
                    break
                try:
                    found.append(self._claim(*build))
                except Exception as exc:  # noqa: BLE001
                    print(f'A claim failed: {exc!r}', file=sys.stderr)
                    refused += 1
                time.sleep(PAUSE)
            acting.result()
        return {'claims': found, 'refused': refused,
                'audited': self._counted['audited']}

    def tasks(self):
        """Return the names of nova's periodic tasks but for the audit."""
        return [name for name, _ in type(self._manager)._periodic_tasks
                if name != 'update_available_resource']

    def task(self, name):
        """Do a periodic task, and what it has begun in other threads."""
        getattr(self._manager, name)(self._context)
        while self._manager._syncs_in_progress:
            time.sleep(PAUSE / 10)

    def poll(self):
        """Look for changes, if the driver does that."""
        if poll := getattr(self._nodes, 'poll_ironic', None):
            poll()

    def peer_poll(self):
        """Look who is there, and take what is mine, but for audits of it.

        :returns: number of nodes that came: whose records were moved, or that
            nova's tracker would be given.
        """
        came, tracker = [], self._ours.tracker
        move = type(tracker).move

        def moved(records, *more):
            found = move(tracker, records, *more)
            came.extend(found)
            return found

        tracker.audit, tracker.move = came.append, moved
        self._nodes.poll_peers()
        return len(came)

    def notice(self):
        """Look, if the driver looks: a host that is down is not dead yet."""
        if poll := getattr(self._nodes, 'poll_peers', None):
            poll()

    def react(self):
        """Do what the driver does about who has come or gone."""
        if poll := getattr(self._nodes, 'poll_peers', None):
            poll()
        else:
            self.update()

    def serve(self, file):
        """Do what the driver does every few seconds until a file is there.

        :returns: uuids of the nodes that nova's tracker knows by then.
        """
        for thread in self._ours.threads.values():
            thread.start()
        while not os.path.exists(file):
            time.sleep(PAUSE)
        for thread in self._ours.threads.values():
            thread.stop()
        return sorted(self._manager.rt.compute_nodes)

    def keep_up(self):
        """Audit in the background what is to be audited, if it does that."""
        background = getattr(self._ours, 'background_audit', None)
        if background:
            background.once()

    def watch(self, pause):
        """Poll every few seconds from now on, as the driver does."""
        self._watching = watching.Watching(self._driver, pause)

    def known(self):
        """Return {uuid: content} of all nodes, see :mod:`.watching`."""
        return watching.contents(self._ours.lister.mirror)

    def watched(self):
        """Stop that; return what it has seen."""
        return self._watching.end()

    def pass_time(self, seconds):
        """Have the lister take it for some seconds later."""
        if reader := getattr(self._ours, 'lister', None):
            clock = reader._clock
            reader._clock = lambda: clock() + seconds

    def later(self, seconds):
        """Have placement's client and the driver take it for later."""
        self._clock.ahead += seconds

    def idle(self, minutes):
        """Do what the driver and nova's audits do in some minutes.

        But for what nova's tracker is given.
        """
        timers = {name: task for thread in self._ours.threads.values()
                  for name, task in thread.tasks.items()}
        # What it has to audit it would audit.
        del timers['background_audit']
        for second in range(0, 60 * minutes, PERIOD):
            if second % 60 == 0:
                self.audit()
            for one in timers.values():
                if second % round(one._seconds()) == 0:
                    one.run()
            self._clock.ahead += PERIOD

    def minute(self):
        """Do what is done in a minute."""
        for _ in range(6):
            self.pass_time(10)
            self.poll()
        return self.audit()


def main():
    """Serve the commands of stdin."""
    answers = os.fdopen(os.dup(1), 'w', buffering=1)
    # Whoever prints otherwise does not disturb.
    os.dup2(2, 1)
    compute = Compute(sys.argv[1])
    meter = Meter()
    answers.write('"ready"\n')
    for line in sys.stdin:
        name, *values = json.loads(line)
        answers.write(json.dumps(meter.measure(functools.partial(
            getattr(compute, name), *values))) + '\n')


if __name__ == '__main__':
    main()
