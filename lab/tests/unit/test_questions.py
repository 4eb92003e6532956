# SPDX-License-Identifier: Apache-2.0

import asyncio
import gc
import json
import struct
import urllib.request

from oslotest import base

from lab import questions
from lab import relay

NODE = 'd2c4cbb5-6ab5-4c9b-9cf2-8a7a5f6c0b5e'


def frame(kind, payload, channel=1):
    return (struct.pack('>BHI', kind, channel, len(payload)) + payload
            + b'\xce')


def method(number, arguments=b''):
    return frame(1, struct.pack('>HH', *number) + arguments)


def message(its):
    """The header and the body of a message, in two frames."""
    body = json.dumps({'oslo.version': '2.0',
                       'oslo.message': json.dumps(its)}).encode()
    return b''.join([
        frame(2, struct.pack('>HHQH', 60, 0, len(body), 0)),
        frame(3, body[:10]), frame(3, body[10:])]), len(body)


def published(its, exchange='nova', key='conductor'):
    words = b''.join(struct.pack('>B', len(word)) + word.encode()
                     for word in (exchange, key))
    return method((60, 40), b'\0\0' + words + b'\0') + message(its)[0]


def question(number, **arguments):
    return {'_msg_id': number, 'args': arguments,
            'method': 'object_class_action_versions'}


class HttpTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.tally = questions.Tally()
        self.http = questions.Http(self.tally, questions.IRONIC)

    def asked(self):
        return self.tally.found()[questions.IRONIC]

    def test_requests_of_one_connection(self):
        for _ in range(2):
            self.http.sent(f'GET /v1/nodes/{NODE}?fields=a HTTP/1.1\r\n'
                           'Host: a\r\n\r\n'.encode())
            self.http.received(b'x' * 10)
            self.http.received(b'x' * 5)
        self.assertEqual({'GET /v1/nodes/UUID': (2, 30)}, self.asked())

    def test_body_of_a_request_is_no_other_one(self):
        self.http.sent(b'PUT /a HTTP/1.1\r\nContent-Length: 5\r\n\r\n')
        self.http.sent(b'GET /')
        self.http.received(b'x')
        self.assertEqual({'PUT /a': (1, 1)}, self.asked())

    def test_listings_of_nodes_are_told_apart(self):
        for query in ('sort_key=updated_at&sort_dir=desc', f'marker={NODE}',
                      'limit=1'):
            self.http.sent(f'GET /v1/nodes?{query} HTTP/1.1\r\n'.encode())
            self.http.received(b'x')
        self.assertEqual({'GET /v1/nodes sort_key', 'GET /v1/nodes marker',
                          'GET /v1/nodes'}, self.asked().keys())


class AmqpTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.tally = questions.Tally()
        self.asked = {}
        self.amqp = questions.Amqp(self.tally, self.asked)

    def sent(self, data, piece=7):
        """What a client sends, in small pieces."""
        for first in range(0, len(data), piece):
            self.amqp.sent(data[first:first + piece])

    def test_question_to_the_conductor_and_its_answer(self):
        self.sent(b'AMQP\0\0\x09\x01' + published(question(
            'q1', objname='ServiceList', objmethod='get_all')))
        answer, size = message({'_msg_id': 'q1', 'result': 1, 'ending': True})
        # It comes through another connection.
        other = questions.Amqp(self.tally, self.asked)
        other.received(method((60, 60)) + answer)
        self.assertEqual({'ServiceList.get_all': (1, size)},
                         self.tally.found()[questions.CONDUCTOR])
        self.assertEqual({}, self.asked)

    def test_method_of_one_object(self):
        self.sent(b'AMQP\0\0\x09\x01' + published(question(
            'q1', objinst={'nova_object.name': 'Service'},
            objmethod='save')))
        self.assertEqual({'Service.save': (1, 0)},
                         self.tally.found()[questions.CONDUCTOR])

    def test_what_rabbitmq_itself_is_asked(self):
        self.sent(b'AMQP\0\0\x09\x01' + method((60, 70)) + method((60, 80))
                  + frame(8, b'', 0) + published({}, 'a', 'b'))
        found = self.tally.found()
        self.assertEqual({}, found[questions.CONDUCTOR])
        self.assertEqual({'basic.get': (1, 0), 'basic.publish': (1, 0)},
                         found[questions.RABBITMQ])

    def test_what_is_no_message_of_oslo_messaging(self):
        self.amqp.received(method((60, 60)) + frame(
            2, struct.pack('>HHQH', 60, 0, 2, 0)) + frame(3, b'{}'))
        self.assertEqual({}, self.tally.found()[questions.CONDUCTOR])


class Place:
    """Settings of a lab with one port."""

    def __init__(self, port):
        self._port = port

    def port(self, name):
        return self._port


class CountingTestCase(base.BaseTestCase):

    def test_what_goes_through_is_counted_until_the_end(self):
        async def story():
            async def answer(reader, writer):
                await reader.readuntil(b'\r\n\r\n')
                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n'
                             b'Connection: close\r\n\r\nok')
                writer.close()

            server = await asyncio.start_server(answer, relay.HOST, 0)
            port = server.sockets[0].getsockname()[1]
            async with server:
                await asyncio.to_thread(self.ask, Place(port))

        asyncio.run(story())

    def ask(self, settings):
        with questions.Counting(settings) as counting:
            given = dict(option.split('=', 1) for option in counting.options)
            self.assertEqual({
                'DEFAULT.transport_url', 'ironic.endpoint_override',
                'placement.endpoint_override'}, given.keys())
            url = given['ironic.endpoint_override']
            # What nobody refers to is gone then.
            gc.collect()
            direct = urllib.request.build_opener(
                urllib.request.ProxyHandler({}))
            with direct.open(f'{url}/v1/shards', timeout=30) as found:
                self.assertEqual(b'ok', found.read())
            self.assertEqual(
                ['GET /v1/shards'], [*counting.tally.found()['ironic']])
            counting.tally.begin()
            self.assertEqual({}, counting.tally.found()['ironic'])
        self.assertRaises(OSError, direct.open, url, timeout=30)
