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


"""The virt driver: gathers, lets the pure core decide, carries it out."""

import time

from oslo_log import log as logging

from nova_ironic_multihost.audit import auditor as audits
from nova_ironic_multihost.audit import watch
from nova_ironic_multihost import conf
from nova_ironic_multihost.conf import contradictions
from nova_ironic_multihost.contract import calls
from nova_ironic_multihost.contract import names
from nova_ironic_multihost.contract import node_cache
from nova_ironic_multihost.contract import operations
from nova_ironic_multihost.contract import patches
from nova_ironic_multihost.contract import provider
from nova_ironic_multihost.contract import reads
from nova_ironic_multihost.contract import settings
from nova_ironic_multihost.contract import sources
from nova_ironic_multihost.core import ownership
from nova_ironic_multihost import exception
from nova_ironic_multihost import gate
from nova_ironic_multihost import recovery

LOG = logging.getLogger(__name__)
CONF = names.CONF

#: Nodes that no server may be built on, whatever Ironic says of them.
_BARRED = frozenset({
    ownership.Reason.BUILDING, ownership.Reason.LEAKED,
    ownership.Reason.UNKNOWN, ownership.Reason.UNLISTED})


class IronicMultiHostDriver(names.IronicDriver):
    """IronicDriver that manages this compute service's part of the nodes.

    Three rules hold at each audit (nova's ``update_available_resource``): a
    compute service manages every node with an instance of its own, every
    node without an instance that the hash ring maps to it, and no node with
    an instance of another. A node keeps its owner until that is possible
    without harm. With one compute service it manages every node, as nova's
    own driver does.

    Overrides only; the rules are in :mod:`~nova_ironic_multihost.core.ownership`.
    """

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        conf.register_opts(CONF)
        self.node_cache = node_cache.NodeCache()
        self._tracker = calls.Tracker(virtapi)
        self._auditor = audits.Auditor(
            sources.NovaSources(self, self._tracker))
        self._instances = calls.Instances(virtapi)
        self._recovery = recovery.Recovery(
            self._instances, self._provision_state, self._wait_until_deployed)
        self._gate = None
        self._watch = watch.Watch()
        self._timer = watch.Timer(
            self._look, lambda: watch.period(CONF.report_interval))
        self._settled = False
        self._tally = None
        self._audited = None
        self._pulled = ()

    @property
    def hash_ring(self):
        """The tooz ring, under the name that nova's driver has for it."""
        return self._auditor.preferences.ring.hashring

    @property
    def ironic_connection(self):
        """Connection to Ironic that changes no machine of another host."""
        connection = super().ironic_connection
        if self._gate is None:
            return connection
        return operations.AskingConnection(connection, self._gate)

    def init_host(self, host):
        """Refuse settings that cannot work, then see who else is there.

        :raises ConfigurationContradiction: says what to change.
        """
        found = contradictions.find(CONF, host)
        for sentence in found:
            LOG.error(sentence)
        if found:
            raise exception.ConfigurationContradiction(found)
        manager = names.manager_of(self.virtapi)
        patches.patch_record_reads(
            manager, lambda: self._audited.records,
            lambda: self._auditor.last.records)
        patches.patch_record_moves(
            manager,
            lambda record: self._auditor.still_valid(record.node, record))
        patches.patch_instance_init(manager, self._recovery.start)
        self._gate = gate.Gate(host, self._auditor.sources)
        patches.patch_operations(manager, self, self._gate)
        patches.patch_post_start(manager, self._timer.start)
        super().init_host(host)

    def cleanup_host(self, host):
        """End what goes on besides nova's own tasks."""
        self._timer.stop()
        super().cleanup_host(host)

    def get_available_nodes(self, refresh=False):
        """Return the uuids of the nodes that this compute service manages.

        nova calls it at the start of each audit, so each call asks nova who
        is up and Ironic which nodes there are.

        :param refresh: ignored; the answer is always fresh.
        :raises VirtDriverNotReady: when Ironic gives no whole list.
        """
        try:
            return self._audit()
        finally:
            # nova audits once before it listens for builds.
            self._settled = True

    def get_nodenames_by_uuid(self, refresh=False):
        """Return {uuid: uuid} of the nodes that are recorded on this host.

        nova asks at the start only, for the nodes whose unfinished builds it
        sets to ERROR: those of nobody else.
        """
        return {record.node: record.node
                for record in self._auditor.records(settings.read())}

    def list_instance_uuids(self):
        """Return the uuids of the instances on the nodes that are ours.

        nova's reaper looks here for instances that it has deleted. Empty
        before the first audit; instances that nova does not know are no
        business of its.
        """
        return [node.instance_id for node in self.node_cache.values()
                if node.instance_id is not None
                and self._reason(node.id) is not ownership.Reason.UNKNOWN]

    def is_node_deleted(self, nodename):
        """Whether Ironic has confirmed that it has the node no more."""
        audit = self._auditor.last
        return audit is not None and nodename in audit.deleted

    def get_available_resource(self, nodename):
        """Return the resources of a node.

        :raises ComputeHostNotFound: when the node has got another owner
            since the audit began: the tracker would take its record.
        """
        if not self._may_take(nodename):
            raise names.ComputeHostNotFound(host=nodename)
        audit = self._auditor.last
        if audit and (nodename in audit.recent
                      or not self._tracker.has(nodename)):
            self._tracker.refresh(nodename)
        resources = super().get_available_resource(nodename)
        if label := settings.partition().label:
            resources['stats'][reads.PARTITION] = label
        return resources

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        """Say what placement is to know of a node.

        :raises ComputeHostNotFound: when the node is not ours to speak for:
            another has pulled it since the audit began, or it is to be pulled
            from another and a build has been sent there after all.
        """
        if (self._auditor.may_be_gone(nodename)
                and not self._auditor.still_valid(nodename)):
            raise names.ComputeHostNotFound(host=nodename)
        super().update_provider_tree(provider_tree, nodename, allocations)
        reason = self._reason(nodename)
        pulling = (reason is ownership.Reason.PULLED
                   and not self._tracker.has(nodename))
        if pulling and self._auditor.in_use(nodename):
            raise names.ComputeHostNotFound(host=nodename)
        if pulling or reason in _BARRED:
            # A node that moves is offered again when its record has moved.
            # Placement refuses the change if a build got in between, and
            # nova then asks again.
            provider.reserve(provider_tree, nodename)
        if audit := self._auditor.last:
            provider.follow_aggregates(
                provider_tree, nodename, audit, self._tracker)

    def prepare_for_spawn(self, instance):
        """Reserve the node of an instance in Ironic.

        :raises ComputeResourcesUnavailable: when another has it; the build
            goes to another node.
        """
        try:
            super().prepare_for_spawn(instance)
        except names.NodeNotFound as exc:
            raise names.ComputeResourcesUnavailable(
                reason=str(exc)) from exc
        except names.InstanceDeployFailure as exc:
            if not isinstance(exc.__context__, names.NodeConflict):
                raise
            raise names.ComputeResourcesUnavailable(
                reason=exc.format_message()) from exc
        # From now on its machine is in use, whatever becomes of the build.
        self._audit_now(instance.get('node'))

    def failed_spawn_cleanup(self, instance):
        """Free the node of a build that has failed.

        nova reports the node when it takes back the claim: as it is then.
        """
        super().failed_spawn_cleanup(instance)
        self.node_cache.forget(instance.get('node'))

    def destroy(self, context, instance, network_info,
                block_device_info=None, destroy_disks=True,
                destroy_secrets=True):
        """Tear down the machine of a server.

        nova deletes the server's allocation next, and the machine that
        Ironic is cleaning would be offered.
        """
        super().destroy(
            context, instance, network_info,
            block_device_info=block_device_info, destroy_disks=destroy_disks,
            destroy_secrets=destroy_secrets)
        self._audit_now(instance.get('node'))

    def rebuild(self, context, instance, image_meta, injected_files,
                admin_password, allocations, bdms, detach_block_devices,
                attach_block_devices, network_info=None, evacuate=False,
                block_device_info=None, preserve_ephemeral=False,
                accel_uuids=None, reimage_boot_volume=False):
        """Rebuild a server.

        From API microversion 2.93 on nova asks for a new image on the boot
        volume whether or not there is one (bug 2127017).
        """
        super().rebuild(
            context, instance, image_meta, injected_files, admin_password,
            allocations, bdms, detach_block_devices, attach_block_devices,
            network_info=network_info, evacuate=evacuate,
            block_device_info=block_device_info,
            preserve_ephemeral=preserve_ephemeral, accel_uuids=accel_uuids,
            reimage_boot_volume=(
                reimage_boot_volume and reads.volume_backed(bdms)))

    def _refresh_cache(self):
        # nova takes an empty cache for one that was never filled; a build
        # must not wait for an audit of all nodes.
        if self._auditor.last is None:
            self._audit()

    def _refresh_hash_ring(self, ctxt):
        self._auditor.refresh_ring(settings.read(), starting=not self._settled)

    def _node_from_cache(self, node_id):
        # nova's also keeps nodes that are not ours.
        return self.node_cache.read(node_id, self._get_node, self._is_mine)

    def _audit_now(self, node_id):
        """Let nova and placement know at once what became of a node.

        Whoever builds or deletes goes on in any case.
        """
        self.node_cache.forget(node_id)
        if not self._tracker.has(node_id):
            return
        try:
            self._tracker.audit(node_id)
        except Exception:
            LOG.exception('Node %s could not be audited; the next audit of '
                          'all nodes does it.', node_id)
        # It goes on changing: nothing is to be told by what it was.
        self.node_cache.forget(node_id)

    def _audit(self):
        self.node_cache.begin_listing()
        audit = self._auditor.audit(
            settings.read(), self._settled, self._publish)
        self._report(audit.reasons)
        return list(audit.nodes)

    def _publish(self, audit):
        self._audited = audit
        self._took_over(audit.taken_over)
        self.node_cache.replace(audit.nodes)
        self.node_cache_time = time.time()

    def _look(self):
        """Look who is there, and audit at once the nodes that it concerns.

        Done every few seconds between nova's audits.

        :returns: :class:`.membership.View` of this moment.
        """
        options = settings.read()
        audit = self._auditor.last
        hosts = dict.fromkeys(self._watch.hosts)
        if audit is not None:
            hosts.update((service.host, None)
                         for service in audit.view.services.values())
        _, view = self._auditor.read_view(options, hosts)
        if audit is not None:
            self._audit_pulled()
            eligible = self._auditor.eligible(options, view)
            due = self._watch.due(view, eligible)
            starting = self._watch.starting(
                view, due, CONF.service_down_time)
            missed, waiting = self._audit_hosts(
                options, view, due - starting)
            self._watch.done(view, missed, eligible, starting.union(waiting))
        return view

    def _audit_hosts(self, options, view, hosts):
        """Audit the nodes of some hosts and take what is mine.

        :param hosts: hosts in lower case.
        :returns: (those of them of which some nodes could not be taken,
            those of which more instances wait to be taken over).
        """
        missed = set()
        if not hosts:
            return missed, ()

        def take(audit, mine):
            self._took_over(audit.taken_over)
            self.node_cache.add({node: audit.nodes[node] for node in mine})
            for node in mine:
                # It may have been here before.
                self._tracker.drop(node)
                self._tracker.audit(node)
                if not self._tracker.has(node):
                    missed.add(audit.owners[node])
            self._pulled = tuple(
                node for node in mine
                if audit.reasons[node] is ownership.Reason.PULLED)

        spelt = {host: view.services[host].host for host in sorted(hosts)}
        reasons = self._auditor.audit_hosts(
            options, list(spelt.values()), take)
        if reasons:
            LOG.info('Audited the nodes of %(hosts)s, which left: '
                     '%(tally)s.', {
                         'hosts': ', '.join(spelt.values()),
                         'tally': _in_words(ownership.tally(reasons))})
        waits = ownership.Reason.INSTANCE_WAITS in reasons.values()
        return missed, hosts if waits else ()

    def _audit_pulled(self):
        """Audit nodes that came from live hosts once more.

        Their former owner may have set traits until now.
        """
        pulled, self._pulled = self._pulled, ()
        for node in pulled:
            if self._tracker.has(node):
                self._tracker.audit(node)

    def _took_over(self, instances):
        """Say which instances were taken over, and bring them to rest.

        :param instances: uuid -> host that it was on before.
        """
        for host in sorted(set(instances.values())):
            uuids = sorted(uuid for uuid, before in instances.items()
                           if before == host)
            LOG.info('Took over %(count)d instances of compute service '
                     '%(host)s, which is down.',
                     {'count': len(uuids), 'host': host})
            self._instances.notify('ironic_multihost.takeover', {
                'host': CONF.host, 'source_host': host, 'instances': uuids})
        self._recovery.add(instances)

    def _provision_state(self, instance):
        """Return that of an instance's node, None if the node is not its."""
        try:
            node = self._get_node(instance.node)
        except names.NodeNotFound:
            return None
        return (node.provision_state
                if node.instance_id == instance.uuid else None)

    def _wait_until_deployed(self, instance):
        calls.wait(
            self._wait_for_active, instance, CONF.ironic.api_retry_interval)

    def _reason(self, node):
        audit = self._auditor.last
        return audit and audit.reasons.get(node)

    def _is_mine(self, node):
        reason = self._reason(node)
        return bool(reason and reason.mine)

    def _may_take(self, node):
        return (self._auditor.last is None or self._tracker.has(node)
                or self._auditor.still_valid(node))

    def _report(self, reasons):
        tally = ownership.tally(reasons)
        if tally != self._tally:
            LOG.info('Managing %(mine)d of %(all)d nodes: %(tally)s.', {
                'mine': sum(tally[reason] for reason in tally if reason.mine),
                'all': len(reasons),
                'tally': _in_words(tally)})
            self._tally = tally


def _in_words(tally):
    return ', '.join(f'{count} {reason.value}' for reason, count
                     in tally.items() if count) or 'none'
