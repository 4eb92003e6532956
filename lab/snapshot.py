# SPDX-License-Identifier: Apache-2.0

"""The prepared data of the services, kept for every later start."""

import contextlib
import hashlib
import pathlib
import shutil

from lab import lock

_CODE = ('configuration.py', 'preparation.py')


class Snapshot:
    """A copy of the data directory, which several labs begin with.

    Its stamp covers what went into it: requirements and the code that
    prepares. It is written last, so that half a copy is none. Place and ports
    of the lab that made it are in its databases; those of each lab are put
    there when its MariaDB starts, see :func:`lab.configuration.shared`.

    :param settings: :class:`lab.settings.Settings`
    """

    def __init__(self, settings):
        self._settings = settings
        self._stamp = settings.snapshot / 'stamp'

    @contextlib.contextmanager
    def hold(self):
        """Keep other labs from using or replacing it; waits for them."""
        with lock.hold(self._settings.snapshot.with_suffix('.lock'),
                       'prepare', wait=True):
            yield

    def valid(self):
        """Whether there is one, and of this code."""
        try:
            return self._stamp.read_text() == self._expected()
        except OSError:
            return False

    def take(self):
        """Copy the data; the services must be stopped."""
        shutil.rmtree(self._settings.snapshot, ignore_errors=True)
        shutil.copytree(self._settings.data, self._settings.snapshot)
        self._stamp.write_text(self._expected())

    def restore(self):
        """Replace the data by the copy."""
        shutil.rmtree(self._settings.data, ignore_errors=True)
        shutil.copytree(self._settings.snapshot, self._settings.data,
                        ignore=shutil.ignore_patterns(self._stamp.name))

    def _expected(self):
        here = pathlib.Path(__file__).parent
        paths = [here / name for name in _CODE]
        parts = [path.read_text()
                 for path in (*paths, *self._settings.requirements)]
        return hashlib.sha256('\0'.join(parts).encode()).hexdigest()
