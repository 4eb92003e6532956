# SPDX-License-Identifier: Apache-2.0

"""Collect facts about a request, by nova's database and the peer poll."""

from collections.abc import Mapping

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Attempts
from nova_ironic_multihost.engine.moves import peer_poll
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestFacts
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey


class RequestSorter:
    """Collects facts about requests. Several threads use it."""

    def __init__(self, host: str, auditor: auditors.Auditor,
                 peer_poller: peer_poll.PeerPoller,
                 attempts: Attempts) -> None:
        self._host = host_key(host)
        self._auditor = auditor
        self._peer_poller = peer_poller
        self._attempts = attempts

    def situation(self, request: QueuedRequest) -> RequestFacts | None:
        """Return the facts about a request, None if too little is known yet.

        :raises Exception: nova does not answer.
        """
        last, view = self._auditor.last, self._peer_poller.view
        if request.instance is None or last is None or view is None:
            return None
        sources = self._auditor.sources
        state = sources.instance_states([request.instance]).get(
            request.instance)
        if request.kind is not RequestKind.BUILD or request.node is None:
            return RequestFacts(state)
        record = next(iter(sources.records([request.node])), None)
        owner = record.owner if record is not None else None
        return RequestFacts(
            state, owner, owner == self._host or view.live(owner),
            owner in self._peer_poller.eligible,
            self._choice(request.node, owner, last, view),
            self._attempts.count(request.instance))

    def name(self, host: HostKey | None) -> str | None:
        """Return the host as nova spells it, None if nova does not have it."""
        view = self._peer_poller.view
        service = (view.services.get(host)
                   if view is not None and host is not None else None)
        return service.host if service is not None else None

    def _choice(self, node: str, owner: HostKey | None, last: Audit,
                view: peers.View) -> HostKey | None:
        """Return the host that is to get a node of a dead host."""
        preferences = self._auditor.preferences
        if preferences is None:
            return None
        zones: Mapping[HostKey, str] = peers.host_zones(
            last.host_aggregates.aggregates)
        choice = preferences.host_for(
            node, zones.get(owner) if owner is not None else None)
        return choice if view.live(choice) else None
