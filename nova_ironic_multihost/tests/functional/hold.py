# SPDX-License-Identifier: Apache-2.0

"""A place where other threads wait until the test lets them go on."""

import threading

#: Seconds that anybody waits here; only ever waited for in full when
#: something is broken.
DEADLINE = 300


class Hold:
    """Threads that do something wait here until they are released."""

    def __init__(self):
        self._in_flight = threading.Semaphore(0)
        self._departures = threading.Semaphore(0)
        self._open = threading.Event()

    def wait_here(self):
        """Wait for :meth:`release`, as one of those that are held."""
        self._in_flight.release()
        self._open.wait(DEADLINE)

    def leave(self):
        """Say, as one of those that were held, that it is done."""
        self._departures.release()

    def release(self):
        """Let all that wait, and all that come, go on."""
        self._open.set()

    def arrived(self):
        """Return when one more has come to wait here.

        :raises TimeoutError: none did.
        """
        self._await(self._in_flight, 'came')

    def done(self):
        """Return when one more has left.

        :raises TimeoutError: none did.
        """
        self._await(self._departures, 'left')

    @staticmethod
    def _await(semaphore, what):
        if not semaphore.acquire(timeout=DEADLINE):
            raise TimeoutError(f'Nobody {what} in {DEADLINE} s')
