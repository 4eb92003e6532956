# SPDX-License-Identifier: Apache-2.0

"""Counts what nova-computes ask the other services.

The computes reach RabbitMQ, Ironic and placement through relays of this
process. So the lab itself, which asks the same services, is not counted. A
question to nova's conductor is a message to its queue, and is counted by the
method of the object that it calls.
"""

import asyncio
import collections
import contextlib
import json
import re
import struct
import threading
import typing

from lab import configuration
from lab import relay

CONDUCTOR, RABBITMQ, IRONIC, PLACEMENT = (
    'conductor', 'rabbitmq', 'ironic', 'placement')
SERVICES = (CONDUCTOR, IRONIC, PLACEMENT, RABBITMQ)

#: Methods of AMQP that ask RabbitMQ for something. The others belong to one
#: of these, or to opening a connection.
_METHODS = {
    (20, 10): 'channel.open', (40, 10): 'exchange.declare',
    (50, 10): 'queue.declare', (50, 20): 'queue.bind',
    (50, 40): 'queue.delete', (60, 20): 'basic.consume',
    (60, 40): 'basic.publish', (60, 70): 'basic.get'}
_PUBLISH, _DELIVER = (60, 40), (60, 60)
_METHOD, _HEADER, _BODY = 1, 2, 3
_GREETING = 8
_UUID = re.compile(r'[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}')


class Answered(typing.NamedTuple):
    """What one kind of question came to.

    :ivar questions: how many
    :ivar bytes: of all answers
    """

    questions: int
    bytes: int


class Tally:
    """Counts questions; threads may use it."""

    def __init__(self):
        self._lock = threading.Lock()
        self._questions = collections.Counter()
        self._bytes = collections.Counter()

    def ask(self, service, what):
        """Count one question."""
        with self._lock:
            self._questions[service, what] += 1

    def answer(self, service, what, size):
        """Count some bytes of the answer to a question."""
        with self._lock:
            self._bytes[service, what] += size

    def begin(self):
        """Count anew."""
        with self._lock:
            self._questions.clear()
            self._bytes.clear()

    def found(self):
        """Return {service: {what: :class:`Answered`}}, most asked first."""
        with self._lock:
            return {service: {
                what: Answered(count, self._bytes[service, what])
                for (its, what), count in self._questions.most_common()
                if its == service} for service in SERVICES}


class Http:
    """Watches one connection to an API; its requests follow each other.

    :param tally: :class:`Tally`
    :param service: one of :data:`SERVICES`
    """

    def __init__(self, tally, service):
        self._tally = tally
        self._service = service
        self._what = None
        # The next bytes of the client begin a request.
        self._new = True

    def sent(self, data):
        """Look at what the client sends."""
        if self._new:
            self._new = False
            self._what = request(data)
            self._tally.ask(self._service, self._what)

    def received(self, data):
        """Look at what the server sends."""
        self._new = True
        if self._what is not None:
            self._tally.answer(self._service, self._what, len(data))


def request(data):
    """Say what a request is for: its method and path, without the node.

    :param data: its first bytes
    """
    method, _, rest = data.split(b'\r\n', 1)[0].decode(
        errors='replace').partition(' ')
    path, _, query = rest.rpartition(' ')[0].partition('?')
    # What tells one listing of Ironic's nodes from another.
    more = [word for word in ('sort_key', 'marker', 'associated')
            if f'{word}=' in query]
    return ' '.join([method, _UUID.sub('UUID', path), *more])


class Frames:
    """Cuts one direction of a connection to RabbitMQ into messages.

    :param greeted: the first bytes are the greeting of a client
    """

    def __init__(self, greeted):
        self._rest = b''
        self._skip = _GREETING if greeted else 0
        #: Channel -> [method, arguments, bytes that the body lacks, body].
        self._open = {}

    def feed(self, data):
        """Yield (method, arguments, body) of what is complete by now."""
        self._rest += data
        cut = min(self._skip, len(self._rest))
        self._rest, self._skip = self._rest[cut:], self._skip - cut
        while len(self._rest) >= 8:
            kind, channel, size = struct.unpack_from('>BHI', self._rest)
            if len(self._rest) < size + 8:
                return
            frame = self._rest[7:7 + size]
            self._rest = self._rest[size + 8:]
            yield from self._take(kind, channel, frame)

    def _take(self, kind, channel, frame):
        if kind == _METHOD:
            method = struct.unpack_from('>HH', frame)
            if method in (_PUBLISH, _DELIVER):
                self._open[channel] = [method, frame[4:], None, b'']
            else:
                yield method, frame[4:], b''
        elif kind == _HEADER and channel in self._open:
            self._open[channel][2] = struct.unpack_from('>Q', frame, 4)[0]
            yield from self._complete(channel)
        elif kind == _BODY and channel in self._open:
            self._open[channel][3] += frame
            yield from self._complete(channel)

    def _complete(self, channel):
        method, arguments, size, body = self._open[channel]
        if len(body) >= size:
            del self._open[channel]
            yield method, arguments, body


class Amqp:
    """Watches one connection to RabbitMQ.

    :param tally: :class:`Tally`
    :param asked: {id of a message: what it asks the conductor for}, which
        connections share: the answer comes through another one
    """

    def __init__(self, tally, asked):
        self._tally = tally
        self._asked = asked
        self._there, self._back = Frames(greeted=True), Frames(greeted=False)

    def sent(self, data):
        """Look at what the client sends."""
        for method, arguments, body in self._there.feed(data):
            if method == _PUBLISH and _routing_key(arguments) == CONDUCTOR:
                self._ask(_message(body))
            elif method in _METHODS:
                self._tally.ask(RABBITMQ, _METHODS[method])

    def _ask(self, message):
        arguments = message.get('args', {})
        what = '.'.join(filter(None, (
            arguments.get('objname') or _name(arguments.get('objinst')),
            arguments.get('objmethod')))) or message.get('method', '?')
        self._asked[message.get('_msg_id')] = what
        self._tally.ask(CONDUCTOR, what)

    def received(self, data):
        """Look at what RabbitMQ sends."""
        for method, _, body in self._back.feed(data):
            if method == _DELIVER:
                # An answer and its end come each for itself.
                message = _message(body)
                if what := self._asked.get(message.get('_msg_id')):
                    self._tally.answer(CONDUCTOR, what, len(body))
                    if message.get('ending'):
                        del self._asked[message['_msg_id']]


def _name(thing):
    return thing.get('nova_object.name') if isinstance(thing, dict) else None


def _routing_key(arguments):
    """The routing key of a message that is published."""
    begin = 2 + 1 + arguments[2]
    return arguments[begin + 1:begin + 1 + arguments[begin]].decode()


def _message(body):
    """What oslo.messaging has put into a message; empty if it is not its."""
    try:
        return json.loads(json.loads(body)['oslo.message'])
    except (ValueError, LookupError, TypeError):
        return {}


class Counting:
    """Use as a context manager: inside, what goes through it is counted.

    :param settings: :class:`lab.settings.Settings` of a lab that is up
    :ivar tally: :class:`Tally`
    :ivar options: 'SECTION.OPTION=VALUE' strings that send a nova-compute
        through it
    """

    def __init__(self, settings):
        self._settings = settings
        self.tally = Tally()
        self.options = ()
        self._relays = []

    def __enter__(self):
        asked = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, daemon=True)
        self._thread.start()
        rabbitmq = self._relay(RABBITMQ, lambda: Amqp(self.tally, asked))
        ironic, placement = (
            self._relay(service, lambda service=service: Http(
                self.tally, service)) for service in (IRONIC, PLACEMENT))
        url = f'http://{relay.HOST}'
        self.options = (
            'DEFAULT.transport_url='
            f'{configuration.transport(self._settings, rabbitmq)}',
            f'ironic.endpoint_override={url}:{ironic}',
            f'placement.endpoint_override={url}:{placement}')
        return self

    def __exit__(self, kind, value, traceback):
        asyncio.run_coroutine_threadsafe(_end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _relay(self, service, watch):
        """Begin one relay; returns its port."""
        found = asyncio.run_coroutine_threadsafe(
            self._begun(self._settings.port(service), watch), self._loop)
        return found.result()

    async def _begun(self, port, watch):
        ready = self._loop.create_future()
        # The loop alone would not keep it.
        self._relays.append(self._loop.create_task(relay.serve(
            0, port, ready.set_result, watch)))
        return await ready


async def _end():
    """Cancel whatever else runs in this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    for task in others:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
