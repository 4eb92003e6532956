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

from oslotest import base

from nova_ironic_multihost.client import cloud_state


class ObservationTestCase(base.BaseTestCase):

    def test_of_two_spellings_the_one_that_is_at_work_counts(self):
        old = cloud_state.Service('East', up=False, seen=1)
        for new in (cloud_state.Service('east'),
                    # It is fenced.
                    cloud_state.Service('east', up=False, seen=2)):
            for pair in (old, new), (new, old):
                seen = cloud_state.CloudState(services=pair)
                self.assertEqual({'east': new}, seen.service_of)
