# SPDX-License-Identifier: Apache-2.0

"""Talk to systemd's watchdog, which kills a service without a sign of life.

It speaks sd_notify(3), a few words on a socket. oslo.service has it for the
start only, and removes the socket from the environment; so read that before.
"""

from collections.abc import Mapping
import dataclasses
import socket

#: Timeout of the socket, in seconds.
PATIENCE = 1

READY = 'READY=1'
ALIVE = 'WATCHDOG=1'


@dataclasses.dataclass(frozen=True)
class Watchdog:
    """The watchdog of this process.

    :param address: its socket: a path, or ``@`` and an abstract name.
    :param seconds: without a sign of life until it kills.
    """

    address: str
    seconds: float

    def tell(self, *words: str) -> None:
        """Send words of sd_notify(3).

        :raises OSError: systemd does not read.
        """
        where = self.address
        if where.startswith('@'):
            where = f'\0{where[1:]}'
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(PATIENCE)
            line.connect(where)
            line.sendall('\n'.join(words).encode())


def find(environment: Mapping[str, str], pid: int) -> Watchdog | None:
    """Return the watchdog of a process, or None.

    :param environment: of the process at its start.
    """
    address = environment.get('NOTIFY_SOCKET', '')
    span = environment.get('WATCHDOG_USEC', '')
    if not address.startswith(('/', '@')) or not span.isdecimal():
        return None
    if environment.get('WATCHDOG_PID', str(pid)) != str(pid):
        # For a parent of this process.
        return None
    seconds = int(span) / 1e6
    return Watchdog(address, seconds) if seconds else None


def stay(seconds: float) -> str:
    """Return the word that asks for more seconds until SIGKILL.

    While a service stops, systemd looks at this alone, not at signs of life.
    """
    return f'EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}'
