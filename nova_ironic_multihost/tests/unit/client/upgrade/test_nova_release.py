# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client.upgrade import nova_compute
from nova_ironic_multihost.tests.unit.client.upgrade import base


class JudgeTestCase(base.JudgeTestCase):

    def judge(self, version, **more):
        return nova_compute.judge_release(
            nova_compute.Probe('/bin/python', version, **more))

    def test_releases_that_are_supported(self):
        for version in '31.0.0', '34.0.1', '34.0.0.0rc1':
            self.assert_silent(self.judge(version))

    def test_others(self):
        for version in '30.2.0', '35.0.0', 'of-today':
            self.assert_complains(
                self.judge(version), f'nova is {version}', '31 to 34',
                fatal=True)

    def test_no_nova(self):
        self.assert_complains(
            self.judge(None), '/bin/python has no nova', fatal=True)

    def test_a_nova_that_lacks_what_is_replaced(self):
        self.assert_complains(
            self.judge('34.0.0', lacking=('ComputeManager._init_instance',)),
            'ComputeManager._init_instance', fatal=True)


class NumberTestCase(base.JudgeTestCase):

    def test_number(self):
        self.assertEqual(34, nova_compute.release_of('34.0.0'))
        self.assertIsNone(nova_compute.release_of('today'))
        self.assertIsNone(nova_compute.release_of(None))
