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

"""The cloud as its user and its operator see it: through the APIs."""


class Cloud:
    """Clients for a stack that is up, made when first used.

    :param settings: :class:`lab.settings.Settings`
    """

    def __init__(self, settings):
        self._settings = settings

    @property
    def session(self):
        """keystoneauth1 session of the admin in project admin."""

    @property
    def ironic(self):
        """python-ironicclient v1 client, system scope (sees all nodes)."""

    @property
    def sdk(self):
        """openstacksdk connection of the admin in project admin."""

    def nova(self, method, path, json=None):
        """One request to the nova API.

        :param method: 'GET', 'POST', ...
        :param path: e.g. '/servers/detail'
        :param json: body
        :returns: decoded body, or None when there is none
        """

    def boot(self, count=1, name_prefix='server', wait=True, timeout=120):
        """Ask for servers.

        :param wait: return when each is ACTIVE or ERROR
        :returns: list of server ids, in the order of their names
        :raises LabError: when not all settled within timeout seconds
        """

    def delete(self, ids, wait=True, timeout=120):
        """Delete servers.

        :param wait: return when they are gone
        """

    def enrol(self, count):
        """Enrol nodes up to 'available', each stage for all at once."""

    def service_action(self, host, action):
        """Tell nova about a compute service.

        :param action: 'disable', 'enable', 'fence' (force down) or
            'unfence'
        """
