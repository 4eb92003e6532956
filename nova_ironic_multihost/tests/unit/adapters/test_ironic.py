# SPDX-License-Identifier: Apache-2.0

"""Ironic's listings, the cache of nodes, and instances' machines."""

from concurrent import futures
import datetime
import json
import threading
import time
from unittest import mock
import urllib.parse

from keystoneauth1 import noauth
from keystoneauth1 import session
import openstack
from openstack import exceptions
from oslotest import base as oslo_base
import requests

from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.engine.audit import lister
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.base.ports import MarkerNotFound
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.adapters import base
from nova_ironic_multihost.tests.unit.engine import listings

NODE = {
    'uuid': 'node-1', 'power_state': 'power on', 'target_power_state': None,
    'provision_state': 'available', 'target_provision_state': None,
    'last_error': None, 'maintenance': False,
    'properties': {'cpus': 8, 'memory_mb': 4096}, 'instance_uuid': None,
    'traits': ['CUSTOM_A'], 'resource_class': 'gold',
    'links': [{'href': 'http://ironic/v1/nodes/node-1', 'rel': 'self'}]}
ALL = peers.Partition()
DATE = 'Sun, 01 Mar 2026 12:00:00 GMT'
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


class Ironic(requests.adapters.BaseAdapter):
    """Answers as Ironic's API would.

    :ivar answers: path -> (status, body).
    :ivar asked: (path, parameters, microversion) of each request but those
        for versions.
    """

    def __init__(self):
        super().__init__()
        self.answers = {}
        self.asked = []

    def send(self, request, **kwargs):
        parts = urllib.parse.urlsplit(request.url)
        path = parts.path.removeprefix('/v1').rstrip('/')
        if path:
            self.asked.append((
                path, dict(urllib.parse.parse_qsl(parts.query)),
                request.headers['OpenStack-API-Version']))
        answer = requests.Response()
        answer.status_code, body = self.answers[path]
        answer.headers.update({
            'Content-Type': 'application/json', 'Date': DATE})
        answer._content = json.dumps(body).encode()
        answer.url, answer.request = request.url, request
        return answer

    def close(self):
        pass


class QueryTestCase(oslo_base.BaseTestCase):

    def test_no_partition_lists_all(self):
        self.assertEqual(({}, []), ironic.query(ALL))

    def test_default_conductor_group_is_asked_for(self):
        self.assertEqual(
            ({'conductor_group': ''}, ['1.46']),
            ironic.query(peers.Partition(conductor_group='')))

    def test_conductor_group_and_shard(self):
        self.assertEqual(
            ({'conductor_group': 'rack1', 'shard': 's1'}, ['1.46', '1.82']),
            ironic.query(peers.Partition(
                conductor_group='rack1', shard='s1')))


class PagesTestCase(oslo_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.ironic = Ironic()
        self.connect('1.90')

    def connect(self, version):
        """Use an Ironic whose API has versions up to this one."""
        self.answer('', version={
            'id': 'v1', 'status': 'CURRENT', 'min_version': '1.1',
            'version': version,
            'links': [{'rel': 'self', 'href': 'http://ironic/v1/'}]})
        direct = requests.Session()
        direct.mount('http://', self.ironic)
        self.connection = openstack.connection.Connection(
            session=session.Session(noauth.NoAuth(), session=direct),
            baremetal_endpoint_override='http://ironic/v1').baremetal
        self.driver = mock.Mock(ironic_connection=self.connection)
        self.pages = ironic.NodePages(self.driver)
        self.ironic.asked.clear()

    def answer(self, path='/nodes', status=200, **body):
        self.ironic.answers[path] = status, body

    def page(self, wanted=lambda node: True, after=None,
             partition=ALL, **options):
        return self.pages.page(partition, after, 50, wanted, **options)

    def test_a_whole_node(self):
        self.answer(nodes=[NODE])
        found = self.page()
        [row] = found.rows
        self.assertEqual(('node-1', None), row[:2])
        self.assertEqual((False, NOON), found[1:])
        [(_, asked, version)] = self.ironic.asked
        self.assertEqual(set(names.node_fields()),
                         set(asked['fields'].split(',')))
        self.assertEqual('baremetal 1.90', version)

    def test_as_openstacksdk_lists_it(self):
        self.answer(nodes=[NODE])
        [row] = self.page().rows
        ours = ironic.node(row.body, self.connection)
        [theirs] = self.connection.nodes(fields=names.node_fields())
        self.assertIs(type(theirs), type(ours))
        for name in ('id', 'name', 'power_state', 'target_power_state',
                     'provision_state', 'target_provision_state',
                     'last_error', 'is_maintenance', 'properties',
                     'instance_id', 'traits', 'resource_class'):
            self.assertEqual(getattr(theirs, name), getattr(ours, name), name)

    def test_equal_bodies_of_equal_nodes(self):
        self.answer(nodes=[NODE])
        [before] = self.page().rows
        self.answer(nodes=[dict(reversed(NODE.items()), links=[])])
        self.assertEqual([before], list(self.page().rows))
        self.answer(nodes=[{**NODE, 'traits': []}])
        self.assertNotEqual([before], list(self.page().rows))

    def test_what_is_not_wanted_has_no_body(self):
        self.answer(nodes=[NODE, {**NODE, 'uuid': 'node-2',
                                  'instance_uuid': 'server'}])
        rows = self.page(lambda node: node == 'node-2').rows
        self.assertEqual([False, True],
                         [row.body is not None for row in rows])

    def test_no_more_than_which_there_are(self):
        self.answer(nodes=[{'uuid': 'node-1', 'instance_uuid': 'server'}])
        self.assertEqual((('node-1', 'server', None, True),),
                         self.page(None).rows)
        self.assertEqual('uuid,instance_uuid',
                         self.ironic.asked[0][1]['fields'])

    def test_each_page_has_all_parameters(self):
        self.answer(nodes=[NODE], next='http://ironic/v1/nodes?marker=node-1')
        shard = peers.Partition(conductor_group='rack', shard='s1')
        self.assertTrue(self.page(partition=shard).more)
        self.page(partition=shard, after='node-1')
        first, second = (asked for _, asked, _ in self.ironic.asked)
        self.assertEqual('node-1', second.pop('marker'))
        self.assertEqual(first, second)
        self.assertEqual(('rack', 's1', '50'), (
            first['conductor_group'], first['shard'], first['limit']))

    def test_ironic_is_too_old_for_the_partition(self):
        self.driver._can_send_version.side_effect = (
            names.IronicAPIVersionNotAvailable(version='1.82'))
        error = self.assertRaises(
            ListingError, self.page,
            partition=peers.Partition(shard='s1'))
        self.assertIn('1.82', str(error))
        self.assertIn('Upgrade Ironic', str(error))
        self.driver._can_send_version.side_effect = OSError('refused')
        self.assertRaises(ListingError, self.page,
                          partition=peers.Partition(shard='s1'))

    def test_newest_first(self):
        self.answer(nodes=[NODE])
        self.pages.newest(ALL, 'node-7', 20, lambda node: True)
        [(_, asked, _)] = self.ironic.asked
        self.assertEqual(('updated_at', 'desc', 'node-7', '20'), (
            asked['sort_key'], asked['sort_dir'], asked['marker'],
            asked['limit']))

    def test_the_mark_is_gone(self):
        self.answer(status=404)
        self.assertRaises(MarkerNotFound, self.page, after='node-7')
        # Not the mark: there is none.
        self.assertRaises(ListingError, self.page)

    def test_no_answer(self):
        self.answer(status=500)
        self.assertRaises(ListingError, self.page, after='node-7')
        self.answer(error='not\na list')
        error = self.assertRaises(ListingError, self.page)
        self.assertEqual("KeyError: 'nodes'", str(error))

    def test_one_node(self):
        self.answer(nodes=[NODE])
        self.answer('/nodes/node-1', **NODE)
        self.assertEqual(self.page().rows, (self.pages.node('node-1'),))
        self.answer('/nodes/node-1', status=404)
        self.assertRaises(MarkerNotFound, self.pages.node, 'node-1')
        self.answer('/nodes/node-1', status=500)
        self.assertRaises(ListingError, self.pages.node, 'node-1')

    def test_touched(self):
        self.answer('/nodes/node-1', updated_at='2026-03-01T12:00:00+00:00')
        self.assertEqual(NOON, self.pages.touched('node-1'))
        self.answer('/nodes/node-1', updated_at=None)
        self.assertIsNone(self.pages.touched('node-1'))
        self.answer('/nodes/node-1', status=404)
        self.assertRaises(MarkerNotFound, self.pages.touched, 'node-1')

    def test_total(self):
        self.answer('/shards', shards=[{'name': 'None', 'count': 3},
                                       {'name': 's1', 'count': 4}])
        self.assertEqual(7, self.pages.total(ALL))
        self.assertEqual(7, self.pages.total(
            peers.Partition(conductor_group='rack')))
        self.assertEqual(4, self.pages.total(
            peers.Partition(shard='S1')))

    def test_who_may_not_count(self):
        self.answer('/shards', status=403)
        self.assertIsNone(self.pages.total(ALL))
        self.connect('1.81')
        self.assertIsNone(self.pages.total(ALL))

    def test_ironic_does_not_count(self):
        self.answer('/shards', status=500)
        self.assertRaises(ListingError, self.pages.total, ALL)


class Node:
    """What is made of a body."""

    def __init__(self, body, instance=None):
        self.body = body
        self.instance_id = instance


class NodeCacheTestCase(oslo_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.made = []
        self.mine = {}
        self.pages = listings.Ironic()
        self.lister = lister.Lister(self.pages)
        self.cache = ironic.NodeCache(
            self.make, lambda: self.mine, self.lister)
        self.ironic = {}

    def make(self, body):
        _, instance, content = body.decode().split()
        self.made.append(content)
        return Node(content, None if instance == '-' else instance)

    def read(self, uuid, mine=True):
        return self.cache.read(uuid, self.ironic.get, lambda uuid: mine)

    def listed(self, **nodes):
        """Ironic has these nodes, {uuid: (content, instance)}; list them."""
        for uuid, (content, instance) in nodes.items():
            self.pages.create(uuid)
            self.pages.change(uuid, content=content, instance=instance)
        self.lister.read(ALL, 1, lambda node: True)

    def audited(self, **nodes):
        """As :meth:`listed`; then an audit gives them to this host."""
        self.listed(**nodes)
        self.mine = {uuid: NodeRow(uuid, instance, b'decided - decided')
                     for uuid, (_, instance) in nodes.items()}

    def bodies(self):
        return {uuid: node.body for uuid, node in self.cache.items()}

    def test_it_is_like_the_dict_that_nova_works_with(self):
        self.assertEqual({}, self.cache)
        self.assertFalse(self.cache)
        self.cache['a'] = node = Node(1)
        self.assertEqual({'a': node}, self.cache)
        self.assertTrue(self.cache)
        self.assertIn('a', self.cache)
        self.assertEqual(node, self.cache.pop('a', None))
        self.assertIsNone(self.cache.pop('a', None))

    def test_objects_are_made_when_they_are_asked_for(self):
        self.audited(a=(1, None), b=(2, None))
        self.assertEqual(({'a', 'b'}, True, []), (
            set(self.cache), 'a' in self.cache, self.made))
        # nova changes them, and expects that to last for a while.
        self.assertIs(self.cache['a'], self.cache.get('a'))
        self.assertEqual(['1'], self.made)
        self.cache.renew()
        self.cache.get('a')
        self.assertEqual(['1', '1'], self.made)

    def test_it_may_change_while_it_is_iterated(self):
        for iterate in (iter, ironic.NodeCache.keys, ironic.NodeCache.values,
                        ironic.NodeCache.items, ironic.NodeCache.instances):
            self.audited(a=(1, 'i1'), b=(2, 'i2'))
            count = 0
            for _ in iterate(self.cache):
                self.cache.pop('a', None)
                self.cache['c'] = Node(3)
                count += 1
            self.assertEqual(2, count)
            del self.cache['c']

    def test_taking_out_a_node_that_has_just_gone(self):
        self.audited(a=(1, None))
        cache = ironic.NodeCache(
            lambda body: cache.forget('a') or Node(body),
            lambda: self.mine, self.lister)
        self.assertEqual(b'a - 1', cache.pop('a', None).body)

    def test_it_may_change_in_another_thread(self):
        self.listed(**{str(number): (number, None) for number in range(150)})
        some, others = ({str(number): NodeRow(str(number), None)
                         for number in range(first, first + 100)}
                        for first in (0, 50))

        def change():
            for number in range(200):
                self.mine = others if number % 2 else some
                self.cache.forget(str(number % 150))
                self.listed()

        with futures.ThreadPoolExecutor(1) as pool:
            done = pool.submit(change)
            while not done.done():
                # A thread of eventlet takes its turn only if it is let.
                time.sleep(0)
                for uuid in self.cache:
                    node = self.cache.get(uuid)
                    if node is not None:
                        self.assertEqual(uuid, node.body)
            done.result()

    def test_nodes_of_the_last_audit(self):
        self.audited(a=('old', None), b=('old', None))
        self.audited(b=('new', None), c=('new', None))
        self.assertEqual({'b': 'new', 'c': 'new'}, self.bodies())

    def test_node_that_was_listed_since_the_audit(self):
        self.audited(a=('old', None))
        self.listed(a=('new', 'i1'))
        self.assertEqual({'a': 'new'}, self.bodies())
        self.assertEqual({'a': 'i1'}, self.cache.instances())

    def test_node_that_changes_while_it_is_listed_is_read_anew(self):
        self.audited(a=('before', None), b=('before', None))
        self.pages.meanwhile = lambda: self.cache.forget('a')
        self.listed(b=('listed', None))
        self.pages.meanwhile = lambda: None
        self.assertEqual({'b': 'listed'}, self.bodies())
        self.assertIsNone(self.cache.row('a'))
        self.ironic['a'] = Node('after')
        self.assertEqual('after', self.read('a').body)
        self.assertEqual('after', self.cache['a'].body)
        # The next listing sees the change.
        self.listed(a=('listed', None))
        self.assertEqual({'a': 'listed', 'b': 'listed'}, self.bodies())

    def test_node_that_ironic_does_not_list_is_as_decided(self):
        self.audited(a=('before', None))
        self.mine['b'] = NodeRow('b', None, b'b - decided')
        self.assertEqual({'a', 'b'}, set(self.cache))

    def test_node_of_which_little_was_listed_is_read(self):
        self.audited(a=('before', None))
        self.lister.complete(frozenset())
        self.assertNotIn('a', self.cache)
        self.ironic['a'] = Node('after')
        self.assertEqual('after', self.read('a').body)
        # It may change without notice.
        self.cache.renew()
        self.assertNotIn('a', self.cache)

    def test_node_that_changed_is_read_anew(self):
        self.audited(a=('before', None))
        self.cache.forget('a')
        self.assertNotIn('a', self.cache)
        self.cache.forget('unknown')

    def test_node_of_an_instance(self):
        self.audited(a=(1, 'i1'), b=(2, None), c=(3, 'i3'))
        self.assertEqual(['1', '3'], [
            self.cache.of_instance(instance).body
            for instance in ('i1', 'i3')])
        self.assertEqual({'a': 'i1', 'c': 'i3'}, self.cache.instances())
        self.assertEqual(['1', '3'], self.made)
        self.listed(c=(4, None))
        self.cache.forget('a')
        self.assertEqual([None, None, None], [
            self.cache.of_instance(instance)
            for instance in ('i1', 'i3', 'unknown')])

    def test_ironic_is_asked_once_for_a_node_that_is_mine(self):
        self.ironic['a'] = node = Node(1)
        self.assertEqual(node, self.read('a'))
        del self.ironic['a']
        self.assertEqual(node, self.read('a'))

    def test_node_of_another_is_not_kept(self):
        self.ironic['a'] = node = Node(1)
        self.assertEqual(node, self.read('a', mine=False))
        self.assertEqual({}, self.cache)

    def test_whose_it_is_is_asked_after_ironic_has_answered(self):
        asked = mock.Mock()
        self.cache.read('a', asked.get, asked.is_mine)
        self.assertEqual([mock.call.get('a'), mock.call.is_mine('a')],
                         asked.mock_calls)

    def test_error_of_ironic_is_the_callers(self):
        def fail(uuid):
            raise OSError('refused')

        self.assertRaises(OSError, self.cache.read, 'a', fail, bool)
        self.ironic['a'] = node = Node(1)
        self.assertEqual(node, self.read('a'))

    def test_what_is_listed_while_a_node_is_read_stays(self):
        def get(uuid):
            self.audited(a=('newer', None))
            return Node('older')

        self.assertIsNone(self.cache.row('a'))
        self.assertEqual('newer', self.cache.read(
            'a', get, lambda uuid: True).body)
        self.assertEqual('newer', self.cache['a'].body)
        self.assertEqual(b'a - newer', self.cache.row('a').body)

    def test_what_was_read_before_a_change_does_not_come_in_after_it(self):
        reading, answered = threading.Event(), threading.Event()
        before = Node('before')

        def answer(uuid):
            reading.set()
            answered.wait(10)
            return before

        with futures.ThreadPoolExecutor(2) as pool:
            read = pool.submit(
                self.cache.read, 'a', answer, lambda uuid: True)
            reading.wait(10)
            forgotten = pool.submit(self.cache.forget, 'a')
            # Other nodes do not wait for it.
            self.cache.forget('b')
            answered.set()
            self.assertEqual(before, read.result())
            forgotten.result()
        self.assertNotIn('a', self.cache)


class MachinesTestCase(oslo_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.driver = mock.Mock(
            spec=['_get_node', 'ironic_connection'])
        self.machines = ironic.IronicMachines(self.driver)
        self.instance = mock.Mock(uuid='i1', node='n1')

    def test_what_ironic_has_on_the_node(self):
        self.driver._get_node.return_value = mock.Mock(
            provision_state='deploying', instance_id='i1')
        self.assertEqual(
            'deploying', self.machines.provision_state(self.instance))
        self.driver._get_node.assert_called_with('n1')
        self.instance.uuid = 'i2'
        self.assertIsNone(self.machines.provision_state(self.instance))

    def test_a_node_that_is_gone_has_no_state(self):
        self.driver._get_node.side_effect = names.NodeNotFound
        self.assertIsNone(self.machines.provision_state(self.instance))

    def test_an_instance_without_a_node_has_none(self):
        self.instance.node = None
        self.assertIsNone(self.machines.provision_state(self.instance))
        self.driver._get_node.assert_not_called()

    def test_the_state_that_a_machine_speaks_for(self):
        for provision_state, power_state, expected in (
                ('active', 'power on', 'active'),
                ('active', 'power off', 'stopped'),
                ('active', None, None), ('active', 'error', None),
                ('deploy failed', 'power off', None),
                ('rescue', 'power on', None)):
            self.driver._get_node.return_value = mock.Mock(
                provision_state=provision_state, power_state=power_state,
                instance_id='i1')
            self.assertEqual(expected, self.machines.vm_state(self.instance))
        self.instance.uuid = 'i2'
        self.assertIsNone(self.machines.vm_state(self.instance))
        self.assertIn('power_state', names.node_fields())

    def test_whether_it_was_deployed_since_a_moment(self):
        get = self.driver.ironic_connection.get
        noon = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
        for changed, error, moment, expected in (
                ('2026-11-22T12:00:05+00:00', None, noon, True),
                ('2026-11-22T12:00:05+00:00', 'No worker', noon, False),
                ('2026-11-22T11:59:55+00:00', None, noon, False),
                (None, None, noon, False),
                ('2026-11-22T12:00:05+00:00', None, None, False)):
            get.return_value = base.response(
                200, {'provision_updated_at': changed, 'last_error': error})
            self.assertIs(expected, self.machines.deployed_since(
                self.instance, moment))
        self.assertEqual('/nodes/n1', get.call_args.args[0])

    def test_ironic_that_does_not_say_when_it_deployed(self):
        self.driver.ironic_connection.get.return_value = base.response(
            503, {})
        self.assertRaises(exceptions.HttpException,
                          self.machines.deployed_since, self.instance,
                          datetime.datetime.now(datetime.UTC))
