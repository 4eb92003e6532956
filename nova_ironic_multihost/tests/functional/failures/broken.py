# SPDX-License-Identifier: Apache-2.0

"""Ironic cannot tell about one node."""

import uuid

from nova_ironic_multihost.tests.functional.failures import base


class Broken(base.FailureTestCase):
    """One node that Ironic cannot show stops the audit of all nodes.

    For a record that is not in its list the driver asks Ironic for the node;
    any error but 404 ends the audit there.
    """

    def test(self):
        foreign, = self.ironic.enroll(1)
        self.fleet.start('host1')
        self.settle()
        self.ironic.reserve(foreign, str(uuid.uuid4()))
        new, = self.ironic.enroll(1)

        self.proxy.answer('GET', f'/v1/nodes/{foreign}', 500, {
            'error_message': '{"faultstring": "It broke."}'})
        try:
            self.watch(2)
        except Exception as exc:
            if new in self.fleet.records():
                raise
            self.failure_shown(
                f'The audit ended with {type(exc).__name__}, and a new node '
                f'was not found.')
        self.assertIn(new, self.owners())
        self.failure_absent('The audit went on and found a new node.')
