# SPDX-License-Identifier: Apache-2.0

"""The class that nova gets when it asks for the driver."""

import importlib
import sys
import types
from unittest import mock

import fixtures
from oslo_config import fixture as config_fixture
from oslo_utils import importutils
from oslotest import base

from nova_ironic_multihost import _nova_virt
from nova_ironic_multihost.adapters import base_driver
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost import driver as multihost
from nova_ironic_multihost import loader

DRIVER = 'nova.virt.ironic_multihost.IronicMultiHostDriver'


class CompositionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        loader.register()
        self.config = self.useFixture(config_fixture.Config(names.CONF))
        names.CONF([], project='nova', default_config_files=[])
        self.log = self.useFixture(fixtures.FakeLogger())
        _nova_virt.over.cache_clear()
        self.module = types.ModuleType('acme_driver')
        self.useFixture(fixtures.MonkeyPatch(
            'sys.modules', {**sys.modules, 'acme_driver': self.module}))

    def given(self, **attributes):
        """Have nova.conf name a class with these attributes; return it."""
        self.module.Acme = type('Acme', (names.IronicDriver,), attributes)
        _nova_virt.configured()
        self.config.config(
            base_driver='acme_driver.Acme', group='ironic_multihost')
        return self.module.Acme

    def test_novas_own(self):
        self.assertIs(multihost.IronicMultiHostDriver,
                      importutils.import_class(DRIVER))

    def test_one_that_is_named(self):
        acme = self.given()
        found = importutils.import_class(DRIVER)
        self.assertEqual((multihost.IronicMultiHostDriver, acme,
                          names.IronicDriver), found.__mro__[1:4])
        self.assertEqual('nova_ironic_multihost.driver.IronicMultiHostDriver',
                         f'{found.__module__}.{found.__name__}')
        self.assertIs(found, importutils.import_class(DRIVER))
        self.assertIn('The driver extends acme_driver.Acme.', self.log.output)
        self.assertNotIn('is not done', self.log.output)

    def test_methods_that_are_not_called(self):
        self.given(is_node_deleted=lambda self, nodename: False)
        importutils.import_class(DRIVER)
        self.assertEqual(1, self.log.output.count('Acme.is_node_deleted'))

    def test_one_that_is_this_driver(self):
        _nova_virt.configured()
        self.config.config(base_driver=DRIVER, group='ironic_multihost')
        error = self.assertRaises(
            base_driver.UnsupportedDriver, importutils.import_class, DRIVER)
        self.assertIn('name your own class', str(error))

    def test_it_is_not_asked_for_when_the_module_is_imported(self):
        # Options are not read then.
        with mock.patch.object(_nova_virt, 'configured') as configured:
            importlib.import_module('nova.virt.ironic_multihost')
        configured.assert_not_called()

    def test_theirs_may_ask_ironic_at_once(self):
        def init(self, virtapi, read_only=False):
            super(acme, self).__init__(virtapi, read_only)
            self._ironic_connection = mock.Mock()
            self.answer = self.ironic_connection.get('/v1')

        acme = self.given(__init__=init)
        driver = importutils.import_object(DRIVER, mock.Mock())
        self.assertIs(driver._ironic_connection.get.return_value,
                      driver.answer)
