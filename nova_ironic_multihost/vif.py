# SPDX-License-Identifier: Apache-2.0

"""An os-vif plug-in without VIF types; importing it registers the driver.

In nova 31 to 34 ``nova.cmd.compute.main`` calls ``os_vif.initialize()`` before
it loads the driver. That imports all entry points of the group ``os_vif``.
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
        """Raise PlugException: no VIF is ours."""
        raise exception.PlugException(
            vif=vif, err='the ironic_multihost plug-in handles no VIF')

    def unplug(self, vif, instance_info):
        """Raise UnplugException: no VIF is ours."""
        raise exception.UnplugException(
            vif=vif, err='the ironic_multihost plug-in handles no VIF')
