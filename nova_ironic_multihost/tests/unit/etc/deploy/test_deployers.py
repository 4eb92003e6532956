# SPDX-License-Identifier: Apache-2.0

"""What is promised and not there is a failure; what is not may be missing."""

import pathlib

import fixtures
from oslotest import base

from nova_ironic_multihost.tests import deployers


class DeployersTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.place = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def test_releases(self):
        self.useFixture(fixtures.EnvironmentVariable(
            deployers.PACKAGES, str(self.place)))
        for name in 'kolla-20.6.0', 'kolla-22.2.0', 'kolla-ansible-22.2.0':
            (self.place / name).mkdir()
        self.assertEqual(
            {'20.6.0': self.place / 'kolla-20.6.0',
             '22.2.0': self.place / 'kolla-22.2.0'},
            deployers.packages(self, 'kolla'))

    def test_promised(self):
        for variable, ask in (
                (deployers.PACKAGES, deployers.packages),
                (deployers.CHECKOUTS, deployers.checkout)):
            self.useFixture(fixtures.EnvironmentVariable(
                variable, str(self.place)))
            error = self.assertRaises(
                self.failureException, ask, self, 'kolla')
            self.assertIn('There is no ', str(error))

    def test_not_promised(self):
        for variable, ask in (
                (deployers.PACKAGES, deployers.packages),
                (deployers.CHECKOUTS, deployers.checkout)):
            self.useFixture(fixtures.EnvironmentVariable(variable))
            self.assertRaises(self.skipException, ask, self, 'kolla')
