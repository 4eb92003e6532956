# SPDX-License-Identifier: Apache-2.0

"""A relay of TCP connections on this machine.

``python -m lab.relay FROM TO`` passes on to port TO whatever connects to port
FROM. Frozen with SIGSTOP it is a network that loses every packet: nobody is
told that the other side is gone, and what was sent arrives late, or never.
"""

import asyncio
import contextlib
import sys

HOST = '127.0.0.1'
_CHUNK = 65536


class Unwatched:
    """Sees what passes through a connection, and does nothing with it."""

    def sent(self, data):
        """Bytes from the client are passed on."""

    def received(self, data):
        """Bytes from the server are passed on."""


async def serve(begin, end, ready=None, watch=Unwatched):
    """Pass connections on until cancelled.

    :param begin: port to listen at; 0 takes a free one
    :param end: port that connections are passed on to
    :param ready: called with the port that is listened at
    :param watch: makes what each connection is watched by, see
        :class:`Unwatched`
    """
    async def relay(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, end)
        except OSError:
            writer.close()
            return
        seen = watch()
        await asyncio.gather(_pass_on(reader, far_writer, seen.sent),
                             _pass_on(far_reader, writer, seen.received))
        for side in (writer, far_writer):
            side.close()

    server = await asyncio.start_server(relay, HOST, begin)
    if ready:
        ready(server.sockets[0].getsockname()[1])
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        # From Python 3.12.1 on wait_closed() waits for every client, so
        # serve_forever() and "async with server" would never end here.
        server.close()


async def _pass_on(reader, writer, see):
    """One direction of a connection, until its sender has ended."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            see(data)
            writer.write(data)
            await writer.drain()
        # The other direction may have something left to say.
        writer.write_eof()


if __name__ == '__main__':
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
