# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The prepared data of the services, kept for every later start."""

import hashlib
import pathlib
import shutil

_CODE = ('configuration.py', 'preparation.py', 'requirements.txt')


class Snapshot:
    """A copy of the data directory, valid for one state of the lab.

    Its stamp covers what went into it: place, ports (both are in the
    databases), requirements and the code that prepares. It is written
    last, so that half a copy is none.

    :param settings: :class:`lab.settings.Settings`
    """

    def __init__(self, settings):
        self._settings = settings
        self._stamp = settings.snapshot / 'stamp'

    def valid(self):
        """Whether there is one that fits this lab."""
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
        parts = [str(self._settings.directory), str(self._settings.base_port)]
        parts += [(here / name).read_text() for name in _CODE]
        return hashlib.sha256('\0'.join(parts).encode()).hexdigest()
