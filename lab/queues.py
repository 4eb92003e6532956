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


"""What waits in RabbitMQ for the computes of a lab."""

from lab import settings as places


def waiting(settings, host):
    """How many messages wait in the queue of a compute, as RabbitMQ counts.

    What the compute has taken is not among them, whether or not it has begun
    with it.

    :param settings: :class:`lab.settings.Settings` of a lab that is up
    :param host: a compute that has been started before
    """
    import kombu

    with kombu.Connection(
            hostname=places.HOST, port=settings.port('rabbitmq'),
            userid=places.USER, password=places.PASSWORD) as bus:
        return bus.default_channel.queue_declare(
            queue=f'compute.{host}', passive=True).message_count
