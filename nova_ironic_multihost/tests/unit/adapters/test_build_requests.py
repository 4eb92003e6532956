# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from nova import exception
from nova import objects
from nova import rpc
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel

from nova_ironic_multihost.adapters import build_requests
from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.tests.unit.adapters import base

NODE = base.NODE


class BuildsTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.allocations = mock.Mock(
            return_value={'allocations': {NODE: {}}})
        self.builds = build_requests.BuildRequests('Mine', mock.Mock(
            report_client=mock.Mock(
                get_allocs_for_consumer=self.allocations)))
        self.row = self.instance(uuidsentinel.instance, None)
        self.set('building', 'scheduling')
        self.build = SentBuild(self.row.uuid, NODE)

    def set(self, vm_state, task_state, host=None):
        self.row.vm_state = vm_state
        self.row.task_state = task_state
        self.row.host = host
        self.row.save()

    def read(self):
        row = objects.Instance.get_by_uuid(self.context, self.row.uuid)
        return row.vm_state, row.task_state

    def give_up(self, absent=lambda: True):
        return self.builds.give_up(self.build, 'lost', absent)

    def test_builds_without_a_host(self):
        for name, vm_state, host in (
                ('claimed', 'building', 'mine'), ('failed', 'error', None),
                ('active', 'active', 'mine')):
            row = self.instance(getattr(uuidsentinel, name), host)
            row.vm_state = vm_state
            row.save()
        gone = self.instance(uuidsentinel.gone, None)
        gone.vm_state = 'building'
        gone.save()
        gone.destroy()
        self.assertEqual({self.build}, self.builds.unclaimed())
        self.allocations.assert_called_once()

    def test_placement_is_asked_once_for_each(self):
        for _ in range(3):
            self.assertEqual({self.build}, self.builds.unclaimed())
        self.allocations.assert_called_once()
        # It was sent elsewhere.
        self.allocations.return_value = {
            'allocations': {uuidsentinel.other: {}}}
        self.row.updated_at = None
        self.row.progress = 1
        with mock.patch('oslo_utils.timeutils.utcnow',
                        return_value=self.row.created_at.replace(
                            year=2050, tzinfo=None)):
            self.row.save()
        self.assertEqual({SentBuild(self.row.uuid, uuidsentinel.other)},
                         self.builds.unclaimed())

    def test_build_of_which_the_node_is_not_known(self):
        for answer in {}, {NODE: {}, uuidsentinel.other: {}}:
            self.allocations.return_value = {'allocations': answer}
            self.assertEqual(frozenset(), self.builds.unclaimed())
        # nova repeats it, and warns of it once.
        self.allocations.side_effect = TimeoutError
        self.assertRaises(TimeoutError, self.builds.unclaimed)
        self.allocations.side_effect = None
        self.allocations.return_value = {'allocations': {NODE: {}}}
        self.assertEqual({self.build}, self.builds.unclaimed())

    def test_service_calls_itself(self):
        client = mock.Mock()
        with mock.patch.object(rpc, 'get_client', return_value=client):
            self.builds.receive()
        client.prepare.assert_called_once_with(server='Mine')
        client.prepare().call.assert_called_once_with(
            mock.ANY, 'ping', arg='Mine')

    def test_build_that_is_given_up(self):
        self.assertTrue(self.give_up())
        self.assertEqual(('error', None), self.read())
        self.assertIn('lost', objects.InstanceFault.get_latest_for_instance(
            self.context, self.row.uuid).message)

    def test_build_that_is_not_given_up(self):
        for vm_state, task_state, host in (
                ('building', None, 'mine'), ('error', None, None),
                ('active', None, 'mine')):
            self.set(vm_state, task_state, host)
            self.assertFalse(self.give_up())
            self.assertEqual((vm_state, task_state), self.read())
        self.row.destroy()
        self.assertFalse(self.give_up())

    def test_build_that_has_come(self):
        self.assertFalse(self.give_up(lambda: False))
        self.assertEqual(('building', 'scheduling'), self.read())

    def test_build_that_was_sent_elsewhere(self):
        """In the second in which it was read last."""
        self.builds.unclaimed()
        self.allocations.return_value = {
            'allocations': {uuidsentinel.other: {}}}
        self.assertFalse(self.give_up())
        self.assertEqual({SentBuild(self.row.uuid, uuidsentinel.other)},
                         self.builds.unclaimed())

    def test_answer_that_is_lost(self):
        save = objects.Instance.save

        def save_and_lose(*args, **kwargs):
            save(*args, **kwargs)
            raise messaging.MessagingTimeout

        with mock.patch.object(objects.Instance, 'save', save_and_lose):
            self.assertTrue(self.give_up())
        self.assertIsNotNone(objects.InstanceFault.get_latest_for_instance(
            self.context, self.row.uuid))
        self.set('building', 'scheduling')
        with mock.patch.object(objects.Instance, 'save',
                               side_effect=messaging.MessagingTimeout):
            self.assertFalse(self.give_up())

    def test_page_whose_last_build_is_gone(self):
        self.instance(uuidsentinel.other, None)
        with mock.patch.object(db, '_rows', side_effect=[
                [self.row] * db.INSTANCES,
                exception.MarkerNotFound(marker='m')]):
            self.assertEqual({self.build}, self.builds.unclaimed())

    def test_build_that_begins_in_this_moment(self):
        get = objects.Instance.get_by_uuid

        def get_before(*args, **kwargs):
            found = get(*args, **kwargs)
            self.set('building', 'networking', 'mine')
            return found

        with mock.patch.object(objects.Instance, 'get_by_uuid', get_before):
            self.assertFalse(self.give_up())
        self.assertEqual(('building', 'networking'), self.read())
