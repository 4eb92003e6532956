# SPDX-License-Identifier: Apache-2.0

"""Where the demo is shown: as lines of text, or on a terminal."""

import time

from nova_ironic_multihost.client import findings as consistency


class PlainStage:
    """Shows the demo as lines of text, one after the other."""

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        pass

    def say(self, line):
        """Print a line."""
        print(line, flush=True)

    def show(self, board, seen):
        """Ignore a view; :meth:`say_counts` tells what matters."""

    def say_counts(self, board, seen):
        """Print who owns how many nodes, in one line."""
        self.say('            ' + '   '.join(
            f'{row.host} ({row.state}): {row.free} free, {row.used} used'
            for row in board.rows(seen)))


class LiveStage:
    """Shows the demo on a terminal: lines above a table that lives."""

    def __init__(self):
        from rich import live
        from rich import text

        self._text = text.Text
        self._live = live.Live(auto_refresh=False)

    def __enter__(self):
        self._live.start()
        return self

    def __exit__(self, kind, value, traceback):
        self._live.stop()

    def say(self, line):
        """Print a line above the table."""
        # Options of print would also change how the table is drawn.
        self._live.console.print(self._text(line))

    def show(self, board, seen):
        """Draw the table anew."""
        from lab import status

        self._live.update(status.screen(
            board.rows(seen), consistency.inconsistencies(seen, time.time()),
            seen.at), refresh=True)

    def say_counts(self, board, seen):
        """Do nothing: the table is there to be seen."""
