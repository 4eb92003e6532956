# SPDX-License-Identifier: Apache-2.0

"""Take a node of a dead host for a build that has come to this host.

An allocated node waits for its dead owner, as that host's RPC queue may have
the build. After :mod:`.engine.builds.queue_forwarder` has handed the build on,
its new host takes the node by the same rules, without a wait.
"""

from collections.abc import Callable

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules.peers import host_key

LOG = logging.getLogger(__name__)


class BuildAdopter:
    """Takes nodes for builds. Several threads of builds use it at once."""

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 acquired: Callable[[Audit, list[str]], None]) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._acquired = acquired

    def adopt(self, settings: Settings, build: str, node: str | None
              ) -> bool:
        """Take the node of a build, if a dead host has it; raises nothing.

        If it cannot be taken, nova sends the build to another node.

        :param build: uuid of the instance.
        :returns: whether the node or instances of the host may be taken now.
        """
        try:
            return self._adopt(settings, build, node)
        except Exception as exc:  # noqa: BLE001
            LOG.warning('The node of build %(build)s could not be taken from '
                        'a compute service that is down: %(exc)s. nova sends '
                        'the build to another node.',
                        {'build': build, 'exc': exc})
            return True

    def _adopt(self, settings: Settings, build: str, node: str | None
               ) -> bool:
        last = self._auditor.last
        if node is None or last is None or self._tracker.has(node):
            return False
        sources = self._auditor.sources
        record = next(iter(sources.records([node])), None)
        if record is None or record.owner == host_key(settings.host):
            return False
        if self._auditor.heartbeats.lives(record.host):
            return False

        def take(audit: Audit, mine: list[str]) -> None:
            self._acquired(audit, mine)
            for one in mine:
                self._tracker.drop(one)
                self._tracker.audit(one)

        reasons = self._auditor.audit_hosts(
            settings, [record.host], take, last.view.hosts,
            only=frozenset({node}), builds=frozenset({build}))
        LOG.info('Build %(build)s was sent to compute service %(host)s, which '
                 'is down. Its node is now %(reason)s.', {
                     'build': build, 'host': record.host,
                     'reason': reasons[node].value if node in reasons
                     else 'not available'})
        return True
