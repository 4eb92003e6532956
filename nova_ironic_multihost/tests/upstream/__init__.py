# SPDX-License-Identifier: Apache-2.0

"""nova's own tests of its Ironic driver, run against ours.

The tests are those of the nova that is installed. Importing this package puts
our class in the place of nova's, so every test module of nova that is
imported after it builds our driver; discovery imports a package before its
modules. :mod:`exclusions` names the tests that cannot hold for us.
"""

# Importing nova.tests.unit decides the threading mode, so it goes first, as
# when nova runs its own tests.
import nova.tests.unit  # noqa: F401

from nova.virt import ironic
from nova.virt.ironic import driver
from oslo_config import cfg

from nova_ironic_multihost.adapters import ironic as pages
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_facts
from nova_ironic_multihost import conf
from nova_ironic_multihost.driver import IronicMultiHostDriver
from nova_ironic_multihost.engine.audit import lister
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.rules.mirror import ListingPage
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import InstanceState


class Recordless(nova_facts.NovaCloud):
    """The nova that nova's tests know of: nothing is recorded in it.

    They say who is up, which instances are here and what Ironic lists;
    whatever else is held by an instance is held by one of another host.
    """

    def service(self, host):
        return None

    def instance_states(self, instances):
        return {instance: InstanceState('another-host')
                for instance in instances}

    def records_of(self, hosts):
        return []

    def records(self, nodes):
        return []

    def mapped(self, host):
        return True

    def aggregates(self):
        return None


class Pages(pages.NodePages):
    """The Ironic of nova's tests: they say what nova's driver lists."""

    def page(self, partition, after, limit, wanted):
        filters, versions = pages.query(partition)
        try:
            for version in versions:
                self._driver._can_send_version(version)
            return ListingPage(tuple(
                NodeRow(node.id, node.instance_id, Body(node))
                for node in self._driver._get_node_list(
                    fields=names.node_fields(), **filters)))
        except Exception as exc:
            raise ListingError(str(exc)) from exc

    def newest(self, partition, after, limit, wanted):
        return ListingPage(())

    def total(self, partition):
        return None


class Reader(lister.Lister):
    """Lists all nodes each time."""

    def _gone_on(self, before, wanted):
        return self._all(before, wanted)


class Body:
    """The object that nova's tests have for a node, in place of a body."""

    def __init__(self, node):
        self.node = node

    def __eq__(self, other):
        return self.node == other.node

    __hash__ = object.__hash__


class Driver(IronicMultiHostDriver):
    """Our driver, whose cache nova's tests replace by a dict of nodes."""

    def __setattr__(self, name, value):
        if name == 'node_cache' and type(value) is dict:
            nodes, value = value, pages.NodeCache(
                lambda body: body.node, lambda: self.service.auditor.nodes,
                self.service.lister)
            for uuid, node in nodes.items():
                value[uuid] = node
        super().__setattr__(name, value)


nova_facts.NovaCloud = Recordless
lister.Lister = Reader
pages.NodePages = Pages
pages.node = lambda body, connection: body.node

# nova's number, which its tests of the ring expect, in the place of ours.
cfg.set_defaults(conf.OPTS, ring_partitions=driver._HASH_RING_PARTITIONS)

driver.IronicDriver = Driver
ironic.IronicDriver = Driver
