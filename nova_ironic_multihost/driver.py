# SPDX-License-Identifier: Apache-2.0

"""The virt driver: nova's methods that this package overrides, each short.

The decisions are in ``rules``, what carries them out in ``engine``, all that
touches nova in ``adapters``; :mod:`.service` puts them together.
"""

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost import conf
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost import service

CONF = names.CONF


class IronicMultiHostDriver(names.IronicDriver):
    """IronicDriver that manages this compute service's part of the nodes.

    At each audit (nova's ``update_available_resource``) a compute service
    manages the nodes with an instance of its own, and none with an instance of
    another. Of the nodes without an instance it manages those that the hash
    ring maps to it, if it can take them without harm.
    """

    def __init__(self, virtapi, read_only=False):
        conf.register_opts(CONF)
        self.service = service.DriverService(self, virtapi)
        # An operator's driver may ask Ironic there.
        super().__init__(virtapi, read_only)
        self.node_cache = ironic.NodeCache(
            lambda body: ironic.node(body, self.ironic_connection),
            lambda: self.service.auditor.nodes, self.service.lister)

    @property
    def hash_ring(self):
        """The tooz ring, under the name that nova's driver has for it."""
        return self.service.auditor.preferences.ring.hashring

    @property
    def ironic_connection(self):
        """Connection that waits for Ironic, and changes no foreign machine."""
        stock = super()
        return self.service.connection(lambda: stock.ironic_connection)

    def init_host(self, host):
        """Check the settings and replace parts of nova: see prepare()."""
        self.service.prepare(host)
        super().init_host(host)

    def cleanup_host(self, host):
        """End what goes on besides nova's own tasks."""
        self.service.end()
        self.service.shutdown.wait()
        super().cleanup_host(host)
        self.service.close()

    def get_available_nodes(self, refresh=False):
        """Return the uuids of the nodes that this compute service manages.

        nova calls it at the start of each audit, so each call asks nova and
        Ironic, also without ``refresh``. Raises as NodeAudits.audit().
        """
        return self.service.nodes.audit()

    def list_instance_uuids(self):
        """Return the uuids of the instances on this host's nodes.

        nova's reaper looks here for instances that it has deleted; what nova
        does not know is no business of its. Empty before the first audit.
        """
        return [instance for node, instance
                in self.node_cache.instances().items()
                if self.service.auditor.reason(node) is not Reason.UNKNOWN]

    def get_num_instances(self):
        """Return the number of these instances.

        nova before 34 reads each through its conductor, at each power sync.
        """
        return len(self.list_instance_uuids())

    def get_info(self, instance, use_cache=True):
        """Return the power state of an instance, by default a cached one."""
        if use_cache:
            self._refresh_cache()
            if node := self.node_cache.of_instance(instance.uuid):
                return names.InstanceInfo(
                    state=names.map_power_state(node.power_state))
        return super().get_info(instance, use_cache=False)

    def is_node_deleted(self, nodename):
        """Whether a node is gone from Ironic; nova may ask for thousands."""
        return self.service.nodes.is_deleted(nodename)

    def get_available_resource(self, nodename):
        """Return the resources of a node; raises as prepare_audit()."""
        self.service.nodes.prepare_audit(nodename)
        with self.service.ironic_retry.none():
            resources = super().get_available_resource(nodename)
        self.service.nodes.note_resources(nodename, resources)
        return resources

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        """Tell placement of a node: see NodeAudits.update_provider_tree()."""
        stock = super()
        self.service.nodes.update_provider_tree(
            provider_tree, nodename, lambda: stock.update_provider_tree(
                provider_tree, nodename, allocations))

    def node_is_available(self, nodename):
        """Whether Ironic has a node; the tracker asks, under its lock."""
        with self.service.ironic_retry.none():
            return super().node_is_available(nodename)

    def prepare_for_spawn(self, instance):
        """Reserve the node of an instance in Ironic.

        :raises ComputeResourcesUnavailable: the node is taken, or gone.
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
        # From now on its machine is in use, even if the build fails.
        self.service.nodes.audit_now(instance.get('node'))
        self.service.nodes.note_wait(Wait.BUILD, instance.created_at)

    def failed_spawn_cleanup(self, instance):
        """Free the node of a build that has failed."""
        super().failed_spawn_cleanup(instance)
        # nova reports the node again when it takes back the claim.
        self.service.nodes.forget(instance.get('node'))

    def destroy(self, context, instance, network_info,
                block_device_info=None, destroy_disks=True,
                destroy_secrets=True):
        """Tear down the machine of a server."""
        super().destroy(
            context, instance, network_info,
            block_device_info=block_device_info, destroy_disks=destroy_disks,
            destroy_secrets=destroy_secrets)
        # nova deletes the allocation next: offer no machine in cleaning.
        self.service.nodes.audit_now(instance.get('node'))
        if instance.task_state in takeover.DELETING:
            self.service.nodes.note_wait(Wait.DELETE, instance.updated_at)

    def rebuild(self, context, instance, image_meta, injected_files,
                admin_password, allocations, bdms, detach_block_devices,
                attach_block_devices, network_info=None, evacuate=False,
                block_device_info=None, preserve_ephemeral=False,
                accel_uuids=None, reimage_boot_volume=False):
        """Rebuild a server."""
        super().rebuild(
            context, instance, image_meta, injected_files, admin_password,
            allocations, bdms, detach_block_devices, attach_block_devices,
            network_info=network_info, evacuate=evacuate,
            block_device_info=block_device_info,
            preserve_ephemeral=preserve_ephemeral, accel_uuids=accel_uuids,
            # Since API 2.93 nova asks for it without a boot volume, too
            # (bug 2127017).
            reimage_boot_volume=(
                reimage_boot_volume and db.volume_backed(bdms)))

    def spawn(self, context, instance, image_meta, injected_files,
              admin_password, allocations, network_info=None,
              block_device_info=None, power_on=True, accel_info=None):
        """Deploy an instance; set it to ERROR if its image is invalid."""
        try:
            super().spawn(
                context, instance, image_meta, injected_files,
                admin_password, allocations, network_info=network_info,
                block_device_info=block_device_info, power_on=power_on,
                accel_info=accel_info)
        except names.NovaException:
            raise
        except Exception as exc:
            if 'InvalidImage' not in str(exc):
                raise
            # nova before 33.0.2 tries one node after the other (bug 2127087).
            raise names.BuildAbortException(
                instance_uuid=instance.uuid, reason=str(exc)) from exc

    def _refresh_cache(self):
        # nova takes an empty cache for one that was never filled; a build
        # must not wait for an audit of all nodes.
        if self.service.auditor.last is None:
            self.service.nodes.audit_all()

    def _refresh_hash_ring(self, ctxt):
        self.service.auditor.refresh_ring(settings.read())

    def _node_from_cache(self, node_id):
        # nova's also keeps nodes of other hosts.
        return self.node_cache.read(
            node_id, self._get_node, self.service.auditor.is_mine)
