# SPDX-License-Identifier: Apache-2.0

"""Copies of builds are what nova's conductor sends."""

import threading

import fixtures
from nova.compute import manager
from nova import exception
from nova import objects
from nova.objects import base as objects_base
from oslo_messaging._drivers import common
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters import rpc_queue
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.tests.unit.adapters import base
from nova_ironic_multihost.tests.unit.adapters import test_rpc_queue

ARGUMENTS = {
    'instance', 'image', 'request_spec', 'filter_properties', 'accel_uuids',
    'admin_password', 'injected_files', 'requested_networks',
    'security_groups', 'block_device_mapping', 'node', 'limits', 'host_list'}


class VersionTestCase(oslo_base.BaseTestCase):

    def test_a_copy_can_be_sent_on_to_a_nova_of_any_release(self):
        self.assertEqual({'self', 'context'} | ARGUMENTS, set(
            apply.parameters(
                manager.ComputeManager.build_and_run_instance)))
        major, minor = manager.ComputeManager.target.version.split('.')
        self.assertEqual(rpc_queue.BUILD_VERSION.split('.')[0], major)
        self.assertLessEqual(rpc_queue.BUILD_VERSION.split('.')[1], minor)


class CopierTestCase(test_rpc_queue.BrokerTestCase):

    def content(self, queue):
        message, = self.queues[queue]
        content = common.deserialize_msg(
            test_rpc_queue.Channel(self).message_to_python(message).payload)
        return {name: value for name, value in content.items()
                if name not in ('_unique_id', 'version')}

    def test_it_is_what_was_sent(self):
        self.send_build(requested_networks=objects.NetworkRequestList(
            objects=[objects.NetworkRequest(port_id=base.NODE)]))
        serializer = objects_base.NovaObjectSerializer()
        sent = self.content('compute.dead')
        rpc_queue.BuildCopier('dead').copy({
            'context': self.context,
            **{name: serializer.deserialize_entity(self.context, value)
               for name, value in sent['args'].items()}})
        self.assertEqual(sent, self.content('compute-builds.dead'))
        copy = self.rpc_queues.open_copies('dead').take()
        self.assertEqual(
            (RequestKind.BUILD, test_rpc_queue.UUID, base.NODE, sent['args']),
            (copy.kind, copy.instance, copy.node, copy.arguments))
        self.assertNotIn(test_rpc_queue.SECRET, repr(copy))

    def test_who_cannot_send_it_is_told(self):
        self.send = self.refuse
        self.assertRaises(
            exception.NovaException, rpc_queue.BuildCopier('dead').copy,
            {'context': self.context, 'instance': self.instance})

    def test_build_goes_on_while_rabbit_confirms_nothing(self):
        held = threading.Event()
        self.addCleanup(held.set)
        self.useFixture(
            fixtures.MockPatchObject(rpc_queue, 'COPY_PATIENCE', 0.01))
        self.send = lambda *args, **how: held.wait(60)
        copier = rpc_queue.BuildCopier('dead')
        build = {'context': self.context, 'instance': self.instance}
        # The first is not confirmed, and the second does not get its turn.
        for _ in range(2):
            self.assertRaises(TimeoutError, copier.copy, build)

    @staticmethod
    def refuse(exchange_name, topic, msg, **how):
        raise exception.NovaException
