# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client.upgrade import nova_compute
from nova_ironic_multihost.tests.unit.client.upgrade import base

GOOD = nova_compute.Probe('/venv/bin/python', '34.0.0', registered=True)


class JudgeTestCase(base.JudgeTestCase):

    def test_a_driver_that_can_be_loaded(self):
        self.assert_silent(nova_compute.judge_load(GOOD))

    def test_a_package_that_is_not_installed_there(self):
        self.assert_complains(
            nova_compute.judge_load(nova_compute.Probe(
                '/venv/bin/python', '34.0.0',
                error="No module named 'nova.virt.ironic_multihost'")),
            '/venv/bin/python -m pip install ./nova_ironic_multihost-*.whl',
            'nova-compute-ironic-multihost', fatal=True)

    def test_a_driver_that_lacks_something(self):
        # Some errors are sentences.
        for stop in '', '.':
            self.assert_complains(
                nova_compute.judge_load(nova_compute.Probe(
                    '/venv/bin/python', '34.0.0', registered=True,
                    error=f"ImportError: No module named 'tooz'{stop}")),
                "cannot load the driver: ImportError: No module named "
                "'tooz'. Mend that", fatal=True)

    def test_methods_of_its_base_that_are_not_called(self):
        self.assert_complains(
            nova_compute.judge_load(nova_compute.Probe(
                '/venv/bin/python', '34.0.0', registered=True,
                shadowed=('Acme.get_info', 'Acme.is_node_deleted'))),
            'Acme.get_info, Acme.is_node_deleted of '
            '[ironic_multihost]base_driver', 'A driver of your own')


class JudgeSettingTestCase(base.JudgeTestCase):

    def judge(self, driver):
        return nova_compute.judge_setting(
            base.of_host('one', compute_driver=driver))

    def test_ours(self):
        self.assert_silent(
            self.judge('ironic_multihost.IronicMultiHostDriver'))

    def test_a_controller(self):
        self.assert_complains(self.judge(None),
                              'one.conf sets no compute_driver')

    def test_not_switched_yet(self):
        self.assert_complains(
            self.judge('ironic.IronicDriver'),
            '[DEFAULT]compute_driver = '
            'ironic_multihost.IronicMultiHostDriver in one.conf')

    def test_a_misspelt_one_or_another(self):
        for driver in ('ironic_multihost.IronicMultihostDriver',
                       'libvirt.LibvirtDriver'):
            self.assert_complains(self.judge(driver), driver, fatal=True)

    def test_one_of_the_operators_own(self):
        self.assert_complains(
            self.judge('acme.AcmeIronicDriver'),
            'name it in [ironic_multihost]base_driver', fatal=True)
