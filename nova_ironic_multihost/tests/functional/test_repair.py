# SPDX-License-Identifier: Apache-2.0

"""repair, against the real nova and placement."""

import json

from oslo_utils import uuidutils

from nova_ironic_multihost.tests.functional import test_shell


class RepairTestCase(test_shell.ShellTestCase):

    def repaired(self, finding, status=0):
        """Repair one finding; return its result and sentence."""
        said = self.shell('repair', finding, '-f', 'json', status=status)
        [row] = json.loads(said[said.index('['):said.rindex(']') + 1])
        self.assertEqual(finding, row['Finding'])
        return row['Result'], row['Sentence']

    def test_providers_without_node(self):
        stray, other = (uuidutils.generate_uuid() for _ in range(2))
        for uuid in stray, other:
            self.placement.post('/resource_providers', version='1.20',
                                body={'uuid': uuid, 'name': uuid})
        finding = f'provider-without-node:{stray}'
        # Ironic may hide them.
        self.assertEqual('refused', self.repaired(finding, status=1)[0])
        self.placement.delete(f'/resource_providers/{other}')
        self.assertEqual('repaired', self.repaired(finding)[0])
        self.assertNotIn(stray, self.providers())

    def test_allocation_of_a_consumer_that_nova_never_had(self):
        ghost = uuidutils.generate_uuid()
        free = next(node for node in self.nodes if node != self.node)
        self.placement.put(
            f'/allocations/{ghost}', {
                'allocations': {free: {'resources': {'CUSTOM_BAREMETAL': 1}}},
                'project_id': ghost, 'user_id': ghost,
                'consumer_generation': None}, version='1.28')
        finding = f'allocation-without-instance:{ghost}'
        result, sentence = self.repaired(finding, status=1)
        self.assertEqual('refused', result)
        self.assertIn(f'allocation delete {ghost}', sentence)
        self.assertEqual(
            [ghost], [*self._get_allocations_by_provider_uuid(free)])

    def test_server_without_an_allocation(self):
        uuid = self.server['id']
        self.fleet.audit()
        self.assertTrue(self.reserved(self.node))
        self.placement.delete(f'/allocations/{uuid}')
        self.assertEqual('repaired', self.repaired(
            f'instance-without-allocation:{uuid}')[0])
        self.assertEqual(
            [uuid], [*self._get_allocations_by_provider_uuid(self.node)])
        self.shell('check', '--allocations')
