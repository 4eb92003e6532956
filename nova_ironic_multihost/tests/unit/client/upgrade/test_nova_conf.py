# SPDX-License-Identifier: Apache-2.0

"""nova.conf of several compute services, as nova-compute reads it."""

import builtins
import os
import pathlib
from unittest import mock
import warnings

import fixtures
import nova.conf

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import checks
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.client.upgrade import base

OURS = f'[DEFAULT]\n{base.OURS}'


class NovaConfTestCase(base.UpgradeTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.EnvironmentVariable('HOME', str(self.root)))
        # Where nova-compute looks besides.
        self.useFixture(fixtures.MockPatch(
            'oslo_config.cfg._get_config_dirs',
            lambda project=None: [str(self.root / 'etc')]))
        (self.root / 'etc').mkdir()

    def settings(self, *argv):
        return self.inputs(*argv).settings

    def of(self, text):
        return self.settings('--config-file', self.write('a.conf', text))

    def assert_unknown(self, words, call, *args):
        error = self.assertRaises(cloud_state.CloudError, call, *args)
        self.assertIn(words, str(error))
        return str(error)


class SettingsTestCase(NovaConfTestCase):

    def test_as_nova_compute_finds_it(self):
        first = self.write('etc/nova.conf', OURS + 'host = First\n')
        found = self.settings()
        self.assertEqual(('First', 'first', first, checks.OURS), (
            found.host, found.key, found.origin, found.driver))
        self.write('etc/nova-compute.conf', '[DEFAULT]\nhost = Second\n')
        self.write('etc/nova.conf.d/more.conf',
                   '[ironic_multihost]\nring_partitions = 32\n')
        found = self.settings()
        self.assertEqual(
            ('Second', '32'),
            (found.host, found.shared['[ironic_multihost]ring_partitions']))

    def test_as_nova_compute_is_told(self):
        self.write('etc/nova.conf', OURS + 'host = other\n')
        found = self.settings(
            '--config-file', self.write('a.conf', OURS + 'host = one\n'),
            '--config-file', self.write(
                'b.conf', '[DEFAULT]\nservice_down_time = 120\n'),
            '--config-dir', os.path.dirname(self.write(
                'more/c.conf', '[ironic]\nshard = s\npeer_list = one,TWO\n')))
        self.assertEqual(
            ('one', 120, peers.Partition(None, 's', ('one', 'TWO'))),
            (found.host, found.down_time, found.partition))
        self.assertEqual('120', found.shared['[DEFAULT]service_down_time'])
        # Neither order nor case matters.
        self.assertEqual('one two', found.shared['[ironic]peer_list'])
        for name in 'a.conf', 'b.conf', 'more':
            self.assertIn(str(self.root / name), found.origin)

    def test_defaults_are_those_of_nova(self):
        found = self.of('')
        self.assertEqual(
            (None, 60, peers.Partition(), [],
             {'[ironic_multihost]ring_partitions': '1024',
              '[ironic_multihost]move_across_zones': 'False',
              '[ironic_multihost]instance_takeover': 'forced_down',
              '[DEFAULT]service_down_time': '60'}),
            (found.driver, found.down_time, found.partition,
             found.contradictions(0), found.shared))
        self.assertEqual(
            180 if 'manager_shutdown_timeout' in nova.conf.CONF else 60,
            found.stop_limit)

    def test_all_must_wait_equally_long(self):
        self.assertEqual('400', self.of(
            '[ironic_multihost]\ninstance_takeover = down\n'
            'takeover_after = 400\n').shared[
                '[ironic_multihost]takeover_after'])

    def test_nova_itself_is_left_alone(self):
        self.of(OURS + '[ironic]\nshard = s\n')
        nova.conf.CONF([], project='nova', default_config_files=[],
                       default_config_dirs=[])
        self.assertIsNone(nova.conf.CONF.ironic.shard)
        self.assertIsNone(nova.conf.CONF.compute_driver)

    def test_invalid_value(self):
        """One of ours is a contradiction."""
        found = self.of('[ironic_multihost]\nring_partitions = 0\n')
        self.assertIsNone(found.shared['[ironic_multihost]ring_partitions'])
        for text in 'service_down_time = long', 'host = $nothing_like_it':
            self.assert_unknown(text.partition(' ')[0], self.of,
                                f'[DEFAULT]\n{text}\n')

    def test_nothing_to_read(self):
        self.assert_unknown('--config-file', self.settings)
        self.assert_unknown('gone.conf', self.settings,
                            '--config-file', 'gone.conf')
        self.assert_unknown('gone', self.settings, '--config-dir', 'gone')

    def test_no_text(self):
        path = self.write('a.conf')
        pathlib.Path(path).write_bytes(b'[DEFAULT]\n# na\xefve\n')
        said = self.assert_unknown('UTF-8', self.settings,
                                   '--config-file', path)
        self.assertIn(path, said)
        self.assert_unknown(str(self.root), self.settings,
                            '--config-file', str(self.root))

    def test_a_password_is_not_told(self):
        said = self.assert_unknown('a.conf', self.of, '[DEFAULT]\nsecret\n')
        self.assertNotIn('secret', said)

    def test_warnings_of_what_nova_imports_are_no_result(self):
        real = builtins.__import__

        def old(name, *args, **options):
            if name == 'nova.conf':
                warnings.warn('eventlet is deprecated', stacklevel=2)
            return real(name, *args, **options)

        with warnings.catch_warnings(record=True) as told, \
                mock.patch.object(builtins, '__import__', old):
            warnings.simplefilter('always')
            self.assertTrue(self.of(OURS).driver)
        self.assertEqual([], told)


class CollectedTestCase(NovaConfTestCase):

    def confs(self, collected='all', mine=OURS + 'host = compute-1\n'):
        known = self.inputs(
            '--config-file', self.write('mine/nova.conf', mine),
            '--collected', str(self.root / collected))
        return known.confs

    def hosts(self, **how):
        return [one.host for one in self.confs(**how)]

    def test_nothing_but_this_host(self):
        [one] = self.inputs('--config-file', self.write(
            'a.conf', OURS + 'host = compute-1\n')).confs
        self.assertEqual('compute-1', one.host)

    def test_files_and_directories(self):
        self.write('all/compute-2.conf')
        self.write('all/compute-3.example.org/etc/nova/nova.conf')
        self.write('all/compute-3.example.org/etc/nova/policy.yaml', '-')
        self.write('all/compute-4/nova.conf', OURS + 'host = four\n')
        self.write('all/empty/nothing.txt', '')
        self.write('all/README', 'What is here')
        self.assertEqual(
            ['compute-1', 'compute-2', 'compute-3.example.org', 'four'],
            self.hosts())

    def test_files_of_one_host_are_read_as_nova_compute_does(self):
        for name, host in (('nova.conf', 'first'),
                           ('nova-compute.conf', 'second')):
            self.write(f'all/a/etc/nova/{name}', f'[DEFAULT]\nhost = {host}')
        self.assertEqual(['compute-1', 'second'], self.hosts())
        self.write('all/a/etc/nova/compute.conf.d/0.conf',
                   '[DEFAULT]\nhost = last')
        self.assertEqual(['compute-1', 'last'], self.hosts())

    def test_this_host_is_among_them(self):
        self.write('all/COMPUTE-1.conf')
        self.assertEqual(['COMPUTE-1'], self.hosts())

    def test_this_host_is_a_controller(self):
        self.write('all/compute-2.conf')
        known = self.inputs('--config-file', self.write('mine.conf', ''),
                            '--collected', str(self.root / 'all'))
        self.assertEqual(2, len(known.confs))
        self.assertEqual(['compute-2'], [one.host for one in known.computes])

    def test_nothing_there(self):
        self.assert_unknown('gone cannot be read', self.confs, 'gone')
        (self.root / 'bare').mkdir()
        self.assert_unknown('bare holds no configuration', self.confs, 'bare')

    def test_nothing_of_this_host(self):
        self.write('etc/nova.conf', '[DEFAULT]\nservice_down_time = 90\n')
        self.write('etc/nova.conf.d/more.conf',
                   '[DEFAULT]\nservice_down_time = 80\n')
        self.write('all/compute-2.conf')
        with mock.patch.dict(os.environ, OS_DEFAULT__SERVICE_DOWN_TIME='70'):
            [mine, other] = self.confs()
        self.assertEqual((70, 60), (mine.down_time, other.down_time))

    def test_one_after_the_other(self):
        self.write('all/a.conf', OURS + '[ironic_multihost]\n'
                   'ring_partitions = 32\n[ironic]\nconductor_group = G\n')
        self.write('all/b.conf')
        [_, first, second] = self.confs()
        self.assertEqual(('32', '1024'), tuple(
            one.shared['[ironic_multihost]ring_partitions']
            for one in (first, second)))
        self.assertEqual(('g', None), (first.partition.conductor_group,
                                       second.partition.conductor_group))
