# SPDX-License-Identifier: Apache-2.0

"""What nova sends to placement with a part of its provider tree in hand."""

import contextlib
import copy
import unittest
from urllib import parse

import fixtures
from nova.compute import provider_tree as nova_tree
from nova.compute import resource_tracker
from nova import exception
from nova import objects
from nova.scheduler.client import report
from oslo_utils.fixture import uuidsentinel

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import compat
from nova_ironic_multihost.adapters.patches import table
from nova_ironic_multihost.tests.unit.adapters import base

NODE = base.NODE
OTHER = uuidsentinel.other
CHILD = uuidsentinel.child
SHARING = uuidsentinel.sharing
AGGREGATE = uuidsentinel.aggregate

NEEDED = any(compat.get_root is row.layer for row in table.rows())

before_34 = unittest.skipUnless(
    NEEDED, 'nova copies one root itself')

#: What the driver says of each node as long as nothing changes.
INVENTORY = {'CUSTOM_BAREMETAL': {'total': 1, 'reserved': 0}}
USED = {'CUSTOM_BAREMETAL': {'total': 1, 'reserved': 1}}


class Provider:
    """A resource provider in placement."""

    def __init__(self, name, parent=None):
        self.name = name
        self.parent = parent
        self.generation = 0
        self.inventories = {}
        self.traits = []
        self.aggregates = []


class Placement:
    """Placement, as far as nova's client asks for providers.

    In place of nova's connection to it.

    :ivar providers: uuid -> :class:`Provider`.
    :ivar requests: (method, URL, body) of each request.
    :ivar failures: (method, end of the URL) -> statuses of the next answers.
    """

    def __init__(self):
        self.providers = {}
        self.requests = []
        self.failures = {}

    def new(self, uuid, **properties):
        provider = self.providers[uuid] = Provider(uuid)
        vars(provider).update(properties)
        return provider

    def get(self, url, **kwargs):
        return self._answer('GET', url)

    def post(self, url, json=None, **kwargs):
        return self._answer('POST', url, json)

    def put(self, url, json=None, **kwargs):
        return self._answer('PUT', url, json)

    def delete(self, url, **kwargs):
        return self._answer('DELETE', url)

    def _answer(self, method, url, body=None):
        body = copy.deepcopy(body)
        self.requests.append((method, in_order(url), in_order(body)))
        for (kind, end), statuses in self.failures.items():
            if kind == method and url.endswith(end) and statuses:
                return failure(statuses.pop(0))
        path, _, query = url.partition('?')
        query = {name: values[0]
                 for name, values in parse.parse_qs(query).items()}
        first, *rest = path.strip('/').split('/')
        if first == 'resource_providers' and rest:
            return self._one(method, *rest, body=body)
        return base.response(200, getattr(self, f'_{first}')(
            method, rest, query, body))

    def _resource_providers(self, method, rest, query, body):
        if method == 'POST':
            self.new(body['uuid'], name=body['name'],
                     parent=body.get('parent_provider_uuid'))
            return self._described(body['uuid'])
        if 'in_tree' in query:
            found = self._tree(query['in_tree'])
        else:
            wanted = query['member_of'].removeprefix('in:').split(',')
            found = [uuid for uuid, provider in self.providers.items()
                     if query['required'] in provider.traits
                     and {*wanted} & {*provider.aggregates}]
        return {'resource_providers': [*map(self._described, found)]}

    def _tree(self, member):
        if member not in self.providers:
            return []
        root = self.providers[member].parent or member
        return [uuid for uuid, provider in self.providers.items()
                if root in (uuid, provider.parent)]

    def _described(self, uuid):
        provider = self.providers[uuid]
        return {'uuid': uuid, 'name': provider.name,
                'generation': provider.generation,
                'parent_provider_uuid': provider.parent}

    def _one(self, method, uuid, kind=None, body=None):
        if uuid not in self.providers:
            return failure(404)
        provider = self.providers[uuid]
        if method == 'DELETE':
            del self.providers[uuid]
            return base.response(204)
        if kind == 'allocations':
            return base.response(200, {'allocations': {}})
        if method == 'PUT':
            if body['resource_provider_generation'] != provider.generation:
                return failure(409)
            setattr(provider, kind, body[kind])
            provider.generation += 1
        return base.response(200, {
            kind: copy.deepcopy(getattr(provider, kind)),
            'resource_provider_generation': provider.generation})

    def _traits(self, method, rest, query, body):
        return {'traits': query['name'].removeprefix('in:').split(',')}

    def _resource_classes(self, method, rest, query, body):
        return None

    def _reshaper(self, method, rest, query, body):
        for uuid, content in body['inventories'].items():
            self.providers[uuid].inventories = content['inventories']
            self.providers[uuid].generation += 1


def failure(status):
    return base.response(status, {'errors': [
        {'code': 'placement.concurrent_update', 'detail': ''}]})


def in_order(sent):
    """Return what is in a request with what was a set in nova sorted."""
    if isinstance(sent, dict):
        return {key: in_order(value) for key, value in sent.items()}
    if isinstance(sent, str):
        before, found, names_in = sent.partition('?name=in:')
        return before + found + ','.join(sorted(names_in.split(',')))
    return sorted(sent) if isinstance(sent, list) else sent


class RootsTestCase(base.TrackerTestCase):
    """nova's tracker and its client are real, and so are the trees."""

    def setUp(self):
        super().setUp()
        # As in TrackerTestCase, of each tree.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.compute.provider_tree.lockutils.internal_lock',
            lambda name: contextlib.nullcontext()))
        self.patch(resource_tracker.pci_placement_translator,
                   'update_provider_tree_for_pci', return_value=False)
        self.driver.capabilities_as_traits.return_value = {}
        self.driver.update_provider_tree.side_effect = self.report
        self.start(patched=True)

    def start(self, patched, nodes=(NODE, OTHER)):
        """Begin with a new client, and a new placement with these nodes."""
        self.placement = Placement()
        self.act = lambda tree: None
        for node in nodes:
            self.placement.new(node, inventories=INVENTORY,
                               traits=['COMPUTE_NODE'])
        self.client = self.rt.reportclient = self.compute.reportclient = (
            report.SchedulerReportClient(adapter=self.placement))
        self.patch(self.rt, '_sync_compute_service_disabled_trait')
        if patched:
            base.replace(base.ROOTS, self.compute)

    def report(self, tree, node, allocations=None):
        """Report a node as nova's driver does."""
        tree.update_inventory(node, INVENTORY)
        if node == NODE:
            self.act(tree)

    def audit(self, node=NODE, startup=False):
        """Have the tracker update placement; return what it requested."""
        before = len(self.placement.requests)
        self.rt._update_to_placement(
            names.admin_context(),
            objects.ComputeNode(uuid=node, hypervisor_hostname=node), startup)
        return self.placement.requests[before:]

    def writes(self, requests):
        return [(method, url) for method, url, _ in requests
                if method != 'GET']

    @property
    def tree(self):
        return self.client._provider_tree

    def cached(self):
        """Return all that nova's client knows of providers."""
        return {uuid: self.tree.data(uuid)
                for uuid in self.tree.get_provider_uuids()}


class SameRequestsTestCase(RootsTestCase):
    """Each situation twice: with nova as it is, and patched.

    The requests are the same, and so is what the client knows afterwards.
    """

    def same(self, prepare, audits=2):
        """Compare what nova does in a situation that arises after an audit.

        :param prepare: brings it about.
        :param audits: how many follow.
        :returns: the requests of the first that change something.
        """
        seen = []
        for patched in (False, True):
            self.start(patched)
            self.audit(OTHER)
            self.audit()
            prepare()
            requests = [self.attempt() for _ in range(audits)]
            # Python 3.13.0 clears vars() of what the garbage collector takes.
            seen.append((requests, self.cached(),
                         {uuid: dict(vars(provider)) for uuid, provider
                          in self.placement.providers.items()},
                         {*self.client._association_refresh_time}))
        stock, ours = seen
        self.assertEqual(stock, ours)
        first, *_ = ours[0]
        return self.writes(first)

    def attempt(self):
        try:
            return self.audit()
        except Exception as exc:  # noqa: BLE001
            # nova logs it, and audits again a minute later.
            return [('raised', type(exc), None)]

    def let(self, act, *args):
        self.act = lambda tree: act(tree, *args)

    def test_nothing_changed(self):
        self.assertEqual([], self.same(lambda: None))

    def test_associations_are_read_anew(self):
        def expire():
            self.client._association_refresh_time[NODE] = 1
            # An operator has set it since.
            self.placement.providers[NODE].traits = ['CUSTOM_GOLD']
            self.placement.providers[NODE].generation += 1

        self.assertEqual([('PUT', f'/resource_providers/{NODE}/traits')],
                         self.same(expire))

    def test_inventory(self):
        self.assertEqual(
            [('PUT', '/resource_classes/CUSTOM_BAREMETAL'),
             ('PUT', f'/resource_providers/{NODE}/inventories')],
            self.same(lambda: self.let(
                nova_tree.ProviderTree.update_inventory, NODE, USED)))

    def test_traits(self):
        self.assertEqual(
            [('PUT', f'/resource_providers/{NODE}/traits')],
            self.same(lambda: self.let(
                nova_tree.ProviderTree.add_traits, NODE, 'CUSTOM_GOLD')))

    def test_aggregates(self):
        self.assertEqual(
            [('PUT', f'/resource_providers/{NODE}/aggregates')],
            self.same(lambda: self.let(
                nova_tree.ProviderTree.add_aggregates, NODE, AGGREGATE)))

    def test_conflict_is_tried_again(self):
        def change(tree):
            tree.update_inventory(NODE, USED)
            tree.add_aggregates(NODE, AGGREGATE)
            tree.add_traits(NODE, 'CUSTOM_GOLD')

        for kind in ('inventories', 'aggregates', 'traits'):
            def conflict(kind=kind):
                self.placement.failures['PUT', f'{NODE}/{kind}'] = [409, 409]
                self.let(change)

            writes = self.same(conflict)
            self.assertEqual(3, writes.count(
                ('PUT', f'/resource_providers/{NODE}/{kind}')))

    def test_another_has_written_meanwhile(self):
        def race():
            def write(tree):
                if not self.placement.providers[NODE].aggregates:
                    self.placement.providers[NODE].aggregates = [AGGREGATE]
                    self.placement.providers[NODE].generation += 1
                tree.update_inventory(NODE, USED)

            self.let(write)

        writes = self.same(race)
        self.assertEqual(2, writes.count(
            ('PUT', f'/resource_providers/{NODE}/inventories')))
        self.assertEqual([AGGREGATE],
                         self.placement.providers[NODE].aggregates)

    def test_errors_and_conflicts_without_end(self):
        def change(tree):
            tree.update_inventory(NODE, USED)
            tree.add_traits(NODE, 'CUSTOM_GOLD')

        for kind, statuses, error in (
                ('inventories', [500], exception.ResourceProviderSyncFailed),
                ('traits', [500], exception.ResourceProviderSyncFailed),
                ('inventories', [409] * 4,
                 exception.ResourceProviderUpdateConflict)):
            def fail(kind=kind, statuses=statuses):
                self.placement.failures['PUT', f'{NODE}/{kind}'] = [*statuses]
                self.let(change)

            self.assertEqual([('raised', error)], self.same(fail, audits=1))
            self.assertFalse(self.tree.exists(NODE))
            self.assertTrue(self.tree.exists(OTHER))
            self.same(fail, audits=3)

    def test_new_provider(self):
        def remove():
            del self.placement.providers[NODE]
            self.client.invalidate_resource_provider(NODE)

        self.assertIn(('POST', '/resource_providers'), self.same(remove))

    def test_new_provider_gets_a_name_and_a_parent(self):
        self.audit()
        self.client.get_provider_tree_and_ensure_root(
            names.admin_context(), CHILD, name='child',
            parent_provider_uuid=NODE)
        self.assertEqual('child', self.placement.providers[CHILD].name)
        self.assertEqual(NODE, self.tree.data(CHILD).parent_uuid)

    def test_provider_that_was_deleted_from_placement(self):
        def remove():
            del self.placement.providers[NODE]
            # nova looks after five minutes.
            self.client._association_refresh_time[NODE] = 1
            self.let(nova_tree.ProviderTree.update_inventory, NODE, USED)

        self.same(remove)
        self.assertEqual(USED, self.placement.providers[NODE].inventories)

    def test_sharing_provider(self):
        def share():
            self.placement.new(
                SHARING, inventories={'DISK_GB': {'total': 9}},
                traits=['MISC_SHARES_VIA_AGGREGATE'], aggregates=[AGGREGATE])
            self.placement.providers[NODE].aggregates = [AGGREGATE]
            self.client.invalidate_resource_provider(NODE)
            self.let(nova_tree.ProviderTree.update_inventory, NODE, USED)

        self.assertEqual(
            [('PUT', '/resource_classes/CUSTOM_BAREMETAL'),
             ('PUT', f'/resource_providers/{NODE}/inventories')],
            self.same(share)[:2])
        self.assertEqual({AGGREGATE}, self.tree.data(SHARING).aggregates)
        self.assertIn('DISK_GB', self.tree.data(SHARING).inventory)

    def test_name_that_is_another(self):
        def rename():
            self.placement.providers[NODE].name = 'node-1'
            self.client.invalidate_resource_provider(NODE)
            self.let(nova_tree.ProviderTree.update_inventory, NODE, USED)

        self.same(rename)
        self.assertEqual('node-1', self.tree.data(NODE).name)

    def test_children_come_and_go(self):
        def add(tree):
            if not tree.exists(CHILD):
                tree.new_child('child', NODE, CHILD)
            tree.update_inventory(CHILD, {'VGPU': {'total': 2}})

        def begin():
            self.let(add)

        def end():
            self.let(add)
            self.audit()
            self.let(nova_tree.ProviderTree.remove, CHILD)

        self.assertEqual(
            [('POST', '/resource_providers'),
             ('PUT', f'/resource_providers/{CHILD}/inventories')],
            self.same(begin))
        self.assertEqual(NODE, self.tree.data(CHILD).parent_uuid)
        self.assertEqual([('DELETE', f'/resource_providers/{CHILD}')],
                         self.same(end, audits=1))
        self.assertFalse(self.tree.exists(CHILD))

    @before_34
    def test_node_is_forgotten_before_placement_is_told(self):
        def forget():
            def act(tree):
                self.client.invalidate_resource_provider(NODE)
                tree.update_inventory(NODE, USED)

            self.let(act)

        self.assertIn(('PUT', f'/resource_providers/{NODE}/inventories'),
                      self.same(forget))

    @before_34
    def test_all_is_forgotten_before_placement_is_told(self):
        def clear():
            def act(tree):
                self.client.clear_provider_cache()
                tree.update_inventory(NODE, USED)

            self.let(act)

        # nova itself asks for each provider that it knew.
        self.audit(OTHER)
        self.audit()
        clear()
        self.assertEqual(
            [('PUT', '/resource_classes/CUSTOM_BAREMETAL'),
             ('PUT', f'/resource_providers/{NODE}/inventories')],
            self.writes(self.audit()))
        self.assertEqual({NODE}, {*self.cached()})

    def test_lower_provider_names_its_root(self):
        self.placement.new(CHILD, parent=NODE)
        self.audit(OTHER)
        self.audit()
        tree = self.client.get_provider_tree_and_ensure_root(
            names.admin_context(), CHILD)
        self.assertEqual(NEEDED, OTHER not in (
            tree.get_provider_uuids()))
        tree.update_inventory(NODE, USED)
        self.client.update_from_provider_tree(names.admin_context(), tree)
        self.assertEqual(USED, self.placement.providers[NODE].inventories)
        self.assertEqual({NODE, OTHER, CHILD}, {*self.placement.providers})


class ReshapeTestCase(RootsTestCase):

    def reshape(self, tree, node, allocations=None):
        if allocations is None:
            raise exception.ReshapeNeeded()
        tree.update_inventory(node, USED)
        tree.add_traits(node, 'CUSTOM_GOLD')

    def reshaped(self, patched, *known, statuses=()):
        """Return the requests of an audit that reshapes.

        :param known: nodes that are audited before.
        :param statuses: of the first answers of placement.
        """
        self.start(patched)
        for node in known:
            self.audit(node)
        self.placement.failures['POST', '/reshaper'] = [*statuses]
        self.driver.update_provider_tree.side_effect = self.reshape
        try:
            return self.audit(startup=True)
        finally:
            self.driver.update_provider_tree.side_effect = self.report

    def test_same_requests(self):
        stock = self.reshaped(False)
        self.assertIn('/reshaper', [url for _, url, _ in stock])
        self.assertEqual(stock, self.reshaped(True))
        self.assertEqual(self.reshaped(False, statuses=[409]),
                         self.reshaped(True, statuses=[409]))

    @before_34
    def test_conflict_clears_what_is_known(self):
        self.reshaped(True, OTHER, statuses=[409])
        self.assertEqual({NODE}, {*self.cached()})

    @before_34
    def test_other_nodes_are_not_reshaped(self):
        body, = (body for _, url, body in self.reshaped(True, OTHER)
                 if url == '/reshaper')
        self.assertEqual({NODE}, {*body['inventories']})
        self.assertEqual(INVENTORY,
                         self.placement.providers[OTHER].inventories)


class OthersTestCase(RootsTestCase):

    def test_another_that_came_meanwhile_stays(self):
        def came(tree):
            self.client._ensure_resource_provider(
                names.admin_context(), OTHER)
            tree.update_inventory(NODE, USED)

        self.act = came
        self.assertEqual(
            [('PUT', '/resource_classes/CUSTOM_BAREMETAL'),
             ('PUT', f'/resource_providers/{NODE}/inventories')],
            self.writes(self.audit())[:2])
        self.assertIn(OTHER, self.placement.providers)
        self.assertTrue(self.tree.exists(OTHER))
        if NEEDED:
            # nova itself deletes it.
            self.start(patched=False)
            self.act = came
            self.assertIn(('DELETE', f'/resource_providers/{OTHER}'),
                          self.writes(self.audit()))

    def test_what_was_written_of_another_meanwhile_stays(self):
        def disable(tree):
            self.client.set_traits_for_provider(
                names.admin_context(), OTHER, ['COMPUTE_STATUS_DISABLED'])

        for node in (OTHER, NODE):
            self.audit(node)
        self.act = disable
        self.audit()
        self.assertEqual(['COMPUTE_STATUS_DISABLED'],
                         self.placement.providers[OTHER].traits)

    def test_another_that_was_deleted_meanwhile_stays_deleted(self):
        for node in (OTHER, NODE):
            self.audit(node)
        self.act = lambda tree: self.client._delete_provider(OTHER)
        self.audit()
        self.assertNotIn(OTHER, self.placement.providers)
        self.assertFalse(self.tree.exists(OTHER))


class CostTestCase(RootsTestCase):

    def work(self, patched, count):
        """Return what an audit copies and compares when so many are known."""
        others = [f'{number:08}-0000-0000-0000-000000000000'
                  for number in range(count)]
        self.start(patched, [NODE, *others])
        for node in others:
            self.tree.new_root(node, node, generation=0)
            self.tree.update_inventory(node, INVENTORY)
        self.audit()
        done = {'copied': 0, 'looked at': 0}

        def copied(provider, memo):
            done['copied'] += 1
            twin = object.__new__(type(provider))
            vars(twin).update(copy.deepcopy(vars(provider), memo))
            return twin

        data = nova_tree._Provider.data

        def looked_at(provider):
            done['looked at'] += 1
            return data(provider)

        with (fixtures.MonkeyPatch(
                'nova.compute.provider_tree._Provider.__deepcopy__', copied),
              fixtures.MonkeyPatch(
                'nova.compute.provider_tree._Provider.data', looked_at)):
            self.audit()
        return done

    def test_an_audit_costs_the_same_however_many_are_known(self):
        few, many = self.work(True, 1), self.work(True, 40)
        self.assertEqual(few, many)
        self.assertEqual(1, many['copied'])
        if NEEDED:
            stock = self.work(False, 40)
            self.assertEqual(41, stock['copied'])
            self.assertLess(40, stock['looked at'])

    def test_the_driver_sees_one_root(self):
        seen = []
        self.act = lambda tree: seen.append(tree.get_provider_uuids())
        for node in (OTHER, NODE):
            self.audit(node)
        self.assertEqual([[NODE]], seen)


class ProviderConfigTestCase(RootsTestCase):
    """``[compute]provider_config_location``, with ``$COMPUTE_NODE``."""

    def failures(self, patched):
        """Return which audits of two nodes in turn end with a ValueError."""
        self.start(patched)
        self.patch(self.rt, 'provider_configs', new={'$COMPUTE_NODE': {
            '__source_file': 'all.yaml', 'identification': {},
            'inventories': {'additional': [
                {'CUSTOM_RACK_1': {'total': 1}}]}}})
        failed = []
        for node in [NODE, OTHER] * 2:
            try:
                self.audit(node)
            except ValueError:
                failed.append(node)
        return failed

    def test_each_node_gets_what_the_file_adds(self):
        self.assertEqual([], self.failures(patched=True))
        for provider in self.placement.providers.values():
            self.assertIn('CUSTOM_RACK_1', provider.inventories)

    @before_34
    def test_nova_fails_at_every_node_but_the_first(self):
        """If not, the comparison has a row too much."""
        self.assertTrue(self.failures(patched=False))


class LockTestCase(RootsTestCase):

    @before_34
    def test_a_root_is_copied_when_no_thread_changes_it(self):
        self.audit()
        held = []

        class Lock:

            def __enter__(self):
                held.append(True)

            def __exit__(self, *error):
                held.pop()

        class Provider(nova_tree._Provider):

            def __deepcopy__(self, memo):
                copied.append(bool(held))
                return self

        copied = []
        self.tree.lock = Lock()
        self.tree.roots_by_uuid[NODE].__class__ = Provider
        self.client.get_provider_tree_and_ensure_root(
            names.admin_context(), NODE)
        self.assertEqual([True], copied)

    def test_what_is_copied_has_a_life_of_its_own(self):
        self.audit()
        tree = self.client.get_provider_tree_and_ensure_root(
            names.admin_context(), NODE)
        tree.update_inventory(NODE, USED)
        tree.update_traits(NODE, [])
        self.assertEqual(INVENTORY, self.tree.data(NODE).inventory)
        self.assertIn('COMPUTE_NODE', self.tree.data(NODE).traits)
        tree.remove(NODE)
        self.assertFalse(tree.exists(NODE))
        self.assertTrue(self.tree.exists(NODE))

    def test_unknown_provider(self):
        self.assertRaises(ValueError, compat.ProviderSubtree, self.tree, NODE)


class WholeTreeTestCase(RootsTestCase):

    def test_copy_of_the_whole_is_compared_as_ever(self):
        for node in (OTHER, NODE):
            self.audit(node)
        tree = copy.deepcopy(self.tree)
        tree.remove(OTHER)
        self.client.update_from_provider_tree(names.admin_context(), tree)
        self.assertEqual({NODE}, {*self.placement.providers})

    def test_client_of_a_later_nova_is_left_alone(self):
        self.assertEqual(
            NEEDED,
            'update_from_provider_tree' in vars(self.client))
        self.assertEqual(
            NEEDED,
            not hasattr(nova_tree, 'ProviderSubTree'))
