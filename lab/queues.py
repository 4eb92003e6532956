# SPDX-License-Identifier: Apache-2.0

"""What waits in RabbitMQ, for the computes of a lab or for anybody.

As a program it prints the notifications that wait in a queue, as JSON:
``python -m lab.queues QUEUE``.
"""

import json
import sys

from lab import settings as places


def waiting(settings, host):
    """How many messages wait in the queue of a compute, as RabbitMQ counts.

    What the compute has taken is not among them, whether or not it has begun
    with it.

    :param settings: :class:`lab.settings.Settings` of a lab that is up
    :param host: a compute that has been started before
    """
    with _bus(settings) as bus:
        return bus.default_channel.queue_declare(
            queue=f'compute.{host}', passive=True).message_count


def notifications(settings, queue):
    """Take the notifications that wait in a queue, oldest first.

    :param queue: a topic and a priority, as in ``notifications.info``
    :returns: list of dicts: event_type, publisher_id, priority, payload, ...
    """
    found = []
    with _bus(settings) as bus:
        while message := bus.default_channel.basic_get(queue, no_ack=True):
            body = json.loads(message.body)
            found.append(json.loads(body['oslo.message']))
    return found


def _bus(settings):
    # Imported late: it is in the venv.
    import kombu

    return kombu.Connection(
        hostname=places.HOST, port=settings.port('rabbitmq'),
        userid=places.USER, password=places.PASSWORD)


if __name__ == '__main__':
    print(json.dumps(notifications(places.load(), sys.argv[1])))
