# SPDX-License-Identifier: Apache-2.0

import sys
from unittest import mock

from oslotest import base

from nova_ironic_multihost import compute
from nova_ironic_multihost import loader


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
        argv = ['/somewhere/compute.py', '--config-file', 'nova.conf']
        with mock.patch.dict(sys.modules, {'nova.cmd.compute': fake}), \
                mock.patch('nova.cmd.compute', fake, create=True), \
                mock.patch.object(sys, 'argv', argv), \
                mock.patch.object(sys, 'meta_path', finders):
            compute.main()
        self.assertEqual(['nova-compute', '--config-file', 'nova.conf'],
                         seen['argv'])
        self.assertTrue(seen['finder'])
