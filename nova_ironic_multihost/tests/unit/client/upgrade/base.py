# SPDX-License-Identifier: Apache-2.0

"""What the tests of all judges use."""

from oslotest import base

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.rules import peers as membership

SHARED = {'[ironic_multihost]ring_partitions': '1024',
          '[DEFAULT]service_down_time': '60'}


def of_host(host, group=None, shard=None, peers=(), shared=(), **more):
    """Settings of a host; ``shared`` is what it has otherwise."""
    return conf_settings.ConfSettings(
        f'{host}.conf', host,
        partition=membership.Partition(group, shard, tuple(peers)),
        shared=tuple({**SHARED, **dict(shared)}.items()), **more)


class JudgeTestCase(base.BaseTestCase):

    def assert_silent(self, complaints):
        self.assertEqual([], [str(one) for one in complaints])

    def assert_complains(self, complaints, *words, fatal=False):
        """There is one complaint, and it says all this."""
        [complaint] = complaints
        for word in words:
            self.assertIn(word, complaint.sentence)
        self.assertEqual(fatal, complaint.fatal, complaint.sentence)
