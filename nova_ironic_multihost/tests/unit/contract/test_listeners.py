# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

from unittest import mock

import oslo_messaging
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import base as driver_base

from nova_ironic_multihost.contract import listeners
from nova_ironic_multihost.tests.unit.contract import base


class ListenerTestCase(base.SignaturesTestCase):

    def setUp(self):
        super().setUp()
        conn = mock.Mock(rabbit_qos_prefetch_count=0)
        self.listener = amqpdriver.RpcAMQPListener(
            mock.Mock(prefetch_size=0), conn)
        adapter = driver_base.PollStyleListenerAdapter(self.listener, 1, None)
        self.server = mock.Mock(
            spec=oslo_messaging.MessageHandlingServer, listener=adapter)

    def receive(self):
        """Have a message come; return it."""
        message = mock.MagicMock()
        message.properties = {}
        message.get.return_value = None
        self.listener(message)
        return message

    def test_stock_loses_what_comes_when_it_is_stopped(self):
        """Or there is no need for this module any more."""
        self.listener._shutdown.set()
        self.assertFalse(self.listener.poll())
        self.receive().acknowledge.assert_called_once_with()

    def test_what_comes_when_it_is_stopped_is_left(self):
        listeners.leave_to_rabbitmq(self.server)
        self.listener._shutdown.set()
        self.assertFalse(self.listener.poll())
        self.receive().acknowledge.assert_not_called()
        self.assertEqual([], self.listener.incoming)

    def test_what_comes_before_is_carried_out(self):
        listeners.leave_to_rabbitmq(self.server)
        self.receive().acknowledge.assert_called_once_with()
        self.listener._shutdown.set()
        # It is polled once more.
        self.receive().acknowledge.assert_called_once_with()
        self.assertEqual(2, len(self.listener.poll() + self.listener.poll()))

    def test_other_servers_are_left_alone(self):
        for server in (None, mock.Mock(), mock.Mock(listener=None)):
            listeners.leave_to_rabbitmq(server)
