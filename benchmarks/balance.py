# SPDX-License-Identifier: Apache-2.0

"""How even are the nodes, at how many moves: the ring, and limits to a host.

First the maps: how full the fullest host is, which nodes change their host
when one joins, leaves, or a node is missing in the list, and CPU seconds.
Then a model of the protocol, in which hosts with lists of their own audit at
different times, for many rounds: how even the nodes are, how often they move,
and whether that ends. The driver has the ring alone; the page "The hash ring"
of the documentation says why.

    python -m benchmarks.balance
"""

import argparse
import collections
import dataclasses
import functools
import math
import random
import statistics
import time

from benchmarks import ring as benchmark
from nova_ironic_multihost.rules import ring

#: Name -> (points for each host, percent, what limits the pulls from members):
#: nothing; that the owner has two nodes more at least, by the records of all;
#: what a host lacks of its share, which between two changes of members never
#: grows; the same, and a host that lost nodes which it prefers begins anew.
POLICIES = {
    'ring, 32 points': (32, None, None),
    'ring, 1024 points': (1024, None, None),
    'by list, 0 %': (1024, 0, None),
    'by list, 10 %': (1024, 10, None),
    'records of all, 0 %': (1024, 0, 'counts'),
    'lack, 0 %': (1024, 0, 'lack'),
    'lack, 10 %': (1024, 10, 'lack'),
    'lack or anew, 0 %': (1024, 0, 'anew'),
    'lack or anew, 10 %': (1024, 10, 'anew'),
}

#: Audits in a row after which a member pulls.
DELAY = 2


def limit(nodes, hosts, percent):
    """Return the most nodes that a host is to have.

    :param nodes: number of nodes.
    :param hosts: number of hosts, at least one.
    :param percent: what a host may have beyond its share.
    """
    return -(-nodes * (100 + percent) // (100 * hosts))


def displaced(order, nodes, percent):
    """Return {node: host} of the nodes that are not for their first host.

    :param order: :class:`.ring.Ring`.
    :param nodes: uuids of all nodes, in any order.
    :param percent: see :func:`limit`.
    """
    wanted = sorted(nodes)
    most = limit(len(wanted), len(order.members), percent)
    counts, full = collections.Counter(), set()
    result = {}
    for node in wanted:
        host = order.host_for(node)
        if host in full:
            host = result[node] = _next_host(order, node, full)
        counts[host] += 1
        if counts[host] == most:
            full.add(host)
    return result


def least(nodes, hosts, percent):
    """Return the nodes up to which a host pulls from others.

    What lies between this and :func:`limit` keeps hosts from moving nodes
    for every node that comes or goes.

    :param nodes: number of nodes.
    :param hosts: number of hosts, at least one.
    :param percent: what a host may lack of its share.
    """
    return nodes * max(0, 100 - percent) // (100 * hosts)


@dataclasses.dataclass(frozen=True)
class Room:
    """How many nodes a host may pull from other members.

    While the members stay the same it never grows. So the moves between two
    changes of members are limited, whatever lists of nodes the hosts have,
    and a host that had its share once takes nothing from anybody because
    nodes come or go.

    :param members: host names in lower case.
    :param left: that many, None if it is not limited.
    """

    members: frozenset = frozenset()
    left: int | None = None

    def without(self, pulled):
        """Return what is left of it when so many nodes were pulled."""
        if self.left is None:
            return self
        return dataclasses.replace(self, left=max(0, self.left - pulled))


def room_for(before, members, least, owned):
    """Return how many nodes a host may pull now.

    :param before: what was left of it at the audit before.
    :param members: host names in lower case.
    :param least: what :func:`least` returned, None if it is not limited.
    :param owned: number of nodes that the host owns, with instances or not.
    """
    members = frozenset(members)
    if least is None:
        return Room(members)
    short = max(0, least - owned)
    if before.members == members and before.left is not None:
        short = min(short, before.left)
    return Room(members, short)


def _next_host(order, node, full):
    host, = order.hashring.get_nodes(node.encode('utf-8'), full)
    return host


class Preferences:
    """The ring's preferences, but for nodes whose first host is full.

    :param members: host names.
    :param partitions: points for each host.
    :param nodes: uuids of all nodes.
    :param percent: see :func:`limit`; None for the ring alone.
    """

    def __init__(self, members, partitions, nodes, percent):
        self.ring = ring.Ring(members, partitions)
        self.members = self.ring.members
        self.least = None
        self._displaced = {}
        if percent is not None:
            self.least = least(len(nodes), len(self.members), percent)
            self._displaced = displaced(self.ring, nodes, percent)

    def host_for(self, node):
        """Return the host that prefers a node."""
        return self._displaced.get(node) or self.ring.host_for(node)

    def yields(self, host, node):
        """Whether a host is a node's first one and full."""
        return node in self._displaced and self.ring.host_for(node) == host


class Model:
    """Hosts that audit, each by its own list of the nodes.

    :param policy: of :data:`POLICIES`.
    :param used: share of the nodes that have an instance.
    :ivar missing: host -> nodes that its listings lack.
    :ivar moves: node -> number of changes of its owner.
    """

    def __init__(self, policy, hosts, nodes, seed, used=0.0):
        self.partitions, self.percent, self.rule = POLICIES[policy]
        self.random = random.Random(seed)
        self.hosts = benchmark.hosts(hosts, self.random)
        self.nodes = benchmark.node_uuids(nodes, self.random)
        self.used = {node for node in self.nodes
                     if self.random.random() < used}
        self.missing = collections.defaultdict(set)
        self.moves = collections.Counter()
        self.members = frozenset(self.hosts)
        self._audits = dict.fromkeys(self.hosts, DELAY)
        self._rooms = collections.defaultdict(Room)
        self._unclaimed = collections.defaultdict(set)
        self._owned = collections.defaultdict(set)
        self._preferences = functools.lru_cache(64)(self._prefer)
        preferences = self._preferences(self.members, frozenset(self.nodes))
        self.owners = {node: preferences.host_for(node)
                       for node in self.nodes}

    def _prefer(self, members, nodes):
        return Preferences(members, self.partitions, nodes, self.percent)

    def kill(self, host):
        """Let a host die, with all that it has fenced."""
        self.members -= {host}

    def join(self, host):
        """Let a host start."""
        self.members |= {host}
        self._audits[host] = 0
        self._rooms[host] = Room()
        self._owned[host] = set()

    def thaw(self, host):
        """Let a host go on that stood still, with all that it remembers."""
        self.members |= {host}

    def _decide(self, host, listed):
        """Return [(node, its owner)] of the nodes that a host takes."""
        preferences = self._preferences(self.members, frozenset(listed))
        self._lost_to_peers(host, preferences)
        counts = collections.Counter(self.owners.values())
        room = room_for(
            self._rooms[host], self.members, preferences.least
            if self.rule in ('lack', 'anew') else None, counts[host])
        taken, unclaimed = [], set()
        for node in sorted(listed):
            owner = self.owners.get(node)
            prefers = preferences.host_for(node) == host
            if owner == host:
                continue
            if owner not in self.members:
                yields = preferences.yields(host, node)
                if prefers or (yields and node in self._unclaimed[host]):
                    taken.append((node, owner))
                elif yields:
                    unclaimed.add(node)
            elif (prefers and node not in self.used and room.left != 0
                    and self._audits[host] >= DELAY
                    and (self.rule != 'counts'
                         or counts[owner] >= counts[host] + 2)):
                taken.append((node, owner))
                counts.update({host: 1, owner: -1})
                room = room.without(1)
        self._rooms[host], self._unclaimed[host] = room, unclaimed
        return taken

    def _lost_to_peers(self, host, preferences):
        """Let a host wait that lost nodes to members, and perhaps begin anew.

        As :func:`.ownership.lost_nodes_to_peers` says.
        """
        lost = any(
            self.owners.get(node) in self.members - {host}
            and preferences.host_for(node) == host
            for node in self._owned[host])
        self._owned[host] = {node for node, owner in self.owners.items()
                             if owner == host}
        if lost:
            self._audits[host] = 0
            if self.rule == 'anew':
                self._rooms[host] = Room()

    def round(self, meanwhile=lambda: None):
        """Let each host list, decide and carry out, at its own times.

        :param meanwhile: what happens at some time in the round.
        :returns: number of nodes that changed their owner.
        """
        events = [(self.random.random(), '', 0)]
        for host in sorted(self.members):
            events += zip(sorted(self.random.random() for _ in range(3)),
                          [host] * 3, range(3), strict=True)
        listed, decided, moved = {}, {}, 0
        for _, host, step in sorted(events):
            if not host:
                meanwhile()
            elif step == 0:
                listed[host] = [node for node in self.nodes
                                if node not in self.missing[host]]
            elif step == 1:
                decided[host] = self._decide(host, listed[host])
            else:
                moved += self._carry_out(host, decided[host])
                self._audits[host] += 1
        self.owners = {node: self.owners[node] for node in self.nodes
                       if node in self.owners}
        return moved

    def _carry_out(self, host, decided):
        moved = 0
        for node, owner in decided:
            pinned = node in self.used and owner in self.members
            if self.owners.get(node) != owner or pinned:
                continue
            self.owners[node] = host
            if owner is not None:
                self.moves[node] += 1
                moved += 1
        return moved

    @property
    def fullest(self):
        """The fullest host's nodes over the mean."""
        counts = collections.Counter(self.owners.values())
        return (max(counts[host] for host in self.members)
                * len(self.members) / len(self.nodes))

    @property
    def nobodys(self):
        """Number of nodes that no live host has."""
        return sum(self.owners.get(node) not in self.members
                   for node in self.nodes)


def come_and_go(model):
    """Hosts die and join, 8 times in all; servers come and go meanwhile."""
    ratios, moves, least, most = [], 0, 0, 0
    for number in range(8):
        model.moves.clear()
        if number % 2:
            model.join(f'newcomer-{number}')
            least += len(model.nodes) / len(model.members)
        else:
            host = model.random.choice(sorted(model.members))
            least += sum(owner == host for owner in model.owners.values())
            model.kill(host)
        for _ in range(8):
            moves += model.round()
            for node in model.random.sample(
                    model.nodes, len(model.nodes) // 20 * bool(model.used)):
                model.used ^= {node}
        ratios.append(model.fullest)
        most = max(most, *model.moves.values())
    return {'fullest': statistics.mean(ratios), 'moves': moves / least,
            'one node': most, "nobody's": model.nobodys}


def differ(model, lost):
    """Each host's list lacks nodes for ever; one host dies and returns."""
    for host in model.hosts:
        model.missing[host] = set(model.random.sample(model.nodes, lost))
    first = model.hosts[0]
    last, ratios = 0, []
    for change in (lambda _: None, model.kill, model.join):
        change(first)
        late = [model.round() for _ in range(40)][20:]
        last += sum(late) / 60
        ratios.append(model.fullest)
    return {'fullest': statistics.mean(ratios), 'moves': last,
            'one node': max(model.moves.values(), default=0),
            "nobody's": model.nobodys}


def replace(model, number, remove=True):
    """Nodes are enrolled in each of 30 rounds, and as many are removed."""
    def meanwhile():
        gone = set(model.random.sample(model.nodes, number * remove))
        model.nodes = [node for node in model.nodes if node not in gone]
        model.nodes += benchmark.node_uuids(number, model.random)

    moves = sum(model.round(meanwhile) for _ in range(30))
    moves += sum(model.round() for _ in range(5))
    return {'fullest': model.fullest, 'moves': moves / 30 / number,
            'one node': max(model.moves.values(), default=0),
            "nobody's": model.nobodys}


def shorten(model):
    """Listings of one host lack half of the nodes for 3 rounds, 4 times."""
    moves = 0
    for _ in range(4):
        host = model.random.choice(model.hosts)
        model.missing[host] = set(model.random.sample(
            model.nodes, len(model.nodes) // 2))
        moves += sum(model.round() for _ in range(3))
        model.missing.clear()
        moves += sum(model.round() for _ in range(4))
    return {'fullest': model.fullest, 'moves': moves,
            'one node': max(model.moves.values(), default=0),
            "nobody's": model.nobodys}


def freeze(model):
    """A host stands still, is taken for dead, and goes on."""
    host = model.hosts[0]
    model.used -= {node for node, owner in model.owners.items()
                   if owner == host}
    model.round()
    before = sum(owner == host for owner in model.owners.values())
    model.kill(host)
    for _ in range(2):
        model.round()
    model.thaw(host)
    moves = sum(model.round() for _ in range(10))
    after = sum(owner == host for owner in model.owners.values())
    return {'fullest': model.fullest, 'moves': moves, 'before': before,
            'after': after}


def skew(model, lost):
    """A host has all servers, and lists differ for ever."""
    host = model.hosts[-1]
    for node in model.random.sample(model.nodes, len(model.nodes) // 2):
        model.owners[node] = host
        model.used.add(node)
    for each in model.hosts:
        model.missing[each] = set(model.random.sample(model.nodes, lost))
    late = sum([model.round() for _ in range(120)][60:])
    return {'fullest': model.fullest, 'moves': late / 60,
            'one node': max(model.moves.values(), default=0),
            'goes on': late > 0}


def flap(model):
    """A host dies and returns 10 times."""
    moves = 0
    for _ in range(10):
        model.kill(model.hosts[0])
        moves += model.round() + model.round()
        model.join(model.hosts[0])
        moves += model.round() + model.round()
    moves += sum(model.round() for _ in range(6))
    return {'fullest': model.fullest, 'moves': moves / 10,
            'one node': max(model.moves.values(), default=0) / 10,
            "nobody's": model.nobodys}


#: Title, scenario, hosts, nodes, share in use.
SCENARIOS = (
    ('hosts die and join; moves over the least', come_and_go, 3, 30, 0),
    ('hosts die and join; moves over the least', come_and_go, 10, 300, 0),
    ('the same, 60 % in use', come_and_go, 3, 30, .6),
    ('lists differ by 3 nodes for ever; late moves each round',
     functools.partial(differ, lost=3), 3, 30, 0),
    ('the same, one host has all servers, half of the nodes',
     functools.partial(skew, lost=3), 3, 30, 0),
    ('a host is taken for dead and goes on; nodes before and after',
     freeze, 3, 30, .3),
    ('nodes are enrolled; moves for each',
     functools.partial(replace, number=1, remove=False), 3, 30, .3),
    ('nodes are replaced; moves for each',
     functools.partial(replace, number=1), 3, 30, .3),
    ('half a list is missing; moves', shorten, 3, 30, 0),
    ('a host flaps; moves for each time', flap, 3, 30, 0),
)


def scenarios(seeds):
    """Print a table for each scenario of the model."""
    for title, act, hosts, nodes, used in SCENARIOS:
        print(f'{hosts} hosts, {nodes} nodes: {title}\n')
        rows = []
        for policy in POLICIES:
            runs = [act(Model(policy, hosts, nodes, seed, used))
                    for seed in range(seeds)]
            rows.append([policy, *(
                f'{statistics.mean(values):.2f} ({max(values):.2f})'
                for values in ([run[key] for run in runs]
                               for key in runs[0]))])
        benchmark.table(['policy', *runs[0]], rows)


def changed(before, after, newcomer=None):
    """Return the share of nodes, in percent, that others give to others."""
    return 100 * sum(
        host in after.members and after.host_for(node) not in (host, newcomer)
        for node, host in before.items()) / len(before)


def one_map(policy, hosts, nodes, generator):
    """Return (fullest, unforced % by a join, by a leave, by a node, CPU)."""
    partitions, percent, _ = POLICIES[policy]
    names = benchmark.hosts(hosts, generator)
    listed = benchmark.node_uuids(nodes, generator)

    def prefer(members, some):
        return Preferences(members, partitions, some, percent)
    start = time.process_time()
    preferences = prefer(names, listed)
    before = {node: preferences.host_for(node) for node in listed}
    seconds = time.process_time() - start
    counts = collections.Counter(before.values())
    lacking = prefer(names, listed[1:])
    return (max(counts.values()) * hosts / nodes,
            changed(before, prefer([*names, 'newcomer'], listed), 'newcomer'),
            changed(before, prefer(names[1:], listed)),
            sum(lacking.host_for(node) != before[node]
                for node in listed[1:]), seconds)


def maps(rounds, generator):
    """Print a table of the maps for each number of hosts and nodes."""
    for hosts, nodes in ((3, 30), (10, 300), (10, 1000), (30, 1000),
                         (10, 100000), (30, 100000)):
        print(f'{hosts} hosts, {nodes:,} nodes\n')
        rows = []
        for policy, (_, _, rule) in POLICIES.items():
            if rule is not None:
                continue
            runs = [one_map(policy, hosts, nodes, generator)
                    for _ in range(max(1, rounds // math.ceil(nodes / 3000)))]
            rows.append([policy, *(
                f'{statistics.mean(values):.2f} ({max(values):.2f})'
                for values in zip(*runs, strict=True))])
        benchmark.table(
            ['policy', 'fullest', 'unforced by a join, %',
             'unforced by a leave, %', 'by a node that is missing, nodes',
             'CPU, s'], rows)


def main(argv=None):
    """Measure as the command line asks and print tables."""
    parser = argparse.ArgumentParser(
        description='Measure balance, moves and CPU of the ring alone and '
                    'with a limit to what each host takes.')
    parser.add_argument('--rounds', type=int, default=20,
                        help='sets of names for each cell, less where nodes '
                             'are many (default: %(default)s)')
    parser.add_argument('--seeds', type=int, default=8,
                        help='runs of each scenario (default: %(default)s)')
    arguments = parser.parse_args(argv)
    maps(arguments.rounds, random.Random(1))
    scenarios(arguments.seeds)


if __name__ == '__main__':
    main()
