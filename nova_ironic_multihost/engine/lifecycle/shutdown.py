# SPDX-License-Identifier: Apache-2.0

"""The departure of this compute service: it is told to end, and says so.

From then on it takes nothing any more, and what it has stays served. What it
says is in :mod:`.rules.stop_marker`; its next start takes that back.
"""

from collections.abc import Callable
import datetime
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Registration
from nova_ironic_multihost.rules import stop_marker

LOG = logging.getLogger(__name__)

#: The most seconds for which the end of the service waits until it is said.
#: A manager of containers may give it 30.
WAIT = 5

#: Times that it is tried to say it, and seconds in between; each may take as
#: long as nova waits for an answer.
ATTEMPTS = 12
PAUSE = 5


class Shutdown:
    """Begins at most once in the life of a process.

    nova may tell it in a handler of signals, in the middle of anything that
    the main thread does. So what has to be asked and written is done in a
    thread of its own, which no lock of the main thread can block for longer
    than :data:`WAIT`.

    :param registration: this service as nova's database has it.
    :param may_close: function without arguments that says whether builds are
        to be sent to others, see :func:`.stop_marker.may_close`.
    :param now: function without arguments that returns this moment in UTC.
    :param sleep: waits for so many seconds.
    """

    def __init__(self, registration: Registration,
                 may_close: Callable[[], bool],
                 now: Callable[[], datetime.datetime] = (
                     lambda: datetime.datetime.now(datetime.UTC)),
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._registration = registration
        self._may_close = may_close
        self._now = now
        self._sleep = sleep
        self._opened = False
        self._begun = threading.Event()
        self._said = threading.Event()

    def begun(self) -> bool:
        """Whether the service has been told to end: it takes nothing."""
        return self._begun.is_set()

    def begin(self) -> bool:
        """Take nothing from now on, and let the others know.

        A process whose start was refused has nothing to say: its host may be
        that of another, by mistake.

        :returns: False when it has begun before.
        """
        if self.begun():
            return False
        self._begun.set()
        if not self._opened:
            self._said.set()
            return True
        try:
            threading.Thread(target=self._write_stop_marker, daemon=True,
                             name='ironic-multihost-stop marker').start()
        except RuntimeError as exc:
            LOG.warning('Threads of nova-compute are used up: %s.', exc)
            self._said.set()
        return True

    def wait(self) -> None:
        """Wait until the others know, for a short time.

        When no more is read from the queue of this host: what is read now is
        begun and may not be ended.
        """
        if self.begun() and not self._said.wait(WAIT):
            LOG.warning('It is not known yet to nova that this compute '
                        'service is about to end: builds are sent to it '
                        'until its heartbeat has been missing for '
                        'service_down_time. If that lasts: is '
                        'nova-conductor up?')

    def undo(self) -> None:
        """Take back what this service said when it ended; raises nothing.

        A process that was killed may have said it and be heard late, so this
        is done whenever it is found.
        """
        if self.begun():
            return
        self._opened = True
        try:
            if self._registration.take_back():
                LOG.info('This compute service was stopped, and is enabled '
                         'again.')
        except Exception as exc:  # noqa: BLE001
            LOG.warning('It is not known whether nova has this compute '
                        'service disabled since it was stopped: %s. It is '
                        'looked at again soon.', exc)
        if self.begun():
            # Told to end meanwhile: that write may have come after the words
            # of this end. No lock, as the handler of a signal stands on top
            # of this frame and may never return to it.
            self._write_stop_marker()

    def _write_stop_marker(self) -> None:
        try:
            words = stop_marker.text(self._now())
            if not self._repeatedly(words):
                return
            # When all have said it each of them knows who stays.
            if self._may_close():
                self._registration.close(words)
            LOG.info('The others know that this compute service is about to '
                     'end. If it is not back in service_down_time they take '
                     'its free nodes.')
        except Exception as exc:  # noqa: BLE001
            LOG.warning('It is not known whether enough compute services '
                        'stay that builds can be sent to, so builds are still '
                        'sent to this one, which is about to end: %s. They '
                        'wait for its next start.', exc)
        finally:
            self._said.set()

    def _repeatedly(self, words: str) -> bool:
        """Say it until it is heard; return whether it was."""
        for attempt in range(ATTEMPTS):
            try:
                return self._registration.say(words)
            except Exception as exc:  # noqa: BLE001
                LOG.debug('Attempt %(attempt)s to say that this compute '
                          'service is about to end: %(exc)s',
                          {'attempt': attempt + 1, 'exc': exc})
                self._sleep(PAUSE)
        return False
