# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
