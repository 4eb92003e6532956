# SPDX-License-Identifier: Apache-2.0

"""What the decision of an audit costs, without anything that is asked for.

Ours as :mod:`nova_ironic_multihost.engine.audit.collect` puts it together:
which nodes are due, of which of them more has to be known, the decision, and
which of them are settled. Nova's as in ``IronicDriver._refresh_cache``: the
ring of all hosts with 32 partitions, and for each node a search in the list of
this host's instances. What is asked for in between is at hand on both sides.

Figures are seconds of CPU and megabytes at the peak, of one process.
"""

import dataclasses
import random
import time
import tracemalloc

from tooz import hashring

from benchmarks import filling
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import ring

POINTS = 1024

#: What nova's driver has.
PARTITIONS = 32

CHANGES = (0, 200, 2000)


class Cloud:
    """A cloud at rest, as the first of its hosts audits it.

    :param nodes: how many.
    :param hosts: how many.
    :param zones: availability zones that the hosts are in; 0 for none.
    """

    def __init__(self, nodes, hosts, zones=0):
        self.names = [f'compute-{number}' for number in range(1, hosts + 1)]
        self.host = self.names[0]
        self.zones = {name: f'zone-{number % zones}' for number, name
                      in enumerate(self.names)} if zones else {}
        self.machines = filling.machines(nodes, self.names)
        self.up = set(self.names)
        self.states = {one.instance: InstanceState(
            one.owner, node=one.uuid, vm_state='active')
            for one in self.machines if one.instance}
        self.records = {one.uuid: Record(one.uuid, one.owner)
                        for one in self.machines}
        self.mirror = Mirror().listed(
            [NodeRow(one.uuid, one.instance) for one in self.machines], None)

    @property
    def my_nodes(self):
        """Nodes that are recorded on this host."""
        return frozenset(node for node, record in self.records.items()
                         if record.host == self.host)

    @property
    def my_instances(self):
        """Instances on this host."""
        return frozenset(uuid for uuid, state in self.states.items()
                         if state.host == self.host)

    def change(self, count, seed):
        """Have some nodes change in Ironic."""
        some = random.Random(seed).sample(self.machines, count)
        # With a body it is one that has changed.
        self.mirror = self.mirror.met(
            [NodeRow(one.uuid, one.instance, str(seed).encode())
             for one in some])


class Ours:
    """This package, for one host."""

    def __init__(self, cloud):
        self._cloud = cloud
        self._standing = incremental.LastAudit()
        self._preferences = None
        self._mine, self._instances = cloud.my_nodes, cloud.my_instances

    def audit(self):
        """Decide; return the number of nodes that were decided on."""
        cloud = self._cloud
        view = peers.view(
            [peers.ComputeService(name, up=name in cloud.up)
             for name in cloud.names], peers.Partition(), cloud.host)
        self._preferences = ring.refreshed(
            self._preferences,
            {host: cloud.zones.get(host) for host in view.members}, POINTS)
        basis = incremental.Inputs(view, self._preferences, cloud.zones,
                                   peers.Partition())
        due = incremental.due(self._standing, basis, cloud.mirror, self._mine,
                              self._instances)
        facts = self._with_states(Facts(
            nodes={node: cloud.mirror.nodes[node] for node in due},
            my_instances=self._instances, my_nodes=self._mine, view=view,
            preferences=self._preferences, zones=cloud.zones))
        reasons = ownership.decide(facts)
        self._standing = incremental.LastAudit(
            basis, cloud.mirror.serial, self._mine, self._instances,
            frozenset(node for node, reason in reasons.items()
                      if not incremental.reason_lasts(node, reason, facts)),
            self._standing.turn + 1)
        return len(reasons)

    def _with_states(self, facts):
        cloud = self._cloud
        facts = dataclasses.replace(facts, instance_states={
            uuid: cloud.states[uuid] for uuid
            in ownership.foreign_instances(facts)})
        return dataclasses.replace(facts, records={
            node: cloud.records[node]
            for node in ownership.candidates(facts)})


class Stock:
    """Nova's own driver, for one host."""

    def __init__(self, cloud):
        self._cloud = cloud
        # As nova has them: a list.
        self._instances = sorted(cloud.my_instances)

    def audit(self):
        """Decide; return the number of nodes."""
        cloud = self._cloud
        members = hashring.HashRing(cloud.up, partitions=PARTITIONS)
        found = {}
        for node in cloud.machines:
            if node.instance in self._instances:
                found[node.uuid] = node
            elif (node.instance is None and cloud.host
                  in members.get_nodes(node.uuid.encode('utf-8'))):
                found[node.uuid] = node
        return len(cloud.machines)


def cost(act):
    """Return what doing something costs.

    ``cpu`` in seconds, ``decided``: what it returned.
    """
    begin = time.process_time()
    decided = act()
    return {'cpu': time.process_time() - begin, 'decided': decided}


def peak(act):
    """Return the megabytes that doing something takes at the peak."""
    tracemalloc.start()
    act()
    size = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return size


def cases(cloud, side):
    """Yield (case, what is to be done), each before the next one."""
    yield 'first', side.audit
    cloud.up = set(cloud.names[:-1]) or cloud.up
    yield 'members', side.audit
    cloud.up = set(cloud.names)
    side.audit()
    for count in CHANGES:
        cloud.change(min(count, len(cloud.machines)), count)
        yield f'changed {count}', side.audit


def stock(cloud):
    """Return {case: figures} of nova's driver, to which all are the same."""
    side = Stock(cloud)
    found = {**cost(side.audit), 'peak': peak(side.audit)}
    return dict.fromkeys(('first', 'members', *(
        f'changed {count}' for count in CHANGES)), found)


def measure(progress, nodes, hosts, zones):
    """Return what is measured in a cloud of a size."""
    def cloud():
        return Cloud(nodes, hosts, zones)

    with progress.step('stock'):
        theirs = stock(cloud())
    with progress.step('ours: CPU'):
        one = cloud()
        ours = {case: cost(act) for case, act in cases(one, Ours(one))}
    with progress.step('ours: memory'):
        one = cloud()
        for case, act in cases(one, Ours(one)):
            ours[case]['peak'] = peak(act)
    return {'nodes': nodes, 'hosts': hosts, 'zones': zones,
            'stock': theirs, 'ours': ours, 'ratios': ratios(theirs, ours)}


def ratios(stock, ours):
    """Return {case: how many times more CPU nova's own driver uses}."""
    return {case: round(its['cpu'] / max(ours[case]['cpu'], 1e-4), 2)
            for case, its in stock.items()}


def table(found):
    """Return the figures as lines of text."""
    lines = [f'{"":22}{"CPU s":>10}{"peak MB":>10}{"decided":>10}']
    for driver in ('stock', 'ours'):
        for case, its in found[driver].items():
            lines.append(f'{driver + " " + case:22}{its["cpu"]:10.4f}'
                         f'{its["peak"]:10.1f}{its["decided"]:10}')
    return lines + [
        f'{"stock / ours: CPU " + case:32}{ratio:10.2f}'
        for case, ratio in found['ratios'].items()]
