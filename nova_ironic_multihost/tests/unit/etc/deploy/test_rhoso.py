# SPDX-License-Identifier: Apache-2.0

"""What is said to RHOSO, and what its operators allow."""

import re

from oslotest import base
import yaml

from nova_ironic_multihost.tests import deployers
from nova_ironic_multihost.tests.unit.etc.deploy import fragments


def refused(schema, value, path='spec'):
    """Yield what of a patch is not as a definition of Kubernetes wants it.

    What a patch leaves out is not missed.

    :param schema: openAPIV3Schema of what the value is.
    """
    if isinstance(value, dict):
        for name, part in value.items():
            known = schema.get('properties', {}).get(
                name, schema.get('additionalProperties'))
            if known:
                yield from refused(known, part, f'{path}.{name}')
            else:
                yield f'{path}.{name}: unknown'
    elif value not in schema.get('enum', [value]):
        yield f'{path}: {value} is none of {schema["enum"]}'
    elif type(value) is not {'string': str, 'integer': int}[schema['type']]:
        yield f'{path}: {value} is no {schema["type"]}'


class RhosoTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.plane = fragments.read('rhoso/openstackcontrolplane.yaml')
        self.computes = self.plane['spec']['nova']['template'][
            'cellTemplates']['cell1']['novaComputeTemplates']

    def schema(self, kind):
        path = f'api/bases/core.openstack.org_{kind}.yaml'
        text = (deployers.checkout(self, 'openstack-operator') / path
                ).read_text()
        loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)
        [version] = yaml.load(text, loader)['spec']['versions']
        return version['schema']['openAPIV3Schema']['properties']['spec']

    def test_it_is_allowed(self):
        for kind, patch in (
                ('openstackcontrolplanes', self.plane),
                *(('openstackcontrolplanes', patch) for patch
                  in fragments.sets('rhoso/{}.yaml').values()),
                ('openstackversions',
                 fragments.read('rhoso/openstackversion.yaml'))):
            self.assertEqual([], list(refused(self.schema(kind),
                                              patch['spec'])))

    def test_what_is_not_allowed_is_found(self):
        schema = {'properties': {
            'driver': {'type': 'string', 'enum': ['a']},
            'count': {'type': 'integer'},
            'many': {'additionalProperties': {'type': 'string'}}}}
        self.assertEqual(
            ["spec.driver: b is none of ['a']", 'spec.count: 1 is no '
             'integer', 'spec.many.x: 2 is no string', 'spec.other: unknown'],
            list(refused(schema, {'driver': 'b', 'count': '1',
                                  'many': {'x': 2}, 'other': {}})))

    def test_the_driver_that_it_knows_and_one_replica_of_each(self):
        self.assertEqual(
            {('ironic.IronicDriver', 1)},
            {(template['computeDriver'], template['replicas'])
             for template in self.computes.values()})

    def test_names_are_allowed(self):
        for name in self.computes:
            self.assertTrue(re.fullmatch(r'[a-z0-9][a-z0-9-]{0,18}[a-z0-9]',
                                         name), name)

    def test_all_are_alike(self):
        first, *others = self.computes.values()
        self.assertEqual(2, len(others))
        self.assertEqual([first] * 2, others)

    def test_what_the_operator_leaves_to_kubernetes(self):
        operator = deployers.checkout(self, 'nova-operator')
        pod = (operator / 'internal/nova/compute/deployment.go').read_text()
        self.assertNotIn('TerminationGracePeriod', pod)
        # By this it finds nova-compute, see tests/loading.
        self.assertIn('"/usr/bin/pgrep", "-r", "DRST", "nova-compute"', pod)
        self.assertIn(
            'discover_hosts --by-service',
            (operator / 'templates/nova/nova-manage/bin/host_discover.sh'
             ).read_text())
