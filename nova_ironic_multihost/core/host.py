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

"""How hosts are told apart: their names in lower case.

DNS and MySQL compare names so, and a host that was renamed in case only has
services, instances and records under both spellings (nova bug 1866380). A
plain ``str`` is a name as nova spells it; what is compared, or is the key of
a map, is a :data:`HostKey`.
"""

import typing

#: The name by which a host is told from others: in lower case.
HostKey = typing.NewType('HostKey', str)


def host_key(name: str) -> HostKey:
    """Return the key of a host.

    :param name: its name in any spelling.
    """
    return HostKey(name.lower())
