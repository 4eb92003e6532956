# SPDX-License-Identifier: Apache-2.0

"""Ironic fails while a compute starts."""

from nova_ironic_multihost.tests.functional.failures import base


class Unlisted(base.FailureTestCase):
    """A compute does not start while Ironic answers its listing with an error.

    The error comes when the list is read, after the place that turns errors
    into "not ready, try again later".
    """

    def test(self):
        nodes = self.ironic.enroll(2)
        self.proxy.answer('GET', base.LISTING, 500, {
            'error_message': '{"faultstring": "It broke."}'})
        try:
            self.fleet.start('host1')
        except Exception as exc:
            if 'It broke' not in str(exc):
                raise
            self.failure_shown(
                f'nova-compute ended with {type(exc).__name__}.')
        self.watch(1)
        self.proxy.open()
        self.assertCountEqual(nodes, self.settle())
        self.failure_absent(
            'nova-compute started, and had the nodes when Ironic was well.')
