# SPDX-License-Identifier: Apache-2.0

import contextlib
import functools
import io
import os
import pathlib
import subprocess
import sys
import types
from unittest import mock

import fixtures
from lxml import etree
import openstack
from oslotest import base
import requests

from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.fencing import nova
from nova_ironic_multihost.tests.fencing import recipes

AGENT = recipes.FENCING / 'pacemaker' / 'fence_nova_ironic_multihost'

#: Where tools/test has unpacked Debian's package fence-agents.
FENCE_AGENTS = 'FENCE_AGENTS'


def agents(test):
    """Where they are; skip the test if nobody has promised them."""
    promised = os.environ.get(FENCE_AGENTS)
    if not promised:
        test.skipTest('tools/test unpacks fence-agents; tox alone does not.')
    path = pathlib.Path(promised) / 'usr'
    if not path.exists():
        test.fail(f'There is no {path}. See why tools/test could not fetch '
                  'it: .tools/logs/install-fence-agents.log')
    return path


class AgentTestCase(base.BaseTestCase):
    """Of east, which nova calls down, and of west."""

    def setUp(self):
        super().setUp()
        self.agent = recipes.load(AGENT)
        self.apis = self.useFixture(clouds.FakeCloud())
        self.apis.services[0]['state'] = 'down'
        self.connect = self.useFixture(fixtures.MockPatchObject(
            openstack, 'connect',
            side_effect=lambda **_: self.apis.connection())).mock
        self.now = 0
        self.useFixture(fixtures.MockPatchObject(
            services, 'looks', functools.partial(
                services.looks, clock=lambda: self.now, sleep=self.sleep)))
        self.useFixture(fixtures.EnvironmentVariable('OS_CLIENT_CONFIG_FILE'))
        self.file = self.useFixture(fixtures.TempDir()).join('clouds.yaml')
        pathlib.Path(self.file).touch()

    def sleep(self, seconds):
        self.now += seconds

    def run_agent(self, *argv, **given):
        """Run it as Pacemaker does, or with a command line: what it told."""
        out, err = io.StringIO(), io.StringIO()
        given = {'clouds_file': self.file} | given
        stdin = [f'{name}={value}\n' for name, value in given.items()]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = self.agent.main(list(argv), stdin)
        return status, out.getvalue(), err.getvalue()

    def act(self, action, plug='east', status=0, **given):
        told = self.run_agent(action=action, plug=plug, **given)
        self.assertEqual(status, told[0], told)
        if status == 1:
            self.assertEqual('', told[1])
        return ''.join(told[1:])

    def test_off(self):
        for action in 'off', 'reboot':
            self.act(action)
        self.assertEqual([{
            'forced_down': True, 'status': 'disabled',
            'disabled_reason': f'{fencing.REASON}: Pacemaker'}],
            self.apis.changes)

    def test_reboot_is_what_pacemaker_asks_for_by_default(self):
        self.assertEqual(0, self.run_agent(plug='east')[0])
        self.assertEqual(1, len(self.apis.changes))

    def test_names_of_the_host(self):
        for name in 'plug', 'port', 'nodename':
            status, out, _ = self.run_agent(
                action='status', **({name: 'East'} | (
                    {} if name == 'nodename' else {'nodename': 'other'})))
            self.assertEqual((0, 'Status: ON\n'), (status, out))

    def test_command_line(self):
        status, _, err = self.run_agent(
            '-o', 'off', '-n', 'east', '--clouds-file', self.file)
        self.assertEqual((0, ''), (status, err))

    def test_one_that_is_up(self):
        told = self.act('off', 'west', status=1, patience='10')
        self.assertEqual((10, []), (self.now, self.apis.changes))
        self.assertIn('west is up', told)
        self.assertIn('powered_off=1', told)

    def test_one_that_another_agent_has_powered_off(self):
        self.act('off', 'west', powered_off='1')
        self.assertEqual(1, len(self.apis.changes))

    def test_nova_is_away(self):
        self.apis.http.get(f'{clouds.NOVA}/os-services',
                           exc=requests.exceptions.ConnectionError('no'))
        self.assertIn('nova does not answer at', self.act('off', status=1))
        self.assertEqual(40, self.now)
        self.assertIn('nova does not answer at', self.act('monitor', status=1))

    def test_another_cell_is_out_of_reach(self):
        self.apis.services.append(clouds.service('far'))
        self.apis.away = {'far'}
        for action in 'monitor', 'list', 'off':
            self.act(action)
        self.act('status', status=2)
        self.assertEqual('disabled', self.apis.services[0]['status'])
        self.assertIn('cell of far', self.act('off', 'far', status=1))

    def test_nothing_is_asked_node_by_node(self):
        for action in 'monitor', 'list', 'status', 'off':
            self.act(action)
        self.assertNotIn('/os-hypervisors/detail', self.apis.asked)

    def test_status(self):
        self.assertEqual('Status: ON\n', self.act('status'))
        self.act('off')
        self.assertEqual('Status: OFF\n', self.act('status', status=2))

    def test_on_takes_no_mark_away(self):
        self.act('on')
        self.act('off')
        told = self.act('on', status=1)
        self.assertIn('nova-ironic-multihost unfence east', told)
        self.assertEqual(1, len(self.apis.changes))

    def test_lists(self):
        self.assertEqual('east,\nwest,\n', self.act('list'))
        self.act('off')
        self.assertEqual('east,,off\nwest,,on\n', self.act('list-status'))

    def test_no_such_host(self):
        self.assertIn('east, west', self.act('off', 'nix', status=1))

    def test_what_asks_nobody(self):
        for action in 'metadata', 'start', 'stop':
            self.assertEqual(0, self.run_agent(action=action)[0])
        self.act('validate-all')
        self.assertEqual({}, self.apis.asked)

    def test_parameters_that_make_no_sense(self):
        for remedy, given in (
                ('there are: on, off', {'action': 'diag'}),
                ('plug=HOST', {'action': 'off'}),
                ('seconds', {'action': 'monitor', 'patience': 'long'}),
                ('seconds', {'action': 'monitor', 'patience': 'nan'}),
                ('0 or 1', {'action': 'monitor', 'powered_off': 'maybe'}),
                ('clouds_file', {'action': 'monitor',
                                 'clouds_file': '/nowhere'})):
            status, out, err = self.run_agent(**given)
            self.assertEqual((1, ''), (status, out))
            self.assertIn(remedy, err)

    def test_a_command_line_that_makes_no_sense(self):
        # 2 would say that it is off.
        status, out, err = self.run_agent('-o', 'status', '--plugg', 'east')
        self.assertEqual((1, ''), (status, out))
        self.assertIn('--plugg', err)

    def test_credentials(self):
        self.act('validate-all', cloud='other')
        self.assertEqual('other', self.connect.call_args.kwargs['cloud'])
        self.assertEqual(self.file, os.environ['OS_CLIENT_CONFIG_FILE'])

    def test_metadata_has_the_form_of_fence_agents(self):
        schema = etree.RelaxNG(file=str(
            agents(self) / 'share' / 'cluster' / 'relaxng' / 'metadata.rng'))
        found = etree.fromstring(self.run_agent(action='metadata')[1])
        self.assertTrue(schema.validate(found), schema.error_log)
        self.assertEqual(
            set(self.agent.DO) | {'metadata', 'start', 'stop'},
            set(found.xpath('actions/action/@name')))
        # The cluster itself would take the mark away when a node joins.
        self.assertEqual([], found.xpath('actions/action[@automatic]'))


class ProgramTestCase(base.BaseTestCase):

    def test_as_pacemaker_runs_it(self):
        cloud = self.useFixture(nova.Nova())
        cloud.failures = 1
        done = subprocess.run(
            [sys.executable, AGENT], text=True, capture_output=True,
            env={'PATH': os.environ['PATH'], 'PYTHONWARNINGS': 'ignore'},
            input=f'clouds_file={cloud.clouds_file}\naction=off\n'
                  'nodename=east\ncrm_feature_set=3.16.2\n')
        self.assertEqual((0, 'east is fenced\n'),
                         (done.returncode, done.stdout), done.stderr)
        self.assertIn('HTTP 503', done.stderr)
        self.assertNotIn(nova.SECRET, done.stderr)
        self.assertEqual(1, len(cloud.changes))


class FenceComputeTestCase(base.BaseTestCase):
    """What the agent of fence-agents for nova does, and why it will not do."""

    def setUp(self):
        super().setUp()
        library = types.ModuleType('fencing')
        for name in 'fail_usage', 'is_executable', 'run_command', 'run_delay':
            setattr(library, name, mock.Mock(return_value=(0, '', '')))
        with mock.patch.dict(sys.modules, fencing=library):
            self.agent = recipes.load(agents(self) / 'sbin' / 'fence_compute')
        self.nova = mock.Mock()

    def off(self, **service):
        """Have it fence one that is down: what it tells nova."""
        self.nova.services.list.return_value = [types.SimpleNamespace(
            binary='nova-compute', state='down', **service)]
        self.agent.set_power_status_off(
            self.nova, {'--plug': 'east', '--action': 'off'})
        return [call[0] for call in self.nova.services.method_calls
                if call[0] != 'list']

    def test_order(self):
        self.assertEqual(['force_down', 'disable'],
                         self.off(status='enabled'))

    def test_one_that_is_disabled_is_not_forced_down(self):
        self.assertEqual([], self.off(status='disabled'))
