# SPDX-License-Identifier: Apache-2.0

"""Audits of nodes for nova's tracker, and the polls between two audits."""

import time

from oslo_log import log as logging
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost.engine.audit.recheck import Offer
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.nodes import node_moves
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers

LOG = logging.getLogger(__name__)
CONF = names.CONF


class NodeAudits:
    """What the driver and the polls do about nodes.

    :param service: the :class:`.service.DriverService` with the parts.
    :ivar settled: nova has tried its first audit.
    :ivar audited: the last audit of all nodes; polls change the auditor's.
    """

    def __init__(self, driver, service):
        self._driver = driver
        self._service = service
        self.settled = self._filled = False
        self.audited = None

    def audit(self):
        """Audit all nodes for nova; return the uuids of those that are mine.

        :raises VirtDriverNotReady: no full Ironic list, or the service ends.
        """
        if self._service.shutdown.begun():
            raise names.VirtDriverNotReady('This service is about to end.')
        if not self.settled:
            # Before the first audit the marker is of an earlier process.
            self._undo_stop()
        try:
            nodes = self.audit_all()
            # With a marker the others pull these nodes.
            self._undo_stop(has_stop_marker(self._service.auditor.last.view))
            return nodes
        finally:
            # nova audits once before it listens for builds.
            self.settled = True

    def follow_up(self):
        """Pull nodes of the last audit, before nova goes through its nodes."""
        if not self._filled:
            self._service.tracker.fill(self._service.due_nodes.ready())
            self._filled = True
        self._service.due_nodes.skip_unchanged(self.audited.nodes)
        self._service.rebalancer.once(settings.partition().label)

    def audit_all(self):
        """Audit all nodes, as :meth:`audit`, also while the service ends."""
        try:
            with self._service.ironic_retry.none():
                return list(self._service.auditor.audit(
                    settings.read(), self.settled, self._publish,
                    self._service.tracker.has).nodes)
        except ListingError as exc:
            LOG.error(
                'Ironic gave no list of its nodes: %s. Nothing is changed, '
                'and the next audit asks again. Check that the Ironic API '
                'runs and that the credentials in [ironic] of nova.conf may '
                'list all nodes.', exc)
            raise names.VirtDriverNotReady() from exc

    def _publish(self, audit):
        """Let nova work with an audit of all nodes."""
        self.audited = audit
        self._service.due_nodes.follow(settings.read(), audit.view)
        self._service.due_nodes.begin(not self.settled)
        self._follow_takeovers(audit)
        self._driver.node_cache.renew()
        self._driver.node_cache_time = time.time()

    def poll_peers(self):
        """Poll the peers once, and do what follows from it."""
        try:
            with self._service.ironic_retry.none():
                options = settings.read()
                view = self._service.peer_poller.once(options)
            self._service.due_nodes.follow(options, view)
            return view
        except Exception:
            self._service.recovery.note_silence()
            raise
        finally:
            self._undo_stop(has_stop_marker(self._service.peer_poller.view))

    def _undo_stop(self, found=True):
        if self._service.shutdown.undo(found):
            # Audits may have marked nodes as of a disabled service.
            self._service.due_nodes.switches += 1

    def poll_ironic(self):
        """Ask Ironic what has changed, and have that audited soon."""
        with self._service.ironic_retry.none():
            changed = self._service.due_nodes.read_ironic(settings.read())
        if changed:
            self._service.threads['background_audit'].wake('background_audit')

    def adopt(self, build, node_id):
        """Take a build's node from a dead host; False if nothing was taken."""
        if self._service.shutdown.begun():
            return False
        with self._service.ironic_retry.none():
            return node_moves.adopt(
                self._service.auditor, self._service.tracker, self.acquire,
                settings.read(), build, node_id)

    def to_move(self, nodes):
        """Return the records of nodes that can be moved without an audit.

        A node that Ironic has taken out of service since its owner died has
        to be reserved in placement first, unless it has a server.
        """
        def as_it_was(node):
            return (self._service.auditor.reason(node) in ownership.SERVED
                    or self.is_free(node))

        return self._service.recheck.to_move(
            filter(as_it_was, nodes),
            peers.same_label(settings.partition().label))

    def is_free(self, node):
        """Whether Ironic has a node free, as far as is known."""
        its = self._driver.node_cache.get(node)
        return (its is not None
                and not self._driver._node_resources_used(its)
                and not self._driver._node_resources_unavailable(its))

    def acquire(self, audit, mine):
        """Let nova work with nodes that a poll or a build gave this host."""
        self._follow_takeovers(audit)
        for node in mine:
            # Another may have had it since it was audited here.
            self._service.due_nodes.touch(node)

    def note_wait(self, wait, since):
        """Count the seconds since a time stamp of nova, None for none."""
        if since is not None:
            seconds = timeutils.delta_seconds(
                timeutils.normalize_time(since), timeutils.utcnow())
            # The clock of a conductor may be ahead.
            self._service.status_server.waits.labels(wait.value).observe(
                max(0, seconds))

    def _note_owner_wait(self, wait, audit, host):
        """Count the seconds since the last heartbeat of an old owner."""
        if service := audit.view.services.get(host):
            self.note_wait(wait, service.beat)

    def _follow_takeovers(self, audit):
        """Have the takeovers of an audit finished, and time them."""
        self._service.recovery.took_over(audit.taken_over, audit.at_rest)
        for host in audit.taken_over.values():
            self._note_owner_wait(
                Wait.TAKEOVER, audit, peers.host_key(host or ''))

    def note_move(self, node, done):
        """Count a record that was moved here, or could not be."""
        reason = self._service.auditor.reason(node)
        self._service.recorder.note_move(reason, done)
        if done and reason is Reason.ADOPTED:
            audit = self._service.auditor.last
            self._note_owner_wait(Wait.MOVE, audit, audit.owners.get(node))

    def bar(self, node, exc):
        """Leave a node alone: its record cannot be moved here."""
        if not self._service.auditor.is_barred(node):
            LOG.warning(
                'The record of node %(node)s cannot be moved to this host: '
                'its database refuses that for good. The node is left alone. '
                '"nova-ironic-multihost check" says of second records; else '
                'mend what nova says: %(exc)s', {'node': node, 'exc': exc})
        self._service.auditor.bar(node)

    def may_take(self, record):
        """Whether the tracker may make a record this host's."""
        return self._service.recheck.still_valid(record.node, record)

    def may_create(self, node):
        """Whether the tracker may create the record of a node."""
        return self._service.recheck.may_create(node, settings.read())

    def prepare_audit(self, node):
        """Prepare the audit of a node by nova's tracker.

        :raises ComputeHostNotFound: the tracker must not take its record.
        """
        if not self._service.recheck.may_take(node):
            raise names.ComputeHostNotFound(host=node)
        audit = self._service.due_nodes.audit_of(node)
        if audit is not None and audit.uncached:
            self._service.tracker.refresh(node)

    def note_resources(self, node, resources):
        """Note with what the tracker audits a node; name its partition."""
        self._service.due_nodes.note_used(
            node, self._driver.node_cache.row(node))
        if label := settings.partition().label:
            resources['stats'][db.PARTITION] = label

    def update_provider_tree(self, tree, node, update):
        """Tell placement of a node, with nova's own ``update`` of the tree.

        :raises ComputeHostNotFound: the node is left to its owner: it was
            pulled since the audit began, or a build was sent there.
        """
        offered = self._service.recheck.of(node)
        if offered is Offer.REFUSED:
            raise names.ComputeHostNotFound(host=node)
        with (self._service.ironic_retry.none(),
              placement.renewed(tree, node, self._service.tracker)):
            update()
            self._service.due_nodes.note_used(
                node, self._driver.node_cache.row(node))
            if offered is Offer.NOTHING:
                placement.reserve(tree, node)
        if self._service.auditor.last is not None:
            placement.follow_aggregates(
                tree, node, self._service.auditor.last, self._service.tracker)

    def is_deleted(self, node):
        """Whether Ironic has confirmed that it has the node no more."""
        self._service.recorder.sign(Work.AUDIT)
        audit = self._service.auditor.last
        return audit is not None and node in audit.deleted

    def forget(self, node):
        """Have a node read anew when it is needed next."""
        self._driver.node_cache.forget(node)
        self._service.due_nodes.touch(node)

    def audit_now(self, node):
        """Audit a node at once; a build or delete goes on in any case."""
        self.forget(node)
        if not self._service.tracker.has(node):
            return
        try:
            self._service.tracker.audit(node)
        except Exception:
            LOG.exception('Node %s could not be audited; the next audit of '
                          'all nodes does it.', node)
        # The node goes on changing.
        self.forget(node)


def has_stop_marker(view):
    """Whether this service was seen with its own stop marker."""
    me = view.services.get(view.host) if view is not None else None
    return me is not None and bool(me.stop_marker)
