# SPDX-License-Identifier: Apache-2.0

"""Loading the driver as nova-compute does; tests/loading does it really."""

from importlib import metadata
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.adapters import probe


class LookTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.imported = []
        self.broken = {}
        self.modules = {'nova_ironic_multihost.adapters.patches.table':
                        mock.Mock(lacking=lambda: ['A.b'])}
        self.plug_in = mock.Mock()
        self.plug_ins = [self.plug_in]
        self.useFixture(fixtures.MockPatchObject(
            probe.importlib, 'import_module', self.import_module))
        self.entry_points = self.useFixture(fixtures.MockPatchObject(
            metadata, 'entry_points', lambda **of: self.plug_ins
            if of == {'group': 'os_vif', 'name': 'ironic_multihost'}
            else self.fail(of)))

    def import_module(self, name):
        self.imported.append(name)
        if name in self.broken:
            raise self.broken[name]
        return self.modules.setdefault(name, mock.Mock())

    def test_all_is_well(self):
        self.assertEqual(
            {'error': None, 'lacking': ['A.b'], 'shadowed': []},
            probe.find())
        # The order is nova-compute's.
        self.assertEqual(
            ['nova.cmd.compute', 'os_vif', 'nova.virt.ironic_multihost'],
            self.imported[:3])
        self.modules['os_vif'].initialize.assert_called_once_with()

    def test_over_another_base(self):
        bases = mock.Mock(**{'shadowed.return_value': ['Acme.get_info']})
        composition = mock.Mock()
        self.modules['nova_ironic_multihost.adapters.base_driver'] = bases
        self.modules['nova_ironic_multihost._nova_virt'] = composition
        self.assertEqual(['Acme.get_info'],
                         probe.find('acme.Acme')['shadowed'])
        bases.load.assert_called_once_with('acme.Acme')
        composition.over.assert_called_once_with('acme.Acme')
        composition.over.side_effect = ImportError('unfit')
        self.assertEqual('ImportError: unfit',
                         probe.find('acme.Acme')['error'])

    def test_no_nova(self):
        self.broken['nova.cmd.compute'] = ModuleNotFoundError('no nova')
        self.assertEqual('ModuleNotFoundError: no nova',
                         probe.find()['error'])

    def test_the_package_is_not_there(self):
        self.plug_ins = []
        self.broken['nova.virt.ironic_multihost'] = ModuleNotFoundError('no')
        self.assertEqual('ModuleNotFoundError: no', probe.find()['error'])

    def test_the_cause_is_told_and_not_what_follows_from_it(self):
        # os-vif goes on without a plug-in that cannot be loaded.
        self.broken['nova.virt.ironic_multihost'] = ModuleNotFoundError('no')
        self.plug_in.load.side_effect = ImportError('the cause')
        self.assertEqual('ImportError: the cause', probe.find()['error'])

    def test_the_driver_fails(self):
        self.broken['nova.virt.ironic_multihost'] = SyntaxError('here')
        found = probe.find()
        self.assertEqual(('SyntaxError: here', []),
                         (found['error'], found['lacking']))
