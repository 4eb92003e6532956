# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys
from unittest import mock

from oslotest import base

from nova_ironic_multihost import loader


class DriverFinderTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.finder = loader.DriverFinder()

    def test_answers_for_the_driver_module(self):
        spec = self.finder.find_spec('nova.virt.ironic_multihost', None)
        self.assertEqual('nova.virt.ironic_multihost', spec.name)
        self.assertTrue(spec.origin.endswith('_nova_virt.py'))

    def test_answers_for_no_other_name(self):
        for name in ('nova', 'nova.virt', 'nova.virt.ironic',
                     'nova.virt.ironic_multihost.driver', 'ironic_multihost',
                     'nova.virt.ironic_multihost2'):
            self.assertIsNone(self.finder.find_spec(name, None), name)

    def test_registered_once_and_last(self):
        first = object()
        meta_path = [first]
        with mock.patch.object(sys, 'meta_path', meta_path):
            loader.register()
            loader.register()
        self.assertEqual(2, len(meta_path))
        self.assertIs(first, meta_path[0])
        self.assertIsInstance(meta_path[1], loader.DriverFinder)

    def test_registering_imports_neither_nova_nor_eventlet(self):
        # nova chooses its threading mode after this import.
        code = ('import sys; from nova_ironic_multihost import loader; '
                'loader.register(); '
                'print(sorted({name.partition(".")[0] for name in '
                'sys.modules} & {"nova", "eventlet", "oslo_config"}))')
        result = subprocess.run([sys.executable, '-c', code], text=True,
                                capture_output=True, check=True)
        self.assertEqual('[]', result.stdout.strip())


class MainTestCase(base.BaseTestCase):

    def test_runs_nova_compute_under_its_name_with_the_finder_there(self):
        seen = {}

        def main():
            seen['argv'] = list(sys.argv)
            seen['finder'] = any(isinstance(finder, loader.DriverFinder)
                                 for finder in sys.meta_path)

        fake = mock.Mock(main=main)
        finders = [finder for finder in sys.meta_path
                   if not isinstance(finder, loader.DriverFinder)]
        argv = ['/somewhere/loader.py', '--config-file', 'nova.conf']
        with mock.patch.dict(sys.modules, {'nova.cmd.compute': fake}), \
                mock.patch('nova.cmd.compute', fake, create=True), \
                mock.patch.object(sys, 'argv', argv), \
                mock.patch.object(sys, 'meta_path', finders):
            loader.main()
        self.assertEqual(['nova-compute', '--config-file', 'nova.conf'],
                         seen['argv'])
        self.assertTrue(seen['finder'])
