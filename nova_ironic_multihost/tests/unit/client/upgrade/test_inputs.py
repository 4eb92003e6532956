# SPDX-License-Identifier: Apache-2.0

import builtins
import json
import pathlib
import subprocess
import sys
from unittest import mock
import warnings

import fixtures
from oslotest import base

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import command
from nova_ironic_multihost.client.upgrade import inputs
from nova_ironic_multihost.client.upgrade import nova_compute
from nova_ironic_multihost.tests import views

OURS = '[DEFAULT]\ncompute_driver = ironic_multihost.IronicMultiHostDriver\n'

LOADED = {'nova': '34.0.0', 'registered': True, 'error': None, 'lacking': [],
          'shadowed': []}


class EvidenceTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def write(self, name, text=OURS):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def known(self, *argv):
        """The evidence with a nova.conf of compute-1, and more options."""
        mine = self.write('mine/nova.conf', f'{OURS}host = compute-1\n')
        return inputs.UpgradeInputs(command.parser().parse_args(
            ['upgrade', 'check', '--config-file', mine, *argv]))

    def run_instead(self, stdout='', code=0, stderr='', fails=None):
        """Have processes end so; return the mock that runs them."""
        return self.useFixture(fixtures.MockPatchObject(
            subprocess, 'run', side_effect=fails,
            return_value=subprocess.CompletedProcess(
                [], code, stdout, stderr))).mock

    def assert_unknown(self, words, known, name):
        error = self.assertRaises(
            inputs.ERRORS, getattr, known, name)
        self.assertIn(words, str(error))
        return str(error)


class OnceTestCase(base.BaseTestCase):

    def test_what_succeeds_and_what_fails_is_asked_once(self):
        class Things:
            def __init__(self):
                self.known = {}
                self.asked = []

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


class ProbeTestCase(EvidenceTestCase):

    def test_what_nova_compute_has(self):
        run = self.run_instead(
            'nova says this and that {\n\n' + json.dumps(
                {**LOADED, 'error': 'E', 'lacking': ['A.b'],
                 'shadowed': ['C.d']}) + '\n')
        with mock.patch.object(inputs, 'interpreter',
                               return_value='/venv/bin/python'):
            self.assertEqual(
                nova_compute.Probe('/venv/bin/python', '34.0.0', True, 'E',
                              ('A.b',), ('C.d',)), self.known().probe)
        [python, safe, script] = run.call_args.args[0]
        # Nothing of the directory of the script is imported.
        self.assertEqual(('/venv/bin/python', '-P'), (python, safe))
        self.assertTrue(pathlib.Path(script).exists())

    def test_what_the_driver_is_to_extend(self):
        run = self.run_instead(json.dumps(LOADED))
        more = self.write('more.conf', '[ironic_multihost]\n'
                          'base_driver = acme.driver.Acme\n')
        self.assertIsNone(self.known('--config-file', more).probe.error)
        self.assertEqual('acme.driver.Acme', run.call_args.args[0][-1])
        # What is not known here is told by others.
        wrong = self.write('wrong.conf', 'nothing')
        self.assertIsNone(self.known('--config-file', wrong).probe.error)
        self.assertEqual(3, len(run.call_args.args[0]))

    def test_a_python_that_does_not_run(self):
        for error in (FileNotFoundError('gone'),
                      subprocess.TimeoutExpired('python', 9)):
            self.run_instead(fails=error)
            self.assert_unknown('cannot be run', self.known(), 'probe')

    def test_release_of_nova(self):
        self.run_instead(json.dumps(LOADED))
        self.assertEqual(34, self.known().release)
        self.run_instead(fails=FileNotFoundError('gone'))
        self.assertIsNone(self.known().release)

    def test_a_python_that_is_too_old(self):
        for out in '', 'nothing like it', '7', '{}':
            self.run_instead(out, 2, 'usage\nunknown option -P\n')
            self.assert_unknown('status 2 when it is to load the driver, and '
                                'says: unknown option -P', self.known(),
                                'probe')


class InterpreterTestCase(EvidenceTestCase):

    def interpreter(self, text, beside=True):
        script = self.write('bin/nova-compute', text)
        with mock.patch.object(sys, 'executable', str(
                self.root / ('bin' if beside else 'other') / 'python')), \
                mock.patch.object(inputs.shutil, 'which',
                                  return_value=None if beside else script):
            return inputs.interpreter()

    def test_that_of_nova_compute(self):
        for beside in True, False:
            self.assertEqual('/opt/nova/bin/python3', self.interpreter(
                '#!/opt/nova/bin/python3\nimport sys\n', beside))
        # As distributions have it.
        self.assertEqual('/usr/bin/python3',
                         self.interpreter('#!/usr/bin/python3 -sP\n'))

    def test_a_nova_compute_that_does_not_tell(self):
        for text in ('#!/bin/sh\nexec python\n', '#!/usr/bin/env python3\n',
                     'python\n', ''):
            self.assertEqual(str(self.root / 'bin' / 'python'),
                             self.interpreter(text))

    def test_no_nova_compute(self):
        with mock.patch.object(inputs.shutil, 'which', return_value=None), \
                mock.patch.object(sys, 'executable', '/nowhere/python'):
            self.assertEqual('/nowhere/python', inputs.interpreter())


class SettingsTestCase(EvidenceTestCase):

    def test_those_of_all_files(self):
        more = self.write('more.conf', '[DEFAULT]\nservice_down_time = 90\n')
        self.assertEqual(90, self.known('--config-file', more)
                         .settings.service_down_time)
        self.write('d/last.conf', '[DEFAULT]\nservice_down_time = 99\n')
        self.assertEqual(
            99, self.known('--config-dir', str(self.root / 'd'))
            .settings.service_down_time)

    def test_warnings_of_what_nova_imports_are_no_result(self):
        real = builtins.__import__

        def old(name, *args, **options):
            if name == 'nova.conf':
                warnings.warn('eventlet is deprecated', stacklevel=2)
            return real(name, *args, **options)

        with warnings.catch_warnings(record=True) as told, \
                mock.patch.object(builtins, '__import__', old):
            warnings.simplefilter('always')
            self.assertTrue(self.known('--config-file', self.write(
                'nova.conf')).settings.of_compute)
        self.assertEqual([], told)

    def test_without_nova(self):
        # An import of what is None there fails.
        with mock.patch.dict(sys.modules, {'nova.conf': None}):
            self.assert_unknown('Install the package where nova is',
                                self.known(), 'settings')


class CollectedTestCase(EvidenceTestCase):

    def hosts(self, known):
        return [one.host for one in known.collected]

    def test_nothing_but_this_host(self):
        self.assertEqual(['compute-1'], self.hosts(self.known()))

    def test_files_and_directories(self):
        self.write('all/compute-2.conf')
        self.write('all/compute-3.example.org/etc/nova/nova.conf')
        self.write('all/compute-3.example.org/etc/nova/policy.yaml', '-')
        self.write('all/compute-4/nova.conf', OURS + 'host = four\n')
        self.write('all/empty/nothing.txt', '')
        self.write('all/README', 'What is here')
        self.assertEqual(
            ['compute-1', 'compute-2', 'compute-3.example.org', 'four'],
            self.hosts(self.known('--collected', str(self.root / 'all'))))

    def test_files_of_one_host_are_read_as_nova_compute_does(self):
        for name, host in (('nova.conf', 'first'),
                           ('nova-compute.conf', 'second')):
            self.write(f'all/a/etc/nova/{name}', f'[DEFAULT]\nhost = {host}')
        known = self.known('--collected', str(self.root / 'all'))
        self.assertEqual(['compute-1', 'second'], self.hosts(known))
        self.write('all/a/etc/nova/compute.conf.d/0.conf',
                   '[DEFAULT]\nhost = last')
        known = self.known('--collected', str(self.root / 'all'))
        self.assertEqual(['compute-1', 'last'], self.hosts(known))

    def test_this_host_is_among_them(self):
        self.write('all/COMPUTE-1.conf')
        self.assertEqual(['COMPUTE-1'], self.hosts(
            self.known('--collected', str(self.root / 'all'))))

    def test_this_host_is_a_controller(self):
        self.write('all/compute-2.conf')
        known = self.known('--collected', str(self.root / 'all'))
        self.write('mine/nova.conf', '')
        self.assertEqual(['compute-2'], self.hosts(known))

    def test_this_host_is_not_known(self):
        self.write('all/compute-2.conf')
        known = self.known('--collected', str(self.root / 'all'))
        self.write('mine/nova.conf', 'nothing\n')
        self.assertEqual(['compute-2'], self.hosts(known))

    def test_nothing_there(self):
        self.assert_unknown('gone cannot be read', self.known(
            '--collected', str(self.root / 'gone')), 'collected')
        (self.root / 'bare').mkdir()
        self.assert_unknown('bare holds no configuration', self.known(
            '--collected', str(self.root / 'bare')), 'collected')


class PlacementTestCase(EvidenceTestCase):

    def placement(self, text):
        return self.known('--placement-config',
                          self.write('placement.conf', text))

    def test_what_is_set_and_what_is_not(self):
        found = self.placement('').placement
        self.assertEqual((str(self.root / 'placement.conf'), 10, None, ''),
                         (found.origin, found.retries, found.connection,
                          found.parameters))
        found = self.placement(
            '[placement]\nallocation_conflict_retry_count = 1\n'
            '[placement_database]\nconnection = sqlite://\n'
            'connection_parameters = a=b\n').placement
        self.assertEqual((1, 'sqlite://', 'a=b'), (
            found.retries, found.connection, found.parameters))

    def look_in(self, *directories):
        return mock.patch('oslo_config.cfg._get_config_dirs',
                          lambda project=None: list(directories))

    def test_where_placement_looks(self):
        path = self.write('etc/placement.conf', '')
        with self.look_in(str(self.root / 'etc')):
            self.assertEqual(path, self.known().placement.origin)
            self.write('etc/placement.conf.d/more.conf',
                       '[placement]\nallocation_conflict_retry_count = 1\n')
            self.assertEqual(1, self.known().placement.retries)
            # Another host has other directories.
            self.assertEqual(10, self.placement('').placement.retries)

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


class UnitsTestCase(EvidenceTestCase):

    def test_those_that_systemd_has(self):
        run = self.run_instead('Id=mine.service\nLoadState=loaded\n'
                               'TimeoutStopUSec=1min 10s\n')
        self.assertEqual([nova_compute.Unit('mine.service', 70)],
                         self.known('--unit', 'mine').units)
        self.assertEqual('mine', run.call_args.args[0][-1])
        self.known().units  # noqa: B018
        self.assertEqual(list(nova_compute.UNITS),
                         run.call_args.args[0][-len(nova_compute.UNITS):])

    def test_no_systemd(self):
        for error in (FileNotFoundError(),
                      subprocess.TimeoutExpired('systemctl', 9)):
            self.run_instead(fails=error)
            self.assertIsNone(self.known().units)
        self.run_instead('', 1)
        self.assertIsNone(self.known().units)


class CloudTestCase(EvidenceTestCase):

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
        for name in 'seen', 'zones', 'marked', 'partition_nodes', 'hosts':
            self.assert_unknown('Set them.', known, name)
        self.connect.assert_called_once_with(None, None)

    def test_marks_are_those_of_nova(self):
        self.known().marked  # noqa: B018
        self.cloud.marked.assert_called_once_with('OWNER_NOVA')

    def test_the_nodes_of_this_partition(self):
        known = self.known()
        self.write('mine/nova.conf',
                   OURS + '[ironic]\nshard = s\nconductor_group = g\n')
        known.partition_nodes  # noqa: B018
        self.cloud.nodes_of.assert_called_once_with('g', 's')

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
