# SPDX-License-Identifier: Apache-2.0

"""A task of masakari that fences the compute services of bare metal.

masakari disables a compute service and evacuates its servers. A server over
Ironic is its machine and goes nowhere; what it needs is that its compute
service is forced down. Name fence_bare_metal_task first among the tasks of
``pre``, so that this happens before anything is disabled.
"""

import openstack
from oslo_log import log

from masakari.compute import nova
import masakari.conf
from masakari.engine.drivers.taskflow import base
from masakari import exception
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import services

CONF = masakari.conf.CONF
LOG = log.getLogger(__name__)

#: Seconds that one answer of nova may take: more than the 60 for which nova
#: waits for the database of a cell that is away.
ANSWER = 75

#: Seconds to try in whether a host is one of bare metal; after that the tasks
#: that follow have their turn, as virtual machines may wait for them.
KIND = 90

#: Seconds in which nova misses the heartbeat of a host that masakari's monitor
#: calls dead, twice service_down_time as openstack-ansible has it.
PATIENCE = 240


def asked(context):
    """Return a survey that asks nova with masakari's own credentials.

    :param context: masakari's context of the request
    """
    client = nova.novaclient(context, timeout=ANSWER).client
    client.session.timeout = ANSWER
    connection = openstack.connection.Connection(
        session=client.session, region_name=client.region_name,
        compute_interface=client.interface)
    return cloud_client.CloudClient(connection, connection)


class FenceBareMetalTask(base.MasakariTask):
    """Fence it and end the flow, if it is a compute service of bare metal.

    Any other host is left to the tasks that follow, and one of which that
    does not show: of those that have no server there is nothing to take over.
    """

    def __init__(self, context, novaclient, **kwargs):
        kwargs['requires'] = ['host_name']
        super().__init__(context, novaclient, **kwargs)

    def execute(self, host_name):
        """Do it.

        :raises SkipHostRecoveryException: it is fenced; masakari has no more
            to do, and calls the notification finished
        :raises HostRecoveryFailureException: it is not; masakari tries again
        """
        cloud = asked(self.context)
        if not self._bare_metal(cloud, host_name):
            return
        try:
            self.update_details(
                f"Fencing the compute service of bare metal on '{host_name}'")
            service, _ = fencing.declare(
                cloud, host_name, why='masakari', patience=PATIENCE,
                tell=self._tell)
        except (fencing.TooEarly, cloud_state.CloudError) as error:
            self.update_details(str(error), 1.0)
            raise exception.HostRecoveryFailureException(
                message=str(error)) from error
        told = (f"'{service.host}' is fenced: other compute services take "
                'over its servers of bare metal; nothing is evacuated')
        self.update_details(told, 1.0)
        LOG.info(told)
        raise exception.SkipHostRecoveryException(message=told)

    def _bare_metal(self, cloud, host_name):
        try:
            return services.patiently(
                lambda: cloud.bare_metal(host_name), KIND,
                (cloud_state.Unanswered,), self._tell)
        except cloud_state.CloudError as error:
            LOG.warning('Whether %s is a host of bare metal is not known: %s '
                        'It is left to masakari. If it is one of bare metal, '
                        'fence it: "nova-ironic-multihost fence %s".',
                        host_name, error, host_name)
            return None

    def _tell(self, error):
        LOG.warning('%s Trying again.', error)
        self.update_details(str(error), 0.5)
