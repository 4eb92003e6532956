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

"""The whole stack: bring it up, take it down."""


class Stack:
    """One lab's processes as a whole.

    :param settings: :class:`lab.settings.Settings`
    :param progress: :class:`lab.progress.Progress`
    """

    def __init__(self, settings, progress):
        self._settings = settings
        self._progress = progress

    def up(self, computes, nodes, driver='ours', options=()):
        """Start everything; returns when all nodes can be scheduled to.

        :param computes: number of nova-computes
        :param nodes: number of Ironic nodes
        :param driver: 'ours' or 'stock'
        :param options: 'SECTION.OPTION=VALUE' strings for nova-compute
        :raises LabError: when the lab is up with another shape, or a
            service does not start
        """

    def down(self):
        """Stop everything that belongs to this lab, whatever is left."""

    def shape(self):
        """What is up: dict of computes (list of names), nodes, driver,
        options and since (epoch seconds); None when nothing is."""
