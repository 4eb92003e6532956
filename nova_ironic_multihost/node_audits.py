# SPDX-License-Identifier: Apache-2.0

"""Audits of nodes for nova's tracker, and the polls between two audits."""

import time

from oslo_log import log as logging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost.engine.audit.recheck import Offer
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules import peers

LOG = logging.getLogger(__name__)
CONF = names.CONF


class NodeAudits:
    """What the driver and the polls do about nodes.

    :param driver: the virt driver.
    :param service: the :class:`.service.DriverService` with the parts.
    :ivar settled: nova has audited once, and listens for builds.
    :ivar audited: the last audit of all nodes; later polls have changed the
        auditor's.
    """

    def __init__(self, driver, service):
        self._driver = driver
        self._parts = service
        self.settled = self._filled = False
        self.audited = None

    def audit(self):
        """Audit all nodes for nova; return the uuids of those that are mine.

        :raises VirtDriverNotReady: Ironic gives no whole list, or the service
            is about to end.
        """
        if self._parts.shutdown.begun():
            raise names.VirtDriverNotReady('This service is about to end.')
        if not self.settled:
            # The stop marker is of a process before this one.
            self._parts.shutdown.undo()
        try:
            nodes = self.audit_all()
            if has_stop_marker(self._parts.auditor.last.view):
                # The others pull what this service would pull now.
                self._parts.shutdown.undo()
            if not self._filled:
                self._parts.tracker.fill(self._parts.due_nodes.ready())
                self._filled = True
            self._parts.due_nodes.spare(nodes)
            self._parts.notifier.follow(
                CONF.host, self._parts.auditor.last,
                self._parts.auditor.absences)
            self._parts.rebalancer.once(settings.partition().label)
            return nodes
        finally:
            # nova audits once before it listens for builds.
            self.settled = True

    def audit_all(self):
        """Audit all nodes; return the uuids of those that are mine.

        :raises VirtDriverNotReady: Ironic gives no whole list.
        """
        try:
            with (self._driver.node_cache.listing() as changed,
                  self._parts.ironic_retry.none()):
                return list(self._parts.auditor.audit(
                    settings.read(), self.settled,
                    lambda audit: self._publish(audit, changed),
                    self._parts.tracker.has).nodes)
        except ListingError as exc:
            LOG.error(
                'Ironic gave no list of its nodes: %s. Nothing is changed, '
                'and the next audit asks again. Check that the Ironic API '
                'runs and that the credentials in [ironic] of nova.conf may '
                'list all nodes.', exc)
            raise names.VirtDriverNotReady() from exc

    def _publish(self, audit, changed):
        """Let nova work with what an audit of all nodes has found.

        :param changed: uuids of the nodes that have changed since it began.
        """
        self.audited = audit
        self._parts.due_nodes.follow(settings.read(), audit.view)
        self._parts.due_nodes.begin(not self.settled)
        self._parts.recovery.took_over(audit.taken_over, audit.at_rest)
        self._driver.node_cache.replace(audit.nodes, changed)
        self._driver.node_cache_time = time.time()

    def look(self):
        """Poll the peers once, and do what follows from it."""
        try:
            with self._parts.ironic_retry.none():
                options = settings.read()
                view = self._parts.peer_poller.once(options)
            self._parts.due_nodes.follow(options, view)
            return view
        except Exception:
            self._parts.recovery.note_silence()
            raise
        finally:
            if has_stop_marker(self._parts.peer_poller.view):
                self._parts.shutdown.undo()

    def poll(self):
        """Ask Ironic what has changed, and audit that."""
        with (self._driver.node_cache.listing() as changed,
              self._parts.ironic_retry.none()):
            more = self._parts.ironic_changes.once(
                settings.read(),
                lambda nodes: self._driver.node_cache.add(nodes, changed))
        if more:
            self._parts.tasks.wake('poll')

    def adopt(self, build, node_id):
        """Take the node of a build from a dead host; whether it may have."""
        if self._parts.shutdown.begun():
            return False
        with self._parts.ironic_retry.none():
            return self._parts.orphan_claimer.adopt(
                settings.read(), build, node_id)

    def to_move(self, nodes):
        """Return the records of nodes that can be moved without an audit.

        A node that Ironic has taken out of service since its owner died has
        to be reserved in placement first, unless it has a server.
        """
        def as_it_was(node):
            return (self._parts.auditor.reason(node) in ownership.SERVED
                    or self.is_free(node))

        return self._parts.recheck.to_move(
            filter(as_it_was, nodes),
            peers.same_label(settings.partition().label))

    def is_free(self, node):
        """Whether Ironic has a node free, as far as is known."""
        its = self._driver.node_cache.get(node)
        return (its is not None
                and not self._driver._node_resources_used(its)
                and not self._driver._node_resources_unavailable(its))

    def acquire(self, audit, mine):
        """Let nova work with nodes that a poll has found to be mine."""
        self._parts.recovery.took_over(audit.taken_over, audit.at_rest)
        self._driver.node_cache.add({node: audit.nodes[node] for node in mine})
        for node in mine:
            # Another may have had it since it was audited here.
            self._parts.due_nodes.touch(node)

    def note_move(self, node, done):
        """Count a record that was moved here, or could not be."""
        self._parts.recorder.note_move(self._parts.auditor.reason(node), done)

    def bar(self, node, exc):
        """Leave a node alone: its record cannot be moved here."""
        if not self._parts.auditor.is_barred(node):
            LOG.warning(
                'The record of node %(node)s cannot be moved to this host: '
                'its database refuses that for good. The node is left alone. '
                '"nova-ironic-multihost check" says of second records; else '
                'mend what nova says: %(exc)s', {'node': node, 'exc': exc})
        self._parts.auditor.bar(node)

    def prepare_audit(self, node):
        """Prepare the audit of a node by nova's tracker.

        :raises ComputeHostNotFound: the node is not to be mine: the tracker
            would take its record.
        """
        if not self._parts.recheck.may_take(node):
            raise names.ComputeHostNotFound(host=node)
        if (self._parts.recheck.is_new(node)
                or self._parts.due_nodes.asks_anew(node)):
            self._parts.tracker.refresh(node)
        elif self._parts.due_nodes.may_spare(node):
            self._parts.tracker.confirm(node)

    def note_resources(self, node, resources):
        """Note with what the tracker audits a node; name its partition."""
        self._parts.due_nodes.note_used(
            node, self._driver.node_cache.row(node))
        if label := settings.partition().label:
            resources['stats'][db.PARTITION] = label

    def update_provider_tree(self, tree, node, update):
        """Say what placement is to know of a node.

        :param update: nova's own update of the tree.
        :raises ComputeHostNotFound: the node is not mine to speak for: it was
            pulled since the audit began, or a build was sent to its owner.
        """
        offered = self._parts.recheck.of(node)
        if offered is Offer.REFUSED:
            raise names.ComputeHostNotFound(host=node)
        with (self._parts.ironic_retry.none(),
              placement.renewed(tree, node, self._parts.tracker)):
            update()
            self._parts.due_nodes.note_used(
                node, self._driver.node_cache.row(node))
            if offered is Offer.NOTHING:
                placement.reserve(tree, node)
        if self._parts.auditor.last is not None:
            placement.follow_aggregates(
                tree, node, self._parts.auditor.last, self._parts.tracker)

    def is_deleted(self, node):
        """Whether Ironic has confirmed that it has the node no more."""
        self._parts.recorder.sign(Work.AUDIT)
        audit = self._parts.auditor.last
        return audit is not None and node in audit.deleted

    def forget(self, node):
        """Have a node read anew when it is needed next."""
        self._driver.node_cache.forget(node)
        self._parts.lister.forget(node)
        self._parts.due_nodes.touch(node)

    def audit_now(self, node):
        """Let nova and placement know at once what became of a node.

        A build or a delete goes on in any case.
        """
        self.forget(node)
        if not self._parts.tracker.has(node):
            return
        try:
            self._parts.tracker.audit(node)
        except Exception:
            LOG.exception('Node %s could not be audited; the next audit of '
                          'all nodes does it.', node)
        # It goes on changing: nothing is to be told by what it was.
        self.forget(node)


def has_stop_marker(view):
    """Whether this service was seen with its own stop marker."""
    me = view.services.get(view.host) if view is not None else None
    return me is not None and bool(me.stop_marker)
