# SPDX-License-Identifier: Apache-2.0

"""What the plugin of devstack refuses, and what it writes for nova.

With devstack's own functions where DEVSTACK_DIR names a checkout.
"""

import pathlib
import tempfile
import unittest

from nova_ironic_multihost.tests.devstack import sandbox

IRONIC, OURS = sandbox.PLUGINS.splitlines()


class PluginTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.machine = sandbox.Sandbox(
            pathlib.Path(directory.name) / 'machine',
            sandbox.checkout() or sandbox.CONTRACT)


class RefusalTestCase(PluginTestCase):

    def stack(self, *lines, **plugins):
        self.machine.configure(*lines, **plugins)
        return self.machine.devstack('stack', 'pre-install')

    def refused(self, *lines, **plugins):
        """Return what is said of a local.conf with these lines."""
        done = self.stack(*lines, **plugins)
        self.assertNotEqual(0, done.returncode, done.stdout)
        return ' '.join(done.stdout.split())

    def test_the_defaults_are_fine(self):
        done = self.stack()
        self.assertEqual(0, done.returncode, done.stdout)

    def test_ours_alone(self):
        said = self.refused(plugins=OURS)
        self.assertIn('add "enable_plugin ironic', said)

    def test_ours_before_ironic(self):
        said = self.refused(plugins=f'{OURS}\n{IRONIC}')
        self.assertIn('Put "enable_plugin ironic" before', said)

    def test_ours_under_another_name_before_ironic(self):
        place = self.machine.top / 'dest' / 'mine'
        place.symlink_to(sandbox.ROOT)
        said = self.refused(plugins=(
            f'enable_plugin mine https://example.org/mine\n{IRONIC}'))
        self.assertIn('Put "enable_plugin ironic" before', said)

    def test_another_hypervisor(self):
        said = self.refused('VIRT_DRIVER=fake')
        self.assertIn('needs VIRT_DRIVER=ironic, it is "fake"', said)

    def test_numbers(self):
        for name, values in (
                ('IRONIC_MULTIHOST_COMPUTES', ('0', '-1', 'three', '08')),
                ('IRONIC_MULTIHOST_RING_PARTITIONS', ('0', '65537')),
                ('IRONIC_MULTIHOST_CHECK_TIMEOUT', ('soon',))):
            for value in values:
                said = self.refused(f'{name}={value}')
                self.assertIn(f'{name}={value}: it must be a number', said)

    def test_options_without_a_value(self):
        said = self.refused('IRONIC_MULTIHOST_OPTIONS="pulls_per_audit 5"')
        self.assertIn('"pulls_per_audit" of IRONIC_MULTIHOST_OPTIONS', said)

    def test_the_samples(self):
        samples = sorted(
            (sandbox.ROOT / 'devstack').glob('local.conf*.sample'))
        self.assertEqual(3, len(samples))
        for sample in samples:
            lines = sample.read_text().partition('[[local|localrc]]\n')[2]
            done = self.stack(lines, plugins='')
            self.assertEqual(0, done.returncode, done.stdout)
            self.assertIn('stopped after pre-install', done.stdout)

    SHARDS = ('IRONIC_SHARDS=1', 'IRONIC_SHARD_1_NAME=a')

    def test_nodes_in_a_shard_that_nobody_looks_at(self):
        said = self.refused(*self.SHARDS, 'IRONIC_NODE_SHARD_NAME=b')
        self.assertIn('Nobody would manage the nodes', said)

    def test_shards_that_make_sense(self):
        for more in (('IRONIC_NODE_SHARD_NAME=a',),
                     ('IRONIC_NODE_SHARD_NAME=b', 'HOST_TOPOLOGY=multinode')):
            done = self.stack(*self.SHARDS, *more)
            self.assertEqual(0, done.returncode, done.stdout)


class StackedTestCase(PluginTestCase):
    """A machine on which pip does nothing."""

    def setUp(self):
        super().setUp()
        dest = self.machine.top / 'dest'
        nova = dest / 'nova'
        nova.mkdir()
        (nova / 'setup.cfg').write_text('[metadata]\nname = nova\n')
        self.conf = self.machine.top / 'nova.conf'
        self.conf.write_text('[DEFAULT]\ndebug = True\n')
        for directory, name in (
                (self.machine.top / 'data' / 'venv' / 'bin', 'pip'),
                (dest / 'requirements' / '.venv' / 'bin',
                 'edit-constraints')):
            directory.mkdir(parents=True)
            (directory / name).write_text('#!/bin/sh\n')
            (directory / name).chmod(0o755)


class ConfigurationTestCase(StackedTestCase):
    """What is in nova.conf after post-config."""

    def configured(self, *lines):
        """Stack with these lines in local.conf."""
        self.machine.configure(*lines)
        done = self.machine.devstack(
            'stack', 'post-config', NOVA_CONF_OF_THE_CLOUD=str(self.conf))
        self.assertEqual(0, done.returncode, done.stdout)
        return done.stdout

    def option(self, section, option):
        return self.machine.option('nova.conf', section, option)

    def test_the_driver(self):
        self.configured()
        self.assertEqual('ironic_multihost.IronicMultiHostDriver',
                         self.option('DEFAULT', 'compute_driver'))
        self.assertEqual('True', self.option('DEFAULT', 'debug'))
        self.assertIsNone(
            self.option('ironic_multihost', 'ring_partitions'))
        self.assertIsNone(self.option('ironic', 'peer_list'))

    def test_no_request_to_ironic_is_repeated_for_minutes(self):
        self.conf.write_text(
            '[ironic]\ntimeout = 120\nconnect_retries = 300\n'
            'connect_retry_delay = 5\nstatus_code_retries = 300\n'
            'status_code_retry_delay = 5\n')
        self.configured()
        self.assertEqual(
            ['120', None, None, None, None],
            [self.option('ironic', name) for name in (
                'timeout', 'connect_retries', 'connect_retry_delay',
                'status_code_retries', 'status_code_retry_delay')])

    def test_placement_gives_no_machine_away_twice(self):
        self.configured()
        self.assertIn('allocation_conflict_retry_count = 1',
                      (self.machine.top / 'placement.conf').read_text())

    def test_placement_that_runs_on_another_machine(self):
        self.configured('disable_service placement-api')
        self.assertFalse((self.machine.top / 'placement.conf').exists())

    def test_what_is_written_in_the_background_stays(self):
        self.configured()
        self.assertEqual(
            'True', self.option('neutron', 'service_metadata_proxy'))

    def test_options(self):
        self.configured(
            'IRONIC_MULTIHOST_RING_PARTITIONS=32',
            'IRONIC_MULTIHOST_OPTIONS='
            '"pulls_per_audit=5 move_across_zones=true"')
        self.assertEqual(
            ('32', '5', 'true'),
            tuple(self.option('ironic_multihost', name) for name in (
                'ring_partitions', 'pulls_per_audit', 'move_across_zones')))

    def test_those_who_share_a_shard_are_named(self):
        self.conf.write_text('[DEFAULT]\nhost = me\n')
        self.configured('IRONIC_SHARDS=1', 'IRONIC_MULTIHOST_COMPUTES=3')
        self.assertEqual('me,me-n-cpu-2,me-n-cpu-3',
                         self.option('ironic', 'peer_list'))

    def test_one_compute_shares_its_shard_with_nobody(self):
        self.conf.write_text('[DEFAULT]\nhost = me\n')
        self.configured('IRONIC_SHARDS=1', 'IRONIC_MULTIHOST_COMPUTES=1')
        self.assertEqual('me', self.option('ironic', 'peer_list'))

    def test_a_dead_compute_is_noticed_within_a_minute(self):
        self.assertIn('report_interval 10', self.configured())
        self.assertIn('report_interval 7', self.configured(
            'NOVA_SERVICE_REPORT_INTERVAL=7'))


class InstallationTestCase(StackedTestCase):

    def test_a_nova_that_is_replaced(self):
        version = self.machine.top / 'version'
        version.write_text('34.1.0.dev5')
        pip = self.machine.top / 'data' / 'venv' / 'bin' / 'pip'
        python = pip.with_name('python3')
        python.write_text(f'#!/bin/sh\necho nova $(cat {version})\n')
        python.chmod(0o755)
        pip.write_text('#!/bin/sh\ncase "$*" in *"multihost[nova]") '
                       f'echo 34.0.0 > {version};; esac\n')
        self.machine.configure()
        done = self.machine.devstack(
            'stack', 'install', NOVA_CONF_OF_THE_CLOUD=str(self.conf))
        self.assertNotEqual(0, done.returncode)
        said = ' '.join(done.stdout.split())
        self.assertIn('does not support nova 34.1.0.dev5', said)
        self.assertIn('nova 34.0.0 in its place', said)


class PostCheckTestCase(StackedTestCase):

    SCRIPT = """
set -o errexit
TOP_DIR={top}/devstack
source $TOP_DIR/functions
source $TOP_DIR/stackrc
exec 6>&1
function echo_summary {{ echo "$@"; }}
for file in database rpc_backend apache tls nova; do
    source $TOP_DIR/lib/$file
done
load_plugin_settings
ironic_multihost_post_check
"""

    def check(self, status, *lines):
        """Run it while the program says so; return its CompletedProcess."""
        self.machine.configure(*lines)
        self.machine.devstack('stack', 'pre-install')
        self.machine.etc.mkdir(parents=True, exist_ok=True)
        (self.machine.etc / 'nova-cpu.conf').write_text(
            '[DEFAULT]\nhost = me\n')
        program = (self.machine.top / 'data' / 'venv' / 'bin'
                   / 'nova-ironic-multihost')
        program.write_text(f'#!/bin/sh\necho asked "$@"\nexit {status}\n')
        program.chmod(0o755)
        return self.machine.run(
            'bash', '-c', self.SCRIPT.format(top=self.machine.top))

    def test_each_node_has_one_owner(self):
        done = self.check(0, 'IRONIC_MULTIHOST_COMPUTES=2',
                          'IRONIC_MULTIHOST_CHECK_TIMEOUT=77')
        self.assertEqual(0, done.returncode, done.stdout)
        self.assertIn('--wait 77 --host me --host me-n-cpu-2', done.stdout)

    def test_one_does_not(self):
        done = self.check(1)
        self.assertNotEqual(0, done.returncode)
        self.assertIn('Not every node has exactly one owner', done.stdout)

    def test_not_wanted(self):
        done = self.check(1, 'IRONIC_MULTIHOST_POST_CHECK=False')
        self.assertEqual(0, done.returncode, done.stdout)
        self.assertNotIn('asked', done.stdout)

    def test_without_the_api(self):
        done = self.check(1, 'ENABLED_SERVICES=n-cpu')
        self.assertEqual(0, done.returncode, done.stdout)
        self.assertIn('on the controller', done.stdout)
