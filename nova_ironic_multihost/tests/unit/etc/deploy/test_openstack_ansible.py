# SPDX-License-Identifier: Apache-2.0

"""What is said to openstack-ansible, and what its roles say."""

from oslotest import base
import yaml

from nova_ironic_multihost.tests import deployers
from nova_ironic_multihost.tests.unit.etc.deploy import fragments


class OpenStackAnsibleTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.told = fragments.read('openstack-ansible/user_variables.yml')

    def role(self, name, path='defaults/main.yml'):
        return (deployers.checkout(self, name) / path).read_text()

    def test_variables_exist(self):
        known = set()
        for name in 'os_nova', 'os_placement':
            known |= yaml.safe_load(
                self.role(f'openstack-ansible-{name}')).keys()
        # Of the playbook.
        self.assertIn('nova_compute_serial', self.role(
            'openstack-ansible-plugins', 'playbooks/nova.yml'))
        told = self.told.keys()
        for one in fragments.sets('openstack-ansible/{}.yml').values():
            told |= one.keys()
        self.assertEqual({'nova_compute_serial'}, told - known)

    def test_nothing_but_the_driver_differs_from_the_role(self):
        stock = yaml.safe_load(self.role('openstack-ansible-os_nova'))[
            'nova_virt_types']['ironic']
        self.assertEqual(
            stock | {'nova_compute_driver': fragments.OURS},
            self.told['nova_virt_types']['ironic'])

    def test_what_the_unit_of_nova_compute_grants(self):
        self.assertIn(
            f'default({fragments.openstack_ansible().grace})',
            yaml.safe_load(self.role('ansible-role-systemd_service'))[
                'systemd_service_timeout_sec'])

    def test_hosts_are_mapped_by_service_when_they_are_there(self):
        self.assertIn("' --by-service'", self.role(
            'openstack-ansible-os_nova', 'tasks/nova_db_post_setup.yml'))
        # It waits for them if the scheduler does not look.
        self.assertIn('nova_discover_hosts_in_cells_interval | int < 1',
                      self.role('openstack-ansible-os_nova',
                                'tasks/main.yml'))
        self.assertLess(
            self.told['nova_discover_hosts_in_cells_interval'], 1)

    def test_dead_after_two_minutes(self):
        self.assertIn('\nservice_down_time = 120\n', self.role(
            'openstack-ansible-os_nova', 'templates/nova.conf.j2'))

    def test_each_host_is_named_once(self):
        hosts = fragments.read('openstack-ansible/ironic.yml')[
            'ironic_compute_hosts']
        self.assertEqual(3, len({host['ip'] for host in hosts.values()}))
