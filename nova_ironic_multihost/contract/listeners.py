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

"""The listeners: how a compute service gets its messages.

One that is stopped still has its consumers. While it closes its connection it
waits for an answer of RabbitMQ, and whatever comes before that is taken for
received: oslo.messaging acknowledges it, and nobody carries it out
(oslo_messaging._drivers.amqpdriver:RpcAMQPListener.__call__, _drivers.
impl_rabbit:Connection.close). With nova 34 those are all messages of the up to
140 s in which the service ends; with others, of the time in which what it is
at comes to an end.
"""

import typing

from oslo_messaging._drivers import amqpdriver


class Listener(amqpdriver.RpcAMQPListener):
    """Leaves to RabbitMQ what comes when it is stopped.

    RabbitMQ has it again when the connection is closed.
    """

    def __call__(self, message):
        """Take a message."""
        # Until then, who polls it takes what has come.
        if not self._shutoff.is_set():
            super().__call__(message)


def leave_to_rabbitmq(server: typing.Any) -> None:
    """Have a server acknowledge no message that it will not carry out.

    :param server: of oslo.messaging, on any message bus; None for none.
    """
    listener = getattr(
        getattr(server, 'listener', None), '_poll_style_listener', None)
    if type(listener) is amqpdriver.RpcAMQPListener:
        # It has been handed to the connection.
        listener.__class__ = Listener
