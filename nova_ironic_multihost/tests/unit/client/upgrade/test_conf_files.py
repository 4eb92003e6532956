# SPDX-License-Identifier: Apache-2.0

"""nova.conf of several compute services, as nova-compute reads it."""

import os
import pathlib
from unittest import mock

import fixtures
import nova.conf
from oslotest import base

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover

OURS = '[DEFAULT]\ncompute_driver = ironic_multihost.IronicMultiHostDriver\n'


class ConfigurationTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.EnvironmentVariable('HOME', str(self.root)))
        # Where nova-compute looks besides.
        self.useFixture(fixtures.MockPatch(
            'oslo_config.cfg._get_config_dirs',
            lambda project=None: [str(self.root / 'etc')]))
        (self.root / 'etc').mkdir()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def assert_unknown(self, words, *args):
        error = self.assertRaises(conf_settings.Unknown, *args)
        self.assertIn(words, str(error))
        return str(error)


class ReadTestCase(ConfigurationTestCase):

    def test_as_nova_compute_finds_it(self):
        first = self.write('etc/nova.conf', OURS + 'host = First\n')
        self.assertEqual(('First', first, conf_settings.OURS), (
            (found := conf_settings.read()).host, found.origin,
            found.compute_driver))
        self.write('etc/nova-compute.conf', '[DEFAULT]\nhost = Second\n')
        self.write('etc/nova.conf.d/more.conf',
                   '[ironic_multihost]\nring_partitions = 32\n')
        found = conf_settings.read()
        self.assertEqual('Second', found.host)
        self.assertIn(('[ironic_multihost]ring_partitions', '32'),
                      found.shared)

    def test_as_nova_compute_is_told(self):
        self.write('etc/nova.conf', OURS + 'host = other\n')
        found = conf_settings.read(
            [self.write('a.conf', OURS + 'host = one\n'),
             self.write('b.conf', '[DEFAULT]\nservice_down_time = 120\n')],
            [os.path.dirname(self.write(
                'more/c.conf', '[ironic]\nshard = s\npeer_list = one,TWO\n'))])
        self.assertEqual(
            ('one', 120, peers.Partition(
                None, 's', ('one', 'TWO'))),
            (found.host, found.service_down_time, found.partition))
        self.assertIn(('[DEFAULT]service_down_time', '120'), found.shared)
        # Neither order nor case matters.
        self.assertIn(('[ironic]peer_list', 'one two'), found.shared)
        for name in 'a.conf', 'b.conf', 'more':
            self.assertIn(str(self.root / name), found.origin)

    def test_defaults_are_those_of_nova(self):
        found = conf_settings.read([self.write('a.conf', '')])
        conf = nova.conf.CONF
        self.assertIsNone(found.compute_driver)
        self.assertIsNone(found.base_driver)
        self.assertEqual(
            (60, False, (), peers.Partition(),
             [('[ironic_multihost]ring_partitions', '1024'),
              ('[ironic_multihost]move_across_zones', 'False'),
              ('[ironic_multihost]instance_takeover', 'forced_down'),
              ('[DEFAULT]service_down_time', '60')]),
            (found.service_down_time, found.move_across_zones,
             found.contradictions, found.partition, list(found.shared)))
        waits = 'manager_shutdown_timeout' in conf
        self.assertEqual((180, 160) if waits else (60, None), (
            found.graceful_shutdown_timeout, found.manager_shutdown_timeout))

        self.assertEqual(
            (1, (('connect_retries', 0), ('status_code_retries', 0))),
            (found.host_subset_size, found.ironic_retries))

    def test_settings_of_schedulers(self):
        self.assertEqual(999, conf_settings.read([self.write(
            'a.conf', '[filter_scheduler]\nhost_subset_size = 999\n'
        )]).host_subset_size)

    def test_scope_of_the_account_in_ironic(self):
        for text, project in (
                ('', None), ('project_name = service\n', 'service'),
                ('project_name = service\nsystem_scope = all\n', None)):
            self.assertEqual(project, conf_settings.read([self.write(
                'a.conf', f'[ironic]\n{text}')]).ironic_project)

    def test_retries_of_requests_to_ironic(self):
        """With the delay that is set, or keystoneauth's own."""
        found = conf_settings.read([self.write('a.conf', (
            '[ironic]\nconnect_retries = 300\nconnect_retry_delay = 5\n'
            'status_code_retries = 9\n'))])
        self.assertEqual((('connect_retries', 1500.0),
                          ('status_code_retries', 183.5)),
                         found.ironic_retries)

    def test_what_the_lease_goes_by(self):
        found = conf_settings.read([self.write('a.conf', OURS + (
            'rpc_response_timeout = 90\nservice_down_time = 30\n'
            '[ironic_multihost]\ninstance_takeover = down\n'
            'takeover_after = 400\n'))])
        self.assertEqual(
            (takeover.Policy('down', 400), health.LeaseTiming(90, 30)),
            (found.policy, found.terms))
        self.assertIn(('[ironic_multihost]takeover_after', '400'),
                      found.shared)
        found = conf_settings.read([self.write('b.conf', OURS)])
        self.assertEqual(
            (takeover.Policy('forced_down', 300), health.LeaseTiming(60, 60)),
            (found.policy, found.terms))
        found = conf_settings.read([self.write('c.conf', OURS + (
            '[ironic_multihost]\ntakeover_after = soon\n'))])
        self.assertEqual(takeover.Policy('forced_down', 0), found.policy)

    def test_nova_itself_is_left_alone(self):
        conf_settings.read(
            [self.write('a.conf', OURS + '[ironic]\nshard = s\n')])
        nova.conf.CONF([], project='nova', default_config_files=[],
                       default_config_dirs=[])
        self.assertIsNone(nova.conf.CONF.ironic.shard)
        self.assertIsNone(nova.conf.CONF.compute_driver)

    def test_contradictions(self):
        [sentence] = conf_settings.read([self.write(
            'a.conf', OURS + 'update_resources_interval = -1\n'
        )]).contradictions
        self.assertIn('update_resources_interval is negative', sentence)

    def test_a_value_of_ours_that_is_invalid_is_a_contradiction(self):
        found = conf_settings.read([self.write(
            'a.conf', OURS + '[ironic_multihost]\nring_partitions = 0\n'
            'move_across_zones = true\n')])
        [sentence] = found.contradictions
        self.assertIn('[ironic_multihost]ring_partitions', sentence)
        self.assertIn(('[ironic_multihost]ring_partitions', None),
                      found.shared)
        self.assertTrue(found.move_across_zones)

    def test_a_value_of_nova_that_is_invalid(self):
        self.assert_unknown('service_down_time', conf_settings.read, [
            self.write('a.conf', '[DEFAULT]\nservice_down_time = long\n')])
        self.assert_unknown('host', conf_settings.read, [
            self.write('a.conf', '[DEFAULT]\nhost = $nothing_like_it\n')])

    def test_nothing_to_read(self):
        self.assert_unknown('--config-file', conf_settings.read)
        self.assert_unknown('gone.conf', conf_settings.read, ['gone.conf'])
        self.assert_unknown('gone', conf_settings.read, (), ['gone'])

    def test_what_is_no_text(self):
        path = self.write('a.conf', '')
        (self.root / 'a.conf').write_bytes(b'[DEFAULT]\n# na\xefve\n')
        self.assertIn(path, self.assert_unknown(
            'UTF-8', conf_settings.read, [path]))
        self.assert_unknown('UTF-8', conf_settings.read_collected, [path],
                            'one')
        self.assert_unknown(str(self.root), conf_settings.read,
                            [str(self.root)])

    def test_a_password_is_not_told(self):
        said = self.assert_unknown('a.conf', conf_settings.read, [self.write(
            'a.conf', '[DEFAULT]\nsecret\n')])
        self.assertNotIn('secret', said)


class ReadCollectedTestCase(ConfigurationTestCase):

    def test_a_host_that_says_its_name_or_not(self):
        named = self.write('a.conf', OURS + 'host = one\n')
        self.assertEqual(
            'one', conf_settings.read_collected([named], 'a').host)
        unnamed = self.write('b.conf', OURS)
        self.assertEqual(
            'b', conf_settings.read_collected([unnamed], 'b').host)

    def test_nothing_of_this_host(self):
        self.write('etc/nova.conf', '[DEFAULT]\nservice_down_time = 90\n')
        self.write('etc/nova.conf.d/more.conf',
                   '[DEFAULT]\nservice_down_time = 80\n')
        with mock.patch.dict(os.environ, OS_DEFAULT__SERVICE_DOWN_TIME='70'):
            found = conf_settings.read_collected(
                [self.write('a.conf', OURS)], 'a')
        self.assertEqual(60, found.service_down_time)

    def test_one_after_the_other(self):
        first = conf_settings.read_collected([self.write(
            'a.conf', OURS + '[ironic_multihost]\nring_partitions = 32\n'
            '[ironic]\nconductor_group = G\n')], 'a')
        second = conf_settings.read_collected(
            [self.write('b.conf', OURS)], 'b')
        self.assertEqual(('32', '1024'), (
            dict(first.shared)['[ironic_multihost]ring_partitions'],
            dict(second.shared)['[ironic_multihost]ring_partitions']))
        self.assertEqual(('g', None), (first.partition.conductor_group,
                                       second.partition.conductor_group))
