# SPDX-License-Identifier: Apache-2.0

"""Which nodes a compute service shares."""

from nova.conf import ironic
from oslo_config import cfg
from oslotest import base

from nova_ironic_multihost import conf as options
from nova_ironic_multihost.rules import peers


class ReadTestCase(base.BaseTestCase):

    def read(self, text):
        conf = cfg.ConfigOpts()
        conf.register_opts(ironic.ironic_options, group='ironic')
        [path] = self.create_tempfiles([('nova', f'[ironic]\n{text}')])
        conf(['--config-file', path], default_config_dirs=[])
        return options.partition(conf)

    def test_all_nodes(self):
        self.assertEqual(peers.Partition(), self.read(''))

    def test_a_part_of_them(self):
        # Ironic has conductor groups in lower case, and shards as they are.
        self.assertEqual(
            peers.Partition('g', 'S', ('a', 'B')),
            self.read('conductor_group = G\nshard = S\npeer_list = a,B\n'))

    def test_the_default_group_is_a_group(self):
        self.assertEqual('', self.read('conductor_group =\n').conductor_group)

    def test_the_name_that_the_option_had(self):
        self.assertEqual('g', self.read('partition_key = g\n')
                         .conductor_group)
