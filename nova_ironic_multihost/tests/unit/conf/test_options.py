# SPDX-License-Identifier: Apache-2.0

from oslo_config import cfg
from oslo_config import generator
from oslotest import base

from nova_ironic_multihost import conf as options


class OptionsTestCase(base.BaseTestCase):

    def test_registering_twice_is_allowed(self):
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        options.register_opts(conf)
        conf([])
        self.assertEqual(1024, conf.ironic_multihost.ring_partitions)

    def test_each_option_has_help_and_numbers_have_a_range(self):
        for option in options.OPTS:
            self.assertTrue(option.help.strip(), option.name)
            if isinstance(option, cfg.IntOpt):
                self.assertIsNotNone(option.type.min, option.name)
                self.assertIsNotNone(option.type.max, option.name)

    def test_a_sample_file_can_be_generated(self):
        path = self.create_tempfiles([('sample', '')], ext='.conf')[0]
        generator.main(['--namespace', 'nova_ironic_multihost',
                        '--output-file', path])
        with open(path) as sample:
            text = sample.read()
        self.assertIn('[ironic_multihost]', text)
        self.assertIn('#ring_partitions = 1024', text)
