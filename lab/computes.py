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

"""The nova-compute services of a lab, one by one."""


class Computes:
    """Starts, stops and breaks nova-computes of a stack that is up.

    Each method returns when the action is done: a started compute is up
    in nova and mapped to the cell, a stopped one has no process.
    Every method raises LabError for a name that does not exist.

    :param settings: :class:`lab.settings.Settings`
    """

    def __init__(self, settings):
        self._settings = settings

    def names(self):
        """Names of all computes ever added, e.g. compute-1, sorted."""

    def process_state(self, name):
        """'running', 'stopped' or 'paused'."""

    def start(self, name):
        """Start a stopped compute; a name that is new is added."""

    def add(self, name):
        """Configure and start a new compute, then map it to the cell."""

    def stop(self, name):
        """End the process the polite way (SIGTERM)."""

    def kill(self, name):
        """End the process with SIGKILL."""

    def pause(self, name):
        """Freeze the process (SIGSTOP)."""

    def resume(self, name):
        """Let a frozen process go on (SIGCONT)."""

    def disable(self, name):
        """Disable the service in nova."""

    def enable(self, name):
        """Enable the service in nova."""

    def fence(self, name):
        """Force the service down in nova."""

    def unfence(self, name):
        """Take the forced-down mark away."""
