# SPDX-License-Identifier: Apache-2.0

"""Which classes this package's driver may be put in front of."""

import inspect
import pathlib
import sys
import types

import fixtures
from nova.virt.ironic import driver as ironic_driver
from oslotest import base

from nova_ironic_multihost.adapters import base_driver
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost import driver as multihost

OURS = multihost.IronicMultiHostDriver


class Good(names.IronicDriver):
    """What an operator may write."""

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self.theirs = True

    def prepare_for_spawn(self, instance):
        names.IronicDriver.prepare_for_spawn(self, instance)

    def spawn(self, context, instance, *args, **kwargs):
        pass

    def _label(self):
        return 'acme'


class LoadTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.module = types.ModuleType('acme_driver')
        self.module.Good = Good
        self.module.thing = 7
        sys.modules['acme_driver'] = self.module
        self.addCleanup(sys.modules.pop, 'acme_driver')

    def assert_unfit(self, words, name):
        error = self.assertRaises(
            base_driver.UnsupportedDriver, base_driver.load, name)
        self.assertIn('[ironic_multihost]base_driver: ', str(error))
        for word in words:
            self.assertIn(word, str(error))

    def test_a_subclass_of_novas(self):
        self.assertIs(Good, base_driver.load('acme_driver.Good'))

    def test_it_cannot_be_imported(self):
        self.assert_unfit(
            ["No module named 'acme'", 'name is complete', 'below nova.virt'],
            'acme.driver.Good')
        self.assert_unfit(["no attribute 'Bad'"], 'acme_driver.Bad')
        self.assert_unfit(['MODULE.CLASS'], 'Good')

    def test_it_fails_when_it_is_imported(self):
        directory = self.useFixture(fixtures.TempDir()).path
        pathlib.Path(directory, 'acme_broken.py').write_text('1 / 0')
        self.useFixture(fixtures.MonkeyPatch(
            'sys.path', [*sys.path, directory]))
        self.assert_unfit(['ZeroDivisionError'], 'acme_broken.Good')

    def test_it_does_not_extend_novas(self):
        self.module.Copy = type('Copy', (), {})
        for name in 'Copy', 'thing':
            self.assert_unfit(
                ['subclass of nova.virt.ironic.driver.IronicDriver'],
                f'acme_driver.{name}')


class ShadowedTestCase(base.BaseTestCase):

    def test_what_is_not_called(self):
        class Listing(Good):
            def get_available_nodes(self, refresh=False):
                return super().get_available_nodes(refresh)

            def _get_node_list(self, return_generator=False, **kwargs):
                return []

        class Info(Listing):
            def get_info(self, instance, use_cache=True):
                return None

        self.assertEqual([], base_driver.shadowed(Good))
        self.assertEqual(
            ['Info.get_info', 'Listing._get_node_list',
             'Listing.get_available_nodes'], base_driver.shadowed(Info))

    def test_they_are_those_that_ours_does_not_call(self):
        self.assertEqual(base_driver.ANSWERED, {
            name for name, method in vars(OURS).items()
            if inspect.isfunction(method)
            and hasattr(names.IronicDriver, name)
            and 'super' not in method.__code__.co_names})

    def test_nova_has_all_of_them(self):
        for name in base_driver.SHADOWED:
            self.assertTrue(hasattr(names.IronicDriver, name), name)


class OtherBaseTestCase(base.BaseTestCase):

    def test_fields_that_are_added(self):
        before = ironic_driver._NODE_FIELDS
        self.addCleanup(setattr, ironic_driver, '_NODE_FIELDS', before)
        ironic_driver._NODE_FIELDS = (*before, 'owner')
        self.assertEqual((*before, 'owner'), names.node_fields())

    def test_the_gate_stands_before_what_nova_does_not_have(self):
        class Pausing(Good):
            def pause(self, instance):
                pass

            def get_diagnostics(self, instance):
                pass

        self.assertEqual(
            {'get_diagnostics', 'pause'},
            {*operations.mutations(Pausing)}.difference(
                operations.mutations(names.IronicDriver)))
