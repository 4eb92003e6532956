# SPDX-License-Identifier: Apache-2.0

import asyncio
import contextlib

from oslotest import base

from lab import relay


async def shout(reader, writer):
    """A server that answers each line in capitals."""
    while line := await reader.readline():
        writer.write(line.upper())
    writer.close()


@contextlib.asynccontextmanager
async def relayed(begin, server):
    """Clients of a server, connected through a relay."""
    port = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(relay.serve(
        0, server.sockets[0].getsockname()[1], port.set_result))
    try:
        yield [await asyncio.open_connection(relay.HOST, await port)
               for _ in range(begin)]
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class RelayTestCase(base.BaseTestCase):

    def run_with(self, clients, story):
        async def play():
            server = await asyncio.start_server(shout, relay.HOST, 0)
            try:
                async with relayed(clients, server) as connections:
                    await asyncio.wait_for(story(server, *connections), 30)
            finally:
                server.close()

        asyncio.run(play())

    def test_both_directions_of_each_connection(self):
        async def story(server, one, other):
            for (reader, writer), word in ((one, b'a\n'), (other, b'b\n')):
                writer.write(word)
                self.assertEqual(word.upper(), await reader.readline())

        self.run_with(2, story)

    def test_what_is_large_arrives_whole(self):
        async def story(server, client):
            reader, writer = client
            line = b'x' * 60000 + b'\n'
            writer.write(line * 50)
            writer.write_eof()
            self.assertEqual(line.upper() * 50, await reader.read())

        self.run_with(1, story)

    def test_nobody_there_ends_the_connection(self):
        async def story(server, client):
            reader, writer = client
            writer.close()
            server.close()
            # The relay itself is still there for the next one.
            again = await asyncio.open_connection(
                relay.HOST, writer.get_extra_info('peername')[1])
            self.assertEqual(b'', await again[0].read())

        self.run_with(1, story)
