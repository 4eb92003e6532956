# SPDX-License-Identifier: Apache-2.0

"""A compute that can be cut off from the message bus, and from nothing else.

All that a nova-compute has to do with nova goes over the bus: its heartbeat,
the requests that users make, what it reads and writes through the conductor.
Without it, it still reaches Ironic, placement and keystone: it can do things
to machines, and nobody can tell it that they are not its own any more.
"""

import signal

from lab import configuration
from lab import processes
from lab import services
from lab import state


class Isolation:
    """Use as a context manager: inside, the compute is behind a relay.

    It is restarted at both ends. Only one compute at a time.

    :param settings: :class:`lab.settings.Settings` of a lab that is up
    :param computes: :class:`lab.computes.Computes`
    :param name: of the compute
    :param watchdog: seconds without a sign of life after which it is killed
        while it is behind the relay; None for no watchdog
    """

    def __init__(self, settings, computes, name, watchdog=None):
        self._settings = settings
        self._watchdog = watchdog
        self._computes = computes
        self._name = name
        self._processes = processes.Processes(settings.run, settings.logs)
        self._relay = services.relay(settings)

    def __enter__(self):
        services.start(self._settings, self._processes, self._relay)
        services.wait(self._processes, [self._relay])
        self._restart(self._watchdog, f'DEFAULT.transport_url='
                      f'{configuration.transport(self._settings, "relay")}')
        return self

    def __exit__(self, kind, value, traceback):
        self.mend()
        self._restart(None)
        self._processes.kill([self._relay.name])

    def cut(self):
        """Let nothing through."""
        self._processes.signal(self._relay.name, signal.SIGSTOP)

    def mend(self):
        """Let everything through again, what has waited first."""
        self._processes.signal(self._relay.name, signal.SIGCONT)

    def _restart(self, watchdog, *more):
        shape = state.State(self._settings).read()
        self._computes.stop(self._name)
        self._computes.configure(
            [self._name], shape['driver'], (*shape['options'], *more))
        if watchdog:
            self._computes.start_watched(self._name, watchdog)
        else:
            self._computes.start(self._name)
