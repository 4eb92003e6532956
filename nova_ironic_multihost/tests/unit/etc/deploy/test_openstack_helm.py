# SPDX-License-Identifier: Apache-2.0

"""What is said to the charts of openstack-helm, and what they say."""

from oslotest import base
import yaml

from nova_ironic_multihost.tests import deployers
from nova_ironic_multihost.tests.unit.etc.deploy import fragments

#: Parts of the values that become files, with any option in them.
CONF = ('nova', 'nova_ironic', 'placement')


def strangers(values, known, path=()):
    """Yield the names in some values that a chart has no default for."""
    for name, value in values.items():
        if name not in known:
            yield '.'.join((*path, name))
        elif isinstance(value, dict) and not (
                path == ('conf',) and name in CONF):
            yield from strangers(value, known[name], (*path, name))


class OpenStackHelmTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.values = fragments.read('openstack-helm/values.yaml')

    def chart(self, path):
        return (deployers.checkout(self, 'openstack-helm') / path).read_text()

    def test_values_exist(self):
        for name, chart in (('values.yaml', 'nova'),
                            ('bare-metal-only.yaml', 'nova'),
                            ('placement-bare-metal-only.yaml', 'placement'),
                            ('placement-with-vms.yaml', 'placement')):
            self.assertEqual([], list(strangers(
                fragments.read(f'openstack-helm/{name}'),
                yaml.safe_load(self.chart(f'{chart}/values.yaml')))))

    def test_a_value_that_is_misspelt_is_found(self):
        known = {'pod': {'replicas': {'compute_ironic': 1}},
                 'conf': {'nova': {'DEFAULT': {}}}}
        self.assertEqual(
            ['pod.replicas.ironic', 'cnf'],
            list(strangers({'pod': {'replicas': {'ironic': 3}},
                            'conf': {'nova': {'scheduler': {'x': 1}}},
                            'cnf': {}}, known)))

    def test_the_set_has_our_image(self):
        text = self.chart('nova/templates/statefulset-compute-ironic.yaml')
        for used in ('"nova_compute_ironic" | include '
                     '"helm-toolkit.snippets.image"',
                     '.Values.pod.replicas.compute_ironic',
                     '.Values.labels.agent.compute_ironic.node_selector_key'):
            self.assertIn(used, text)

    def test_what_the_chart_leaves_to_us(self):
        text = self.chart('nova/templates/statefulset-compute-ironic.yaml')
        # A patch stays, where the chart says nothing.
        for name in ('terminationGracePeriodSeconds', 'minReadySeconds',
                     'livenessProbe', 'readinessProbe'):
            self.assertNotIn(name, text)
        self.assertNotIn('--by-service', self.chart(
            'nova/templates/bin/_cell-setup.sh.tpl'))

    def test_the_next_pod_waits_until_this_one_is_up(self):
        patch = fragments.read('openstack-helm/grace-period.yaml')['spec']
        # service_down_time as nova has it.
        self.assertGreaterEqual(patch['minReadySeconds'], 60)
