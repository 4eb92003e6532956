# SPDX-License-Identifier: Apache-2.0

"""The acts of the demo; each fills in its part of the Story."""

import collections

from lab.bench import operations
from lab.bench import takeover
from lab import errors

SERVERS = 6
LEAD = 4.0      # seconds before the first event that the picture shows
REST = 30.0     # seconds until a request that waited must be over
SEEN = 30.0     # seconds until the databases show what nova's API shows

#: The event by which nova writes down that a compute reboots a server.
REBOOTING = 'compute_reboot_instance'


class Play:
    """Plays the demo on a lab that is up.

    :param bench: :class:`lab.bench.bench.Bench`
    :param story: :class:`lab.demo.story.Story` to be filled in
    """

    def __init__(self, bench, story):
        self._bench = bench
        self._story = story
        self._killed_at = 0.0
        self._waiting = None
        self._servers = None

    def settle(self):
        """Wait until nodes are in their places; where the picture begins."""
        bench = self._bench
        if not bench.settle().quiet:
            raise errors.LabError(
                'The nodes never stopped moving after the start; look at '
                'tools/lab logs compute-1')
        return max(0.0, bench.recorder.now() - LEAD)

    def boot(self):
        """Boot servers, wherever the scheduler puts them."""
        bench, story = self._bench, self._story
        story.split = tuple(bench.recorder.timeline.split())
        story.servers = SERVERS
        at = bench.note(f'boot {SERVERS} servers')
        servers = bench.cloud.boot(SERVERS, 'demo')
        story.boot = bench.recorder.now() - at
        self._insist_active(servers)
        bench.say(f'{SERVERS} servers are ACTIVE')

    def lose(self):
        """Kill a compute with servers; wait for its free nodes."""
        bench, story = self._bench, self._story
        name = victim(bench.recorder.view, bench.computes.names())
        seen = bench.recorder.view
        free = seen.free_of(name)
        self._servers = takeover.Servers(
            bench, name, servers_of(seen, name))
        story.killed, story.free = name, len(free)
        story.stranded = len(self._servers.made)
        self._killed_at = killed = bench.kill(name)
        # Nobody knows yet: it waits in the queue of the dead compute.
        story.rebooted = min(self._servers.made)
        server = self._servers[story.rebooted]
        bench.say(f'ask for a reboot of {story.rebooted}, which is on {name}')
        if why := self._servers.operator().ask(server, operations.REBOOT):
            raise errors.LabError(f'A reboot of {story.rebooted} was {why}')
        self._waiting = takeover.Rests(
            bench, {story.rebooted: (server, operations.REBOOT)})
        story.noticed = bench.await_down(name) - killed
        bench.await_arrival(name, free)
        timeline = bench.recorder.timeline
        story.arrived = timeline.arrived(free, name.lower(), killed)
        story.moves = len(timeline.moves(killed))

    def boot_again(self):
        """Boot one more server while the compute is dead."""
        bench, story = self._bench, self._story
        at = bench.note('boot another server')
        [server] = bench.cloud.boot(1, 'demo-again')
        story.again = bench.recorder.now() - at
        self._insist_active([server])
        story.again_on = bench.recorder.view.instance_of[server].host
        bench.say(f'it is ACTIVE on {story.again_on}')

    def take_over(self):
        """Fence the compute; ask again for the reboot, where it is then."""
        bench, story, servers = self._bench, self._story, self._servers
        fenced = bench.note(f'fence {story.killed}')
        bench.computes.fence(story.killed)
        taken = servers.await_taken_over(takeover.AUDITS * bench.audit)
        story.taken = takeover.between(fenced, taken)
        if taken is None:
            return
        hosts = self._hosts()
        story.taken_by = dict(collections.Counter(hosts.values()))
        # nova gives up a reboot that had not begun; the user asks again.
        story.waited = self._waiting.seconds(fenced, REST)[story.rebooted]
        story.rebooted_on = hosts[story.rebooted]
        bench.note(f'reboot {story.rebooted} on {story.rebooted_on}')
        done = servers.operator().do(
            servers[story.rebooted], operations.REBOOT)
        story.reboot, story.reboot_why = done.seconds, done.why
        bench.say(f'{story.rebooted} is ACTIVE' if done.seconds is not None
                  else done.why)
        bench.recorder.watch(2)

    def bring_back(self):
        """Start the compute again; see what it does, and what moves."""
        bench, story, servers = self._bench, self._story, self._servers
        before = servers.ledger()
        started, up = takeover.bring_back(bench, story.killed)
        story.up_again = up - started
        rest = bench.settle()
        after = servers.ledger()
        story.after_return = servers.returned(before, after)
        story.reboots = [
            deed.host for deed in after.deeds
            if deed.server == servers[story.rebooted]
            and deed.what == REBOOTING]
        timeline = bench.recorder.timeline
        story.returned = len(bench.recorder.view.free_of(story.killed))
        bench.say(f'{story.returned} free nodes are on {story.killed}, and '
                  'stay')
        story.moves_back = len(timeline.moves(started))
        story.on_dead = timeline.on_dead_hosts(started, free=True)
        story.moved = bench.moved(self._killed_at) | {'quiet': rest.quiet}

    def _insist_active(self, servers):
        """All servers are active, and in a view from now on."""
        recorder = self._bench.recorder
        recorder.watch(2)
        for server in self._bench.cloud.servers():
            if server['id'] in servers and server['status'] != 'ACTIVE':
                fault = server.get('fault', {}).get('message', 'no fault')
                host = server['OS-EXT-SRV-ATTR:host'] or 'nova-scheduler'
                raise errors.LabError(
                    f'{server["name"]} is {server["status"]}, nova says: '
                    f'{fault}; look at tools/lab logs {host}')
        recorder.wait_for(
            lambda seen: all(uuid in seen.instance_of for uuid in servers),
            SEEN, 'nova writing down the servers')

    def _hosts(self):
        """{name of a server that was on the dead compute: its compute}."""
        seen = self._bench.recorder.view
        return {label: seen.instance_of[uuid].host
                for label, (uuid, _) in self._servers.made.items()}


def victim(seen, names):
    """The compute that dies: most servers, then most free nodes.

    :param seen: an Observation
    :param names: of the computes
    """
    return max((name for name in names if name.lower() in seen.up_hosts),
               key=lambda name: (len(servers_of(seen, name)),
                                 len(seen.free_of(name))))


def servers_of(seen, host):
    """{name: (uuid of the server, uuid of its node)} of a compute."""
    return {instance.name: (instance.uuid, instance.node)
            for instance in seen.instances
            if instance.host_key == host.lower() and not instance.deleted}
