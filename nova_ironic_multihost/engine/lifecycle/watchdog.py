# SPDX-License-Identifier: Apache-2.0

"""The watchdog: systemd, which kills a service that shows no sign of life.

What is said to it is a few words on a socket, sd_notify(3). A library for that
is not needed, and oslo.service has it for the start of a service only; it then
takes the socket out of the environment, so that is read before.
"""

from collections.abc import Mapping
import dataclasses
import socket

#: Seconds for which systemd may keep a word waiting.
PATIENCE = 1

READY = 'READY=1'
ALIVE = 'WATCHDOG=1'


@dataclasses.dataclass(frozen=True)
class Watchdog:
    """What watches this process.

    :param address: of its socket: a path, or ``@`` and a name for one that is
        in no file system.
    :param seconds: without a sign of life after which it kills.
    """

    address: str
    seconds: float

    def tell(self, *words: str) -> None:
        """Say something.

        :param words: of sd_notify(3).
        :raises OSError: it does not hear.
        """
        where = self.address
        if where.startswith('@'):
            where = f'\0{where[1:]}'
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(PATIENCE)
            line.connect(where)
            line.sendall('\n'.join(words).encode())


def find(environment: Mapping[str, str], pid: int) -> Watchdog | None:
    """Return what watches a process, None if nothing does.

    :param environment: of the process when it began.
    :param pid: of the process.
    """
    address = environment.get('NOTIFY_SOCKET', '')
    span = environment.get('WATCHDOG_USEC', '')
    if not address.startswith(('/', '@')) or not span.isdecimal():
        return None
    if environment.get('WATCHDOG_PID', str(pid)) != str(pid):
        # It watches a parent of this process.
        return None
    seconds = int(span) / 1e6
    return Watchdog(address, seconds) if seconds else None


def stay(seconds: float) -> str:
    """Return the word that asks for so many seconds more until the SIGKILL.

    While a service is told to end systemd goes by that alone, however long it
    was without a sign of life.
    """
    return f'EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}'
