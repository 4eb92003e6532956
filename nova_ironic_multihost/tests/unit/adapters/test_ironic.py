# SPDX-License-Identifier: Apache-2.0

import datetime
import json
from unittest import mock
import urllib.parse

from keystoneauth1 import noauth
from keystoneauth1 import session
import openstack
from oslotest import base
import requests

from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.base.ports import MarkerNotFound
from nova_ironic_multihost.rules import peers

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


class QueryTestCase(base.BaseTestCase):

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


class PagesTestCase(base.BaseTestCase):

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

    def page(self, wanted=lambda node, instance: True, after=None,
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
        rows = self.page(lambda node, instance: instance == 'server').rows
        self.assertEqual([False, True],
                         [row.body is not None for row in rows])

    def test_no_more_than_which_there_are(self):
        self.answer(nodes=[{'uuid': 'node-1', 'instance_uuid': 'server'}])
        self.assertEqual((('node-1', 'server', None, True),),
                         self.page(None).rows)
        self.assertEqual('uuid,instance_uuid',
                         self.ironic.asked[0][1]['fields'])

    def test_those_without_an_instance_alone(self):
        self.answer(nodes=[NODE])
        for unused, expected in (False, None), (True, 'false'):
            self.page(unused=unused)
            self.assertEqual(
                expected, self.ironic.asked[-1][1].get('associated'))

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
        self.pages.newest(ALL, 'node-7', 20, lambda node, instance: True)
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
