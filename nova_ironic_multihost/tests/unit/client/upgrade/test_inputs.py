# SPDX-License-Identifier: Apache-2.0

import json
import math
import pathlib
import subprocess
import sys
from unittest import mock

import fixtures

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import checks
from nova_ironic_multihost.client.upgrade import inputs
from nova_ironic_multihost.tests.unit.client.upgrade import base
from nova_ironic_multihost.tests import views

OURS = f'[DEFAULT]\n{base.OURS}'

SHOWN = """\
Id=nova-compute.service
LoadState=loaded
TimeoutStopUSec=1min 30s

Id=openstack-nova-compute.service
LoadState=not-found
TimeoutStopUSec=infinity

Id=mine.service
LoadState=loaded
TimeoutStopUSec=infinity
"""


class InputsTestCase(base.UpgradeTestCase):

    def known(self, *argv):
        """The inputs with a nova.conf of compute-1, and more options."""
        mine = self.write('mine/nova.conf', f'{OURS}host = compute-1\n')
        return self.inputs('--config-file', mine, *argv)

    def run_instead(self, stdout='', code=0, stderr='', fails=None):
        """Have processes end so; return the mock that runs them."""
        return self.useFixture(fixtures.MockPatchObject(
            subprocess, 'run', side_effect=fails,
            return_value=subprocess.CompletedProcess(
                [], code, stdout, stderr))).mock

    def assert_unknown(self, words, known, name):
        error = self.assertRaises(
            cloud_state.CloudError, getattr, known, name)
        self.assertIn(words, str(error))
        return str(error)


class OnceTestCase(base.UpgradeTestCase):

    def test_what_succeeds_and_what_fails_is_asked_once(self):
        class Things:
            asked = []

            @inputs.once
            def good(self):
                self.asked.append('good')
                return 'it'

            @inputs.once
            def bad(self):
                self.asked.append('bad')
                raise cloud_state.CloudError('No.')

        things = Things()
        for _ in range(2):
            self.assertEqual('it', things.good)
            self.assertRaises(cloud_state.CloudError, getattr, things, 'bad')
        self.assertEqual(['good', 'bad'], things.asked)


class ProbeTestCase(InputsTestCase):

    def test_what_is_printed_last(self):
        found = {**base.LOADED, 'error': 'E', 'lacking': ['A.b']}
        run = self.run_instead(
            'nova says this and that {\n\n' + json.dumps(found) + '\n')
        self.assertEqual(found, self.known().probe)
        [python, safe, script] = run.call_args.args[0]
        # Nothing of the directory of the script is imported.
        self.assertEqual((sys.executable, '-P'), (python, safe))
        self.assertTrue(pathlib.Path(script).exists())

    def test_what_the_driver_is_to_extend(self):
        run = self.run_instead(json.dumps(base.LOADED))
        more = self.write('more.conf', '[ironic_multihost]\n'
                          'base_driver = acme.driver.Acme\n')
        self.assertIsNone(
            self.known('--config-file', more).probe['error'])
        self.assertEqual('acme.driver.Acme', run.call_args.args[0][-1])

    def test_a_python_that_prints_something_else(self):
        for out in '', 'nothing like it', '7':
            self.run_instead(out, 2, 'usage\nunknown option -P\n')
            self.assert_unknown('status 2 when it is to load the driver, and '
                                'says: unknown option -P', self.known(),
                                'probe')

    def test_release_of_nova(self):
        for version, release in ('34.0.0', 34), ('today', 0):
            with mock.patch.object(inputs.UpgradeInputs, 'nova', version):
                self.assertEqual(release, self.known().release)


class PlacementTestCase(InputsTestCase):

    def placement(self, text):
        return self.known('--placement-config',
                          self.write('placement.conf', text))

    def test_what_is_set_and_what_is_not(self):
        self.assertEqual(
            (str(self.root / 'placement.conf'), 10, True),
            self.placement('').placement)
        self.assertEqual(1, self.placement(
            '[placement]\nallocation_conflict_retry_count = 1\n'
        ).placement[1])

    def stale(self, connection, parameters=''):
        text = f'connection_parameters = {parameters}\n'
        if connection:
            text += f'connection = {connection}\n'
        return self.placement(f'[placement_database]\n{text}').placement[2]

    def test_a_repeated_read_may_be_stale(self):
        url = 'mysql+pymysql://placement:secret@db/placement'
        for connection in url, 'mariadb://db/placement', None:
            self.assertTrue(self.stale(connection))
        for connection in 'postgresql://db/placement', 'sqlite:///placement':
            self.assertFalse(self.stale(connection))
        _, _, advised = checks.READ_COMMITTED.partition(' = ')
        for level in (
                advised, 'init_command=set%20session%20transaction%20isolation'
                '%20level%20read%20committed',
                "init_command=SET+transaction_isolation='READ-COMMITTED'"):
            self.assertFalse(self.stale(f'{url}?{level}'))
            self.assertFalse(self.stale(None, level))

    def look_in(self, *directories):
        return mock.patch('oslo_config.cfg._get_config_dirs',
                          lambda project=None: list(directories))

    def test_where_placement_looks(self):
        path = self.write('etc/placement.conf', '')
        with self.look_in(str(self.root / 'etc')):
            self.assertEqual(path, self.known().placement[0])
            self.write('etc/placement.conf.d/more.conf',
                       '[placement]\nallocation_conflict_retry_count = 1\n')
            self.assertEqual(1, self.known().placement[1])
            # Another host has other directories.
            self.assertEqual(10, self.placement('').placement[1])

    def test_none(self):
        with self.look_in():
            self.assert_unknown('--placement-config FILE', self.known(),
                                'placement')
        self.assert_unknown('gone.conf', self.known(
            '--placement-config', 'gone.conf'), 'placement')
        self.assert_unknown(str(self.root), self.known(
            '--placement-config', str(self.root)), 'placement')

    def test_a_password_is_not_told(self):
        for text in ('[placement_database]\nsecret\n',
                     '[placement_database]\nconnection = mysql://u:$secret@d',
                     '[placement]\nallocation_conflict_retry_count = secret'):
            self.assertNotIn('secret', self.assert_unknown(
                'cannot be understood', self.placement(text), 'placement'))


class UnitsTestCase(InputsTestCase):

    def test_those_that_systemd_has(self):
        run = self.run_instead('Id=mine.service\nLoadState=loaded\n'
                               'TimeoutStopUSec=1min 10s\n')
        self.assertEqual([inputs.Unit('mine.service', 70)],
                         self.known('--unit', 'mine').units)
        self.assertEqual('mine', run.call_args.args[0][-1])
        self.known().units  # noqa: B018
        self.assertEqual(list(inputs.UNITS),
                         run.call_args.args[0][-len(inputs.UNITS):])

    def test_no_systemd(self):
        self.run_instead(fails=FileNotFoundError())
        self.assertEqual([], self.known().units)
        self.run_instead('', 1)
        self.assertEqual([], self.known().units)

    def units(self, shown):
        self.run_instead(shown)
        return self.known().units

    def test_those_that_exist(self):
        self.assertEqual(
            [('nova-compute.service', 90, 0), ('mine.service', math.inf, 0)],
            self.units(SHOWN))

    def test_times(self):
        shown = SHOWN.partition('\n\n')[0]
        for text, seconds in (('3min 10s', 190), ('500ms', 0.5),
                              ('1h 1s', 3601), ('2d', 172800)):
            [unit] = self.units(shown.replace('1min 30s', text))
            self.assertEqual(seconds, unit.seconds)
        for text, seconds in (('30s', 30), ('0', 0), ('infinity', 0)):
            [unit] = self.units(f'{shown}\nWatchdogUSec={text}\n')
            self.assertEqual(seconds, unit.watchdog)

    def test_what_is_not_understood_is_not_judged(self):
        self.assertEqual([], self.units(''))
        self.assertEqual([], self.units(
            SHOWN.partition('\n\n')[0].replace('1min 30s', '3 fortnights')))


class CloudTestCase(InputsTestCase):

    def setUp(self):
        super().setUp()
        self.connect = self.useFixture(fixtures.MockPatchObject(
            cloud_client, 'connect')).mock
        self.cloud = self.connect.return_value
        self.cloud.read.return_value = views.consistent()

    def test_whose_credentials(self):
        known = self.known('--os-cloud', 'a', '--os-baremetal-cloud', 'b')
        self.assertEqual(views.consistent(), known.seen)
        self.connect.assert_called_once_with('a', 'b')

    def test_no_credentials(self):
        self.connect.side_effect = cloud_state.CloudError('Set them.')
        known = self.known()
        for name in 'cloud', 'seen', 'hosts', 'peers':
            self.assert_unknown('Set them.', known, name)
        self.connect.assert_called_once_with(None, None)

    def test_who_shares_nodes_with_this_host(self):
        self.assertEqual(['compute-1', 'compute-2', 'compute-3'],
                         self.known().peers)
        known = self.known()
        self.write('mine/nova.conf', OURS + 'host = compute-1\n'
                   '[ironic]\nshard = s\npeer_list = compute-3\n')
        self.cloud.read.return_value = views.changed(
            views.consistent(), 'services', 2, host='COMPUTE-3')
        self.assertEqual(['compute-1', 'COMPUTE-3'], known.peers)

    def test_compute_services_that_count(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False)
        self.cloud.read.return_value = seen
        self.assertEqual(3, len(self.known().hosts))
        # One that is gone with its nodes is about to be deleted.
        for index in 1, 4:
            seen = views.changed(seen, 'records', index, host='compute-1')
        self.cloud.read.return_value = seen
        self.assertEqual(['compute-1', 'compute-3'], self.known().hosts)
