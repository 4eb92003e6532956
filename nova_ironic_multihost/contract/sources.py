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


"""nova, placement and Ironic as the sources of an audit's facts."""

from nova_ironic_multihost.contract import listing as nodes
from nova_ironic_multihost.contract import nova as nova_contract


class Sources:
    """The :class:`.audit.Sources` of a nova-compute.

    :param driver: the virt driver that they are gathered for.
    :param tracker: its :class:`.nova_contract.Tracker`.
    """

    def __init__(self, driver, tracker):
        self._driver = driver
        self._tracker = tracker

    def services(self):
        """Read the enabled services that have an Ironic compute node."""
        return nova_contract.ironic_services(
            nova_contract.admin_context(), self._driver.servicegroup_api,
            self._driver._get_hypervisor_type())

    def service(self, host):
        """Read any compute service."""
        return nova_contract.compute_service(
            nova_contract.admin_context(), self._driver.servicegroup_api,
            host)

    def nodes(self, partition):
        """List the nodes of the partition, all or none."""
        return {node.id: node for node in nodes.read(
            partition, self._driver._get_node_list,
            self._driver._can_send_version)}

    def node(self, uuid):
        """Ask Ironic for one node."""
        try:
            return self._driver._get_node(uuid)
        except nova_contract.NodeNotFound:
            return None

    def instances(self, hosts):
        """Read the instances on these hosts."""
        context = nova_contract.admin_context()
        return frozenset().union(*(
            nova_contract.instance_uuids(context, host) for host in hosts))

    def instance_states(self, instances):
        """Read whose these instances are."""
        return nova_contract.instance_states(
            nova_contract.admin_context(), instances)

    def records_of(self, hosts):
        """Read the records of these hosts."""
        context = nova_contract.admin_context()
        return [record for host in hosts
                for record in nova_contract.records_of(context, host)]

    def records(self, nodes):
        """Read the records of these nodes."""
        return nova_contract.records(nova_contract.admin_context(), nodes)

    def consumers(self, node):
        """Ask placement who has allocated a node."""
        return nova_contract.consumers(
            nova_contract.admin_context(), self._tracker.report_client, node)

    def mapped(self, host):
        """Ask whether the host is mapped to a cell."""
        return nova_contract.host_mapped(nova_contract.admin_context(), host)

    def aggregates(self):
        """Read nova's host aggregates."""
        return nova_contract.host_aggregates(nova_contract.admin_context())

    def take_over(self, instance, state, host):
        """Move an instance to this host, if it is still as it was seen."""
        return nova_contract.take_over(
            nova_contract.admin_context(), instance, state, host)
