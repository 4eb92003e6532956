# SPDX-License-Identifier: Apache-2.0

"""An os-vif plug-in for no VIF: nova-compute's door for the driver.

``nova.compute.main`` calls ``os_vif.initialize()`` just before it creates
the service that loads the driver, in every nova from 31 to 34, and that
imports each entry point of the group ``os_vif``. Importing this module is all
that is wanted; the plug-in describes no VIF type and so is never asked to
plug one.
"""

from os_vif import exception
from os_vif import objects
from os_vif import plugin

from nova_ironic_multihost import loader

loader.register()


class DriverFinderPlugin(plugin.PluginBase):
    """The class behind the entry point; it handles no VIF."""

    def describe(self):
        """Return a description without any VIF type."""
        return objects.host_info.HostPluginInfo(
            plugin_name='ironic_multihost', vif_info=[])

    def plug(self, vif, instance_info):
        """Refuse: no VIF is ours.

        :raises PlugException: always.
        """
        raise exception.PlugException(
            vif=vif, err='the ironic_multihost plug-in handles no VIF')

    def unplug(self, vif, instance_info):
        """Refuse: no VIF is ours.

        :raises UnplugException: always.
        """
        raise exception.UnplugException(
            vif=vif, err='the ironic_multihost plug-in handles no VIF')
