# SPDX-License-Identifier: Apache-2.0

"""A message bus of plain values, and what stands on it."""

import collections
import contextlib

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.builds import build_backups
from nova_ironic_multihost.engine.builds import queue_forwarder
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.liveness import Heartbeats
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine import cloud

NODES = cloud.NODES
WAITING = InstanceState(None, vm_state='building', task_state='scheduling')


class Bus:
    """A message bus: the queues of hosts, and who has which message.

    :ivar queues: host -> what waits there.
    :ivar nacks: queues that take nothing for the moment.
    :ivar consumers: how many read the queue of a host.
    :ivar breaks: raised by whatever is asked next, if not None.
    :ivar heartbeat: seconds; a connection over which nothing comes for twice
        as long is closed. Never by default: tests let hours pass at once.
    """

    readable = True
    heartbeat = float('inf')

    def __init__(self, clock):
        self.clock = clock
        self.queues = collections.defaultdict(list)
        self.consumers = collections.Counter()
        self.missing = set()
        self.forbids = set()
        self.nacks = set()
        self.opened = []
        self.breaks = None
        self.quorum = False
        self.held = 0
        self.on_take = lambda: None

    def open(self, host):
        self.check()
        self.opened.append(host)
        return Box(self, host)

    def open_copies(self, host):
        self.check()
        return Box(self, f'{host} copies')

    def check(self):
        if self.breaks is not None:
            raise self.breaks


class Box:

    def __init__(self, bus, host):
        self.bus, self.host = bus, host
        self.taken = []
        self.closed = False
        self.heard = bus.clock()

    def use(self):
        """See that the bus has not closed the connection."""
        self.bus.check()
        if self.lost:
            raise OSError('closed')
        self.heard = self.bus.clock()

    @property
    def lost(self):
        return self.closed or (
            self.bus.clock() - self.heard > 2 * self.bus.heartbeat)

    def consumers(self):
        self.use()
        if self.host in self.bus.forbids:
            raise PermissionError('ACCESS_REFUSED')
        if self.host in self.bus.missing:
            return None
        return self.bus.consumers[self.host] + (
            self.bus.held if self.bus.quorum else 0)

    def beat(self):
        self.use()

    @contextlib.contextmanager
    def attended(self):
        lost = self.lost
        yield
        if not lost:
            self.heard = self.bus.clock()

    def take(self):
        self.use()
        self.bus.on_take()
        queue = self.bus.queues[self.host]
        if not queue:
            return None
        self.taken.append(queue.pop(0))
        self.bus.held += 1
        return self.taken[-1]

    def create(self):
        self.use()
        self.bus.missing.discard(self.host)

    def hand_on(self, request, host, copy=False):
        self.use()
        if copy:
            host = f'{host} copies'
        if host in self.bus.missing | self.bus.nacks:
            return False
        self.bus.queues[host].append(request)
        self.drop(request)
        return True

    def drop(self, request):
        assert not self.lost
        self.taken.remove(request)
        self.bus.held -= 1

    def close(self):
        self.closed = True
        self.bus.queues[self.host][:0] = self.taken
        self.bus.held -= len(self.taken)
        self.taken = []


class PostTestCase(cloud.AuditTestCase):
    """b and c live with a, and a is fenced: it has all nodes."""

    def setUp(self):
        super().setUp()
        self.cloud = cloud.Cloud('a', 'b', 'c')
        self.bus = Bus(self.clock)
        self.cloud.owners = dict.fromkeys(NODES, 'a')
        self.options |= {'policy': takeover.Policy(takeover.FORCED_DOWN)}
        self.looks = {}
        self.posts = {}
        self.trackers = {}
        self.begun = collections.Counter()
        for host in 'bc':
            self.audit(host, pulls_per_audit=0)
            self.trackers[host] = cloud.Tracker()
            self.looks[host] = peer_poll.PeerPoller(
                self.auditors[host], self.trackers[host],
                lambda audit, mine: None, self.clock)
            self.begin(host)
            self.look(host)

    def begin(self, host):
        self.posts[host] = queue_forwarder.QueueForwarder(
            host, self.bus, self.auditors[host], self.looks[host],
            self.request_sorter(host), self.clock)

    def request_sorter(self, host):
        return build_backups.RequestSorter(
            host, self.auditors[host], self.looks[host], self)

    def count(self, instance):
        """Say how often a build was begun and not ended."""
        return self.begun[instance]

    def settings(self, host):
        return audit_state.Settings(host, points=32, **{
            'heartbeats': Heartbeats(10, 0), **self.options})

    def look(self, *hosts):
        for host in hosts:
            self.looks[host].once(self.settings(host))

    def fence(self):
        self.cloud.set('a', up=False, forced_down=True)
        self.look('b', 'c')

    def send(self, node, instance=None, state=WAITING, host='a'):
        """Send a build of a node to a host."""
        instance = instance or f'build-{node[-2:]}'
        self.cloud.allocations[node] = frozenset({instance})
        self.cloud.placed[instance] = state
        request = QueuedRequest(RequestKind.BUILD, instance, node)
        self.bus.queues[host].append(request)
        return request

    def turn(self, *hosts):
        for host in hosts or 'bc':
            self.posts[host].once()

    @property
    def reader(self):
        return forwarding.reader(self.auditors['b'].preferences, 'a')

    def builds(self, host):
        return [request.instance for request in self.bus.queues[host]]
