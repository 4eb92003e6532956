# SPDX-License-Identifier: Apache-2.0

"""A cloud of plain values, and what every test of an audit stands on."""

import dataclasses
import functools
import itertools

from oslotest import base

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import auditor
from nova_ironic_multihost.engine.audit import lister
from nova_ironic_multihost.engine.audit import recheck
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.base.ports import MarkerNotFound
from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.tests.unit.engine import listings

NODES = [f'1be26c0b-03f2-4d2e-ae87-c02d7f33c1{i:02}' for i in range(20)]


def instance(host, node):
    """Return an ACTIVE instance."""
    return InstanceState(host, node=node, vm_state='active')


class Cloud:
    """The ports, answered from plain values; counts the questions."""

    def __init__(self, *hosts):
        self.states = {
            host: peers.ComputeService(host, up=True) for host in hosts}
        self.ironic = dict.fromkeys(NODES)
        self.contents = {}
        self.hidden = set()
        self.owners = {}
        self.labels = {}
        self.second = {}
        self.placed = {}
        self.allocations = {}
        self.is_mapped = True
        self.placement_away = False
        self.removed = []
        self.host_aggregates = ()
        self.broken = False
        self.asked = []

    def set(self, host, **state):
        self.states[host] = peers.ComputeService(
            host, **{'up': True, **state})

    def services(self):
        return [service for service in self.states.values()
                if not (service.disabled or service.stop_marker)
                and service.ironic]

    def service(self, host):
        self.asked.append(('service', host))
        return self.states.get(host)

    def instances(self, hosts):
        return {instance for instance, state in self.placed.items()
                if state.host in hosts and not state.deleted}

    def instance_states(self, instances):
        self.asked += [('instance_state', instance) for instance in instances]
        return {instance: self.placed[instance]
                for instance in instances if instance in self.placed}

    def record(self, node):
        host = self.owners[node]
        return Record(node, host, self.labels.get(host, ''))

    def owners_now(self, host):
        return [node for node, owner in self.owners.items() if owner == host]

    def records_of(self, hosts):
        self.asked += [('records_of', host) for host in hosts]
        return [*(self.record(node) for node, host in self.owners.items()
                  if host in hosts),
                *(Record(node, host, second=row)
                  for (host, node), row in self.second.items()
                  if host in hosts)]

    def records(self, nodes):
        self.asked += [('record', node) for node in nodes]
        return [self.record(node) for node in nodes if node in self.owners]

    def consumers(self, node):
        self.asked.append(('consumers', node))
        if self.placement_away:
            return None
        return self.allocations.get(node, frozenset())

    def consumers_of(self, nodes):
        return {node: self.consumers(node) for node in nodes}

    def mapped(self, host):
        self.asked.append(('mapped', host))
        return self.is_mapped

    def aggregates(self):
        return self.host_aggregates

    def take_over(self, instances, host, eligible):
        outcomes = {}
        for instance, state in instances.items():
            try:
                outcomes[instance] = self.take_one(instance, state, host)
            except OSError as exc:
                outcomes[instance] = exc
        return outcomes

    def remove_provider(self, node):
        if self.placement_away:
            raise OSError('placement is away')
        self.removed.append(node)
        return True

    def take_one(self, instance, state, host):
        self.asked.append(('take_over', instance))
        if self.placed[instance] != state:
            return False
        self.placed[instance] = dataclasses.replace(state, host=host)
        return True


class AwayError(ListingError, OSError):
    """Ironic does not answer."""


class Pages(listings.Ironic):
    """The nodes of a cloud, as Ironic lists them: all, to everybody."""

    def __init__(self, cloud):
        super().__init__()
        self._cloud = cloud

    def node(self, node):
        self._cloud.asked.append(('node', node))
        self._answer('node')
        if node not in self._cloud.ironic:
            raise MarkerNotFound(node)
        if node not in self._table:
            return mirror.NodeRow(node, self._cloud.ironic[node], b'read')
        return self._table[node].row(lambda node: True)

    def page(self, partition, *args):
        return super().page(peers.Partition(), *args)

    def newest(self, partition, *args):
        return super().newest(peers.Partition(), *args)

    def total(self, partition):
        return super().total()

    def _answer(self, question):
        super()._answer(question)
        if self._cloud.broken:
            raise AwayError('Ironic is away')
        listed = {node: instance
                  for node, instance in self._cloud.ironic.items()
                  if node not in self._cloud.hidden}
        for node in list(self._table):
            if node not in listed:
                self.delete(node)
        for node, instance in listed.items():
            self.create(node)
            its = {'instance': instance,
                   'content': self._cloud.contents.get(node, 0)}
            if any(getattr(self._table[node], name) != value
                   for name, value in its.items()):
                self.change(node, **its)


class Tracker:
    """nova's resource tracker: takes every node except ``failing``."""

    def __init__(self, *tracked):
        self.tracked = set(tracked)
        self.failing = set()
        self.audited = []
        self.moved = []
        self.pulled = []
        self.spared = set()
        self.asked = []

    def has(self, node):
        return node in self.tracked

    def drop(self, node):
        self.tracked.discard(node)

    def audit(self, node):
        self.audited.append(node)
        if node not in self.failing:
            self.tracked.add(node)

    def unchanged(self, nodes):
        self.asked.extend(nodes)
        return self.spared.intersection(nodes)

    def pull(self, nodes, judge):
        held = {record.node for record in judge(list(nodes))} - self.failing
        moved = {record.node for record in judge(sorted(held))}
        self.pulled.append(sorted(moved))
        self.tracked |= moved
        return moved

    def move(self, nodes, judge):
        moved = {record.node for record in judge(nodes)} - self.failing
        self.moved.extend(sorted(moved))
        self.tracked |= moved
        return moved


class Clock:

    now = 1000.0

    def __call__(self):
        return self.now


class AuditTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = Cloud('a', 'b')
        self.clock = Clock()
        self.auditors = {}
        self.options = {'pull_delay_audits': 1}
        #: Nodes that nova's tracker cannot take.
        self.refused = set()

    def new_auditor(self):
        """Return a new one, which at each reading visits all nodes."""
        return auditor.Auditor(
            self.cloud, lister.Lister(
                Pages(self.cloud), functools.partial(
                    next, itertools.count(0, audit_state.Settings('a')
                                          .audit_interval))), self.clock)

    def audit(self, host='a', settled=True, **options):
        """Audit one host and let it take what it finds to be its own."""
        if host not in self.auditors:
            self.auditors[host] = self.new_auditor()
        self.cloud.asked.clear()
        found = self.auditors[host].audit(audit_state.Settings(
            host, points=32, **{**self.options, **options}), settled,
            has=lambda node: node not in self.refused)
        if self.clock.now == self.auditors[host]._doubted:
            # A doubt is older than the next audit.
            self.clock.now += 1
        for node in found.nodes.keys() - self.refused:
            self.cloud.owners[node] = host
        for node in found.deleted:
            self.cloud.owners.pop(node, None)
        return found

    def audit_hosts(self, host, *others, **options):
        """Audit the nodes of some hosts; return what ``then`` was told."""
        self.cloud.asked.clear()
        told = []
        self.decided = self.auditors[host].audit_hosts(audit_state.Settings(
            host, points=32, **{**self.options, **options}),
            others, lambda *facts: told.append(facts))
        (found, mine), = told
        for node in mine:
            self.cloud.owners[node] = host
        return found, set(mine)

    def settle(self, *hosts):
        for _ in range(4):
            for host in hosts:
                self.audit(host)

    def offers(self, host='a', *tracked):
        """Return what judges the nodes of a host that tracks some."""
        return recheck.Recheck(self.auditors[host], Tracker(*tracked))

    def asked(self, what):
        return [about for kind, about in self.cloud.asked if kind == what]

    def preferred(self, host, *members):
        members = ring.Ring(members, 32)
        return {node for node in NODES if members.host_for(node) == host}
