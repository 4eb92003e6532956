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

"""The changes: nodes that change in Ironic between two audits.

A node that an operator or Ironic has changed, or created, is known to its
compute service and to placement in seconds, however far apart nova's audits
are.
"""

from collections.abc import Callable
from collections.abc import Mapping

from nova_ironic_multihost.audit import auditor as auditors
from nova_ironic_multihost.audit.model import Audit
from nova_ironic_multihost.audit.model import Settings
from nova_ironic_multihost.audit.sources import Tracker
from nova_ironic_multihost.core.mirror import Row

#: The most nodes that are audited at a time; builds have to wait for some.
TOGETHER = 50


class Changes:
    """Has what has changed audited. One thread uses it.

    :param auditor: reads what has changed, and audits it.
    :param tracker: nova's resource tracker.
    :param ending: says whether this service is about to end.
    """

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 ending: Callable[[], bool] = lambda: False) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._ending = ending
        self._serial = 0
        #: Nodes that wait -> serial of the mirror that they were in.
        self._waiting: Mapping[str, int] = {}

    def once(self, settings: Settings,
             then: Callable[[Mapping[str, Row]], None]) -> None:
        """Look once.

        Nothing before the first audit of all nodes. What has changed before
        the last one, nova's tracker comes to by itself.

        :param then: called with {uuid: node} of those that are mine, before
            the tracker audits them.
        :raises Exception: what there is cannot be known; it is tried again.
        """
        if self._auditor.last is None:
            return
        mirror = self._auditor.read(settings)
        audited = self._auditor.serial
        changed = mirror.changed_since(max(audited, self._serial))
        self._waiting = {
            **{node: serial for node, serial in self._waiting.items()
               if serial > audited},
            **dict.fromkeys(sorted(changed), mirror.serial)}
        self._serial = mirror.serial
        some = list(self._waiting)[:TOGETHER]
        if not some:
            return

        def take(audit: Audit, mine: list[str]) -> None:
            then({node: audit.nodes[node] for node in mine})
            for node in mine:
                if self._ending():
                    return
                self._tracker.audit(node)

        self._auditor.audit_changed(settings, some, take)
        self._waiting = {node: serial for node, serial
                         in self._waiting.items() if node not in some}
