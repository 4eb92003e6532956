# SPDX-License-Identifier: Apache-2.0

import importlib.metadata
import sys

import os_vif
from os_vif import exception
from os_vif import objects
from oslo_utils import importutils
from oslotest import base

from nova_ironic_multihost import loader
from nova_ironic_multihost import vif


class DriverFinderPluginTestCase(base.BaseTestCase):

    def test_os_vif_loads_it_and_nova_can_import_the_driver(self):
        os_vif.initialize()
        self.assertTrue(any(isinstance(finder, loader.DriverFinder)
                            for finder in sys.meta_path))
        module = importlib.import_module('nova.virt.ironic_multihost')
        self.assertEqual(['IronicMultiHostDriver'], list(module.__all__))

    def test_misspelt_class_is_told_what_to_set(self):
        os_vif.initialize()
        error = self.assertRaises(
            ImportError, importutils.import_class,
            'nova.virt.ironic_multihost.MultiHostDriver')
        self.assertIn("no driver 'MultiHostDriver'", str(error))
        self.assertIn('ironic_multihost.IronicMultiHostDriver', str(error))

    def test_entry_point(self):
        entry_point, = importlib.metadata.entry_points(
            group='os_vif', name='ironic_multihost')
        self.assertIs(vif.DriverFinderPlugin, entry_point.load())

    def test_describes_no_vif_and_handles_none(self):
        os_vif.initialize()
        plugin = vif.DriverFinderPlugin.load('ironic_multihost')
        self.assertEqual([], plugin.describe().vif_info)
        a_vif = objects.vif.VIFBase()
        self.assertRaises(exception.PlugException, plugin.plug, a_vif, None)
        self.assertRaises(exception.UnplugException, plugin.unplug, a_vif,
                          None)
