# SPDX-License-Identifier: Apache-2.0

"""One line per step with its seconds."""

import contextlib
import sys
import time


class Progress:
    """Prints what is being done while it is done.

    On a terminal with rich at hand the running step has a spinner;
    otherwise each step is one plain line, printed when it is over.

    :param stream: where to print; default stderr, so that what a command
        reports on stdout stays machine-readable
    :param clock: monotonic seconds, for tests
    """

    def __init__(self, stream=None, clock=time.monotonic):
        self._stream = stream or sys.stderr
        self._clock = clock
        self._start = clock()
        #: list of (label, seconds) of the steps that are over
        self.steps = []

    @contextlib.contextmanager
    def step(self, label):
        """Time a step and print it, also when it fails.

        :param label: what is done, e.g. 'start MariaDB'
        """
        start = self._clock()
        mark = 'failed'
        try:
            with self._spinner(label):
                yield
            mark = 'ok'
        finally:
            self.report(label, self._clock() - start, mark)

    def report(self, label, seconds, mark='ok'):
        """Print a step that was timed elsewhere."""
        self.steps.append((label, seconds))
        self.note(f'{seconds:6.1f} s  {mark:6}  {label}')

    def elapsed(self):
        """Seconds since the first of all steps began."""
        return self._clock() - self._start

    def note(self, text):
        """Print a line that is no step."""
        print(text, file=self._stream, flush=True)

    def _spinner(self, label):
        if not self._stream.isatty():
            return contextlib.nullcontext()
        try:
            from rich import console
        except ImportError:
            return contextlib.nullcontext()
        return console.Console(file=self._stream).status(label)
