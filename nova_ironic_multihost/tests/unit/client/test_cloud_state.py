# SPDX-License-Identifier: Apache-2.0

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
