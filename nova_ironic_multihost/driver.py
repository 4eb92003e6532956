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

from nova_ironic_multihost import conf
from nova_ironic_multihost.conf import contradictions
from nova_ironic_multihost import exception
from nova_ironic_multihost import membership
from nova_ironic_multihost import nodes
from nova_ironic_multihost import nova_contract
from nova_ironic_multihost import ownership
from nova_ironic_multihost import ring

LOG = logging.getLogger(__name__)
CONF = nova_contract.CONF


class IronicMultiHostDriver(nova_contract.IronicDriver):
    """IronicDriver that manages this compute service's part of the nodes.

    Three rules hold at each audit (nova's ``update_available_resource``): a
    compute service manages every node with an instance of its own, every
    node without an instance that the hash ring maps to it, and no node with
    an instance of another. With one compute service that is every node, as
    with nova's own driver.

    Overrides only; the rules are in :mod:`~nova_ironic_multihost.ownership`.
    """

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        conf.register_opts(CONF)
        self._ring = None
        self._tally = None

    @property
    def hash_ring(self):
        """The tooz ring, under the name that nova's driver has for it."""
        return self._ring.hashring

    def init_host(self, host):
        """Refuse settings that cannot work, then see who else is there.

        :raises ConfigurationContradiction: says what to change.
        """
        found = contradictions.find(CONF, host)
        for sentence in found:
            LOG.error(sentence)
        if found:
            raise exception.ConfigurationContradiction(found)
        super().init_host(host)

    def get_available_nodes(self, refresh=False):
        """Return the uuids of the nodes that this compute service manages.

        nova calls it at the start of each audit, so each call asks nova who
        is up and Ironic which nodes there are.

        :param refresh: ignored; the answer is always fresh.
        :raises VirtDriverNotReady: when Ironic gives no whole list.
        """
        return self._audit()

    def _refresh_cache(self):
        self._audit()

    def _audit(self):
        context = nova_contract.admin_context()
        self._refresh_hash_ring(context)
        listed = nodes.read(nova_contract.node_partition(),
                            self._get_node_list, self._can_send_version)
        # After the listing, which takes long when nodes are many: a build
        # that was claimed meanwhile is then known as an instance of ours.
        my_instances = nova_contract.instance_uuids(context, CONF.host)
        reasons = ownership.decide(ownership.Facts(
            nodes={node.id: node.instance_id for node in listed},
            my_instances=my_instances,
            ring=self._ring,
            host=CONF.host.lower()))
        self._report(reasons)
        mine = {node.id: node for node in listed if reasons[node.id].mine}
        # Before the cache is published: other threads add to it.
        uuids = list(mine)
        self.node_cache = mine
        self.node_cache_time = time.time()
        return uuids

    def _refresh_hash_ring(self, ctxt):
        members = membership.members(
            nova_contract.ironic_services(ctxt, self.servicegroup_api,
                                          self._get_hypervisor_type()),
            nova_contract.node_partition(), CONF.host)
        self._ring = ring.refreshed(
            self._ring, members, CONF.ironic_multihost.ring_partitions)

    def _report(self, reasons):
        tally = ownership.tally(reasons)
        if tally != self._tally:
            LOG.info('Managing %(mine)d of %(all)d nodes: %(tally)s.', {
                'mine': sum(tally[reason] for reason in tally if reason.mine),
                'all': len(reasons),
                'tally': ', '.join(f'{count} {reason.value}' for reason, count
                                   in tally.items() if count) or 'none'})
            self._tally = tally
