# SPDX-License-Identifier: Apache-2.0

from nova.conf import ironic
from oslo_config import cfg
from oslo_config import generator
from oslotest import base

from nova_ironic_multihost import conf as options
from nova_ironic_multihost.rules import peers


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


class PartitionTestCase(base.BaseTestCase):

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


class ContradictionsTestCase(base.BaseTestCase):

    def find(self, host='compute-1', dead_after=None, **values):
        """Return the sentences for settings given as group__option."""
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.IntOpt('update_resources_interval', default=0))
        conf.register_opt(cfg.IntOpt('service_down_time', default=60))
        conf.register_opt(cfg.IntOpt('report_interval', default=10))
        conf.register_opts([cfg.StrOpt('conductor_group'),
                            cfg.StrOpt('shard'),
                            cfg.ListOpt('peer_list', default=[])],
                           group='ironic')
        options.register_opts(conf)
        conf([])
        for name, value in values.items():
            group, _, option = name.rpartition('__')
            conf.set_override(option, value, group=group or None)
            # The group is one object for all.
            self.addCleanup(conf.clear_override, option, group=group or None)
        return options.contradictions(conf, host, dead_after)

    def test_nothing_set_makes_sense(self):
        self.assertEqual([], self.find())

    def test_conductor_group_with_this_host_among_the_peers(self):
        self.assertEqual([], self.find(
            ironic__conductor_group='g', ironic__peer_list=['COMPUTE-1']))

    def test_case_of_host_names_means_nothing(self):
        self.assertEqual([], self.find(
            host='COMPUTE-1', ironic__conductor_group='g',
            ironic__peer_list=['compute-1']))

    def test_group_or_shard_without_peers_is_of_this_host_alone(self):
        self.assertEqual([], self.find(ironic__conductor_group='g'))
        self.assertEqual([], self.find(ironic__shard='s'))

    def test_peers_that_lack_this_host(self):
        for limit in ({'ironic__conductor_group': ''},
                      {'ironic__shard': 's'}):
            sentence, = self.find(ironic__peer_list=['compute-2'], **limit)
            self.assertIn('add "compute-1"', sentence)

    def test_peers_mean_nothing_without_group_and_shard(self):
        self.assertEqual([], self.find(ironic__peer_list=['compute-2']))

    def test_audits_turned_off(self):
        sentence, = self.find(update_resources_interval=-1)
        self.assertIn('update_resources_interval', sentence)

    def test_take_over_before_a_compute_service_is_called_down(self):
        soon = {'ironic_multihost__takeover_after': 60,
                'service_down_time': 60}
        sentence, = self.find(
            ironic_multihost__instance_takeover='down', **soon)
        self.assertIn('takeover_after is 60 s', sentence)
        self.assertEqual([], self.find(
            ironic_multihost__instance_takeover='forced_down', **soon))
        self.assertEqual([], self.find(
            ironic_multihost__instance_takeover='down',
            ironic_multihost__takeover_after=61, service_down_time=60))

    def test_take_over_before_a_compute_service_is_dead_for_certain(self):
        down = {'ironic_multihost__instance_takeover': 'down'}
        sentence, = self.find(dead_after=301, **down)
        self.assertIn('takeover_after is 300 s', sentence)
        self.assertIn('within 301 s', sentence)
        self.assertIn('WatchdogSec', sentence)
        self.assertEqual([], self.find(dead_after=300, **down))
        self.assertEqual([], self.find(
            ironic_multihost__takeover_after=61, **down))
        self.assertEqual([], self.find(
            dead_after=301, ironic_multihost__instance_takeover='forced_down'))

    def test_all_contradictions_are_told_at_once(self):
        self.assertEqual(2, len(self.find(
            update_resources_interval=-1, ironic__shard='s',
            ironic__peer_list=['compute-2'])))

    def test_no_heartbeats(self):
        sentence, = self.find(report_interval=0)
        self.assertIn('[DEFAULT]report_interval is 0', sentence)
        self.assertEqual([], self.find(report_interval=1))

    def test_value_out_of_range(self):
        conf_file = self.create_tempfiles(
            [('nova', '[ironic_multihost]\nring_partitions = 0\n')])[0]
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.IntOpt('update_resources_interval', default=0))
        conf.register_opt(cfg.IntOpt('report_interval', default=10))
        conf.register_opts([cfg.StrOpt('conductor_group'),
                            cfg.StrOpt('shard')], group='ironic')
        options.register_opts(conf)
        conf(['--config-file', conf_file])
        sentence, = options.contradictions(conf, 'compute-1')
        self.assertEqual(
            'Correct [ironic_multihost]ring_partitions in nova.conf: Should '
            'be greater than or equal to 1.', sentence)
