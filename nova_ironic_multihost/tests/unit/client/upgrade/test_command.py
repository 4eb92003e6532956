# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import io
import json
import pathlib
import subprocess

import fixtures
import nova.conf
from oslotest import base

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import checks
from nova_ironic_multihost.client.upgrade import command as status
from nova_ironic_multihost.client.upgrade import inputs
from nova_ironic_multihost.tests.unit.client.upgrade import base as upgrade
from nova_ironic_multihost.tests import views

CLEAN = """\
[DEFAULT]
compute_driver = ironic_multihost.IronicMultiHostDriver
host = {host}
graceful_shutdown_timeout = 50
manager_shutdown_timeout = 40
"""

ALL = frozenset(f'node-{i}' for i in range(6))

SUCCESS, WARNING, FAILURE = range(3)


class StatusTestCase(base.BaseTestCase):
    """A cloud and a host on which all is well, but for what a test breaks.

    :ivar loaded: what comes of loading the driver.
    :ivar stop: what systemd has of the unit.
    :ivar seen: what the APIs say.
    """

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for number in 1, 2, 3:
            self.write(number)
        (self.root / 'placement.conf').write_text(
            '[placement]\nallocation_conflict_retry_count = 1\n')
        self.loaded = dict(upgrade.LOADED)
        self.run_nova('34.0.0')
        self.stop = '1min 10s'
        self.useFixture(fixtures.MockPatchObject(
            subprocess, 'run', side_effect=self.run_instead))
        self.connect = self.useFixture(fixtures.MockPatchObject(
            cloud_client, 'connect')).mock
        self.cloud = self.connect.return_value
        self.cloud.read.side_effect = lambda: self.seen
        self.cloud.marked.return_value = ALL
        self.seen = views.consistent()

    def write(self, number, text=''):
        path = self.root / 'all' / f'compute-{number}.conf'
        path.parent.mkdir(exist_ok=True)
        path.write_text(CLEAN.format(host=f'compute-{number}') + text)
        return path

    def write_all(self, text):
        for number in 1, 2, 3:
            self.write(number, text)

    def run_nova(self, version):
        self.useFixture(fixtures.MockPatchObject(
            inputs.UpgradeInputs, 'nova', version))

    def run_instead(self, command, **kwargs):
        out = (f'Id=nova-compute.service\nLoadState=loaded\n'
               f'TimeoutStopUSec={self.stop}\n' if command[0] == 'systemctl'
               else json.dumps(self.loaded))
        return subprocess.CompletedProcess(command, 0, out, '')

    def call(self, *more):
        """Run the command: (status, standard output)."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = status.main([
                '--config-file', str(self.root / 'all' / 'compute-1.conf'),
                '--placement-config', str(self.root / 'placement.conf'),
                'upgrade', 'check', *more])
        return code, out.getvalue()

    def check(self, *more, collected=True):
        """Run it: (status, {check: details of those that complain})."""
        if collected:
            more = ('--collected', str(self.root / 'all'), *more)
        code, out = self.call('--json', *more)
        results = json.loads(out)['checks']
        self.assertEqual(max(one['result'] for one in results), code)
        self.assertEqual(list(checks.CHECKS),
                         [one['check'] for one in results])
        return code, {one['check']: one['details'] for one in results
                      if one['result'] or one['details']}

    def assert_found(self, result, check, words, **kwargs):
        """One check alone complains, with these words."""
        code, found = self.check(**kwargs)
        self.assertEqual([check], list(found), found)
        self.assertIn(words, found[check])
        self.assertEqual(result, code)


class CleanTestCase(StatusTestCase):

    def test_silent(self):
        self.assertEqual((SUCCESS, {}), self.check())

    def test_a_single_compute_service_is_compared_with_nobody(self):
        self.seen = cloud_state.CloudState(
            services=self.seen.services[:1], records=self.seen.records[:1],
            nodes=self.seen.nodes[:1], providers=self.seen.providers[:1])
        self.assertEqual((SUCCESS, {}), self.check(collected=False))

    def test_table(self):
        code, out = self.call('--collected', str(self.root / 'all'))
        self.assertEqual(SUCCESS, code)
        self.assertEqual(len(checks.CHECKS), out.count('Result: Success'))

    def test_table_has_a_paragraph_for_each_complaint(self):
        """It fits into a terminal, and names of options are not broken."""
        self.write_all('update_resources_interval = -1\nservice_down_time = 9'
                       '\n[ironic_multihost]\ninstance_takeover = down\n'
                       'takeover_after = 5\n')
        code, out = self.call('--collected', str(self.root / 'all'))
        self.assertEqual(FAILURE, code)
        lines = [line.strip('| ') for line in out.splitlines()]
        self.assertGreaterEqual(76, max(map(len, out.splitlines())))
        first = lines.index('Check: Settings without contradiction') + 2
        end = next(number for number, line in enumerate(lines)
                   if number > first and line.startswith('+'))
        told = ' '.join(lines[first:end]).split('  ')
        self.assertTrue(told[0].startswith(
            'Details: [DEFAULT]update_resources_interval is negative'), told)
        self.assertTrue(told[1].startswith(
            '[ironic_multihost]takeover_after is 5 s'), told)
        self.assertEqual(2, len(told))

    def test_partitions_and_zones(self):
        self.write_all('[ironic]\nshard = s\n'
                       'peer_list = compute-1,compute-2,compute-3\n')
        self.seen = dataclasses.replace(
            self.seen, zones=dict.fromkeys(views.HOSTS, 'z'),
            nodes=tuple(dataclasses.replace(node, shard='s')
                        for node in self.seen.nodes))
        self.assertEqual((SUCCESS, {}), self.check())


class FaultTestCase(StatusTestCase):
    """Each fault is found, by one check."""

    def test_driver_that_cannot_be_loaded(self):
        self.loaded['error'] = 'ImportError: tooz'
        self.assert_found(FAILURE, 'Driver', 'ImportError: tooz')

    def test_driver_that_is_not_set(self):
        text = self.write(1).read_text()
        self.write(1).write_text(text.replace('_multihost.IronicMultiHost',
                                              '.Ironic'))
        code, found = self.check()
        self.assertEqual((WARNING, ['Driver', 'Same driver on all']),
                         (code, list(found)))

    def test_release_of_nova(self):
        self.run_nova('30.0.0')
        self.assert_found(FAILURE, 'Release of nova', 'nova is 30.0.0')

    def test_contradictions(self):
        self.write_all('update_resources_interval = -1\n')
        self.assert_found(FAILURE, 'Settings without contradiction',
                          'update_resources_interval is negative')

    def test_time_to_end(self):
        self.stop = '45s'
        self.assert_found(WARNING, 'Time to end',
                          'nova-compute.service is killed 45 s')

    def test_release_that_always_waits(self):
        self.write_all('service_down_time = 30\n')
        self.run_nova('33.0.0')
        if 'manager_shutdown_timeout' in nova.conf.CONF:
            self.assert_found(WARNING, 'Time to end', 'takes 40 s')
        else:
            self.assertEqual(SUCCESS, self.check()[0])

    def test_cells(self):
        self.seen = views.with_more(
            self.seen, 'services', cloud_state.Service(
                'compute-4', mapped=None))
        self.write(4)
        self.assert_found(WARNING, 'Cells', 'discover_hosts --by-service')

    def test_spelling_of_this_host(self):
        path = self.write(1)
        path.write_text(path.read_text().replace('compute-1', 'Compute-1'))
        self.assert_found(WARNING, 'Names of hosts',
                          'set [DEFAULT]host = compute-1')

    def test_conductor_group(self):
        self.write_all(
            '[ironic]\nconductor_group = g\n'
            'peer_list = compute-1,compute-2,compute-3,compute-4\n')
        self.assert_found(WARNING, 'Conductor groups and shards',
                          'names compute-4')

    def test_zones(self):
        self.seen = dataclasses.replace(self.seen, zones={
            'compute-1': 'z', 'compute-2': 'z', 'compute-3': 'y'})
        self.assert_found(WARNING, 'Availability zones', 'compute-3 is alone')
        self.write_all('[ironic_multihost]\nmove_across_zones = true\n')
        self.assertEqual(SUCCESS, self.check()[0])

    def test_settings_of_one(self):
        self.write(2, '[ironic_multihost]\ninstance_takeover = never\n')
        self.assert_found(FAILURE, 'Same settings on all',
                          'never on compute-2')

    def test_driver_of_one(self):
        path = self.write(2)
        path.write_text(path.read_text().replace(
            '_multihost.IronicMultiHost', '.Ironic'))
        self.assert_found(WARNING, 'Same driver on all', 'compute-2 is not')

    def test_nodes_that_are_not_marked(self):
        self.cloud.marked.return_value = ALL - {'node-1'}
        self.assert_found(WARNING, 'Same driver on all', 'of compute-2')

    def test_placement(self):
        (self.root / 'placement.conf').write_text('')
        self.assert_found(WARNING, 'Schedulers and placement',
                          'set [placement]allocation_conflict_retry_count = 1 '
                          '(doc')

    def test_settings_of_a_cloud_without_virtual_machines(self):
        """Both are right, until nova has another hypervisor."""
        self.write(2, '[filter_scheduler]\nhost_subset_size = 999\n')
        self.assertEqual((SUCCESS, {}), self.check())
        self.seen = dataclasses.replace(
            self.seen, others=frozenset({'kvm-1'}))
        code, found = self.check()
        self.assertEqual(WARNING, code)
        [scheduler, placement] = found.pop(
            'Schedulers and placement').splitlines()
        self.assertIn('compute-2.conf has [filter_scheduler]host_subset_size',
                      scheduler)
        self.assertIn('kvm-1', placement)
        self.assertIn('READ+COMMITTED', placement)
        self.assertEqual({}, found)

    def test_settings_of_a_controller(self):
        self.seen = dataclasses.replace(
            self.seen, others=frozenset({'kvm-1'}))
        path = self.write(1, '[filter_scheduler]\nhost_subset_size = 999\n')
        path.write_text(path.read_text().replace('compute_driver', '#'))
        self.assertIn('compute-1.conf has', self.check(
            collected=False)[1]['Schedulers and placement'])

    def test_scope_of_the_account(self):
        self.run_nova('33.0.0')
        self.write_all('[ironic]\nproject_name = service\n')
        self.assert_found(WARNING, 'Account in Ironic', 'the role service')

    def test_retries_as_devstack_leaves_them(self):
        self.write_all('[ironic]\nconnect_retries = 300\n'
                       'connect_retry_delay = 5\n')
        self.assert_found(
            WARNING, 'Settings without contradiction',
            '[ironic]connect_retries lets each request wait 1500 s')


class UnknownTestCase(StatusTestCase):
    """What cannot be known is said, with the remedy."""

    API = ['Cells', 'Names of hosts', 'Availability zones',
           'Same settings on all', 'Same driver on all',
           'Schedulers and placement']

    def test_no_credentials(self):
        self.connect.side_effect = cloud_state.CloudError('Set OS_CLOUD.')
        code, found = self.check()
        self.assertEqual((WARNING, self.API), (code, list(found)))
        self.assertEqual({'Not known: Set OS_CLOUD.'}, set(found.values()))
        self.assertEqual(1, self.connect.call_count)

    def test_an_api_that_is_down(self):
        self.cloud.read.side_effect = cloud_state.CloudError('Start nova.')
        self.assertEqual((WARNING, self.API), (
            (found := self.check())[0], list(found[1])))
        self.assertEqual(1, self.cloud.read.call_count)

    def test_part_of_an_api(self):
        self.cloud.marked.side_effect = cloud_state.CloudError('Be admin.')
        self.assert_found(WARNING, 'Same driver on all', 'Be admin.')

    def test_no_nova_conf(self):
        (self.root / 'all' / 'compute-1.conf').unlink()
        code, found = self.check()
        self.assertEqual(WARNING, code)
        for name in ('Driver', 'Settings without contradiction',
                     'Account in Ironic',
                     'Time to end', 'Conductor groups and shards'):
            self.assertIn('Not known: nova.conf cannot be read', found[name])

    def test_a_python_that_does_not_load_the_driver(self):
        self.useFixture(fixtures.MockPatchObject(
            subprocess, 'run', return_value=subprocess.CompletedProcess(
                [], 139, '', 'Segmentation fault')))
        code, found = self.check()
        self.assertEqual(
            (WARNING, ['Driver', 'Release of nova', 'Time to end']),
            (code, list(found)))
        self.assertIn('says: Segmentation fault', found['Driver'])
        # What is known besides is judged.
        self.assertIn('No unit of systemd here', found['Time to end'])

    def test_nobody_has_collected_anything(self):
        self.assert_found(WARNING, 'Same settings on all',
                          'of compute-2, compute-3 are not compared',
                          collected=False)

    def test_a_controller(self):
        self.write(1).write_text('[DEFAULT]\nhost = controller\n')
        self.seen = views.consistent()
        code, found = self.check(collected=False)
        self.assertIn('sets no compute_driver', found['Driver'])

    def test_one_reason_is_told_once(self):
        (self.root / 'all' / 'compute-1.conf').write_text('nothing\n')
        _, found = self.check(collected=False)
        self.assertEqual(1, found['Time to end'].count('Not known'))

    def test_what_nobody_expects(self):
        self.cloud.read.side_effect = ZeroDivisionError
        code, out = self.call()
        self.assertEqual(255, code)
        self.assertIn('ZeroDivisionError', out)


class CommandLineTestCase(StatusTestCase):

    def test_options_may_be_anywhere(self):
        args = status.parser().parse_args(
            ['--unit', 'a', 'upgrade', '--json', 'check', '--unit', 'b'])
        self.assertEqual((['a', 'b'], True), (args.unit, args.json))

    def test_what_it_does_not_understand(self):
        for argv in [], ['upgrade'], ['upgrade', 'now'], ['check', 'upgrade']:
            with contextlib.redirect_stderr(io.StringIO()):
                self.assertRaises(SystemExit, status.main, argv)

    def test_help_teaches(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertRaises(SystemExit, status.main, ['--help'])
        for words in ('Nothing is changed', '--collected', 'examples:',
                      'exit status: 0 all checks succeeded'):
            self.assertIn(words, out.getvalue())
