# SPDX-License-Identifier: Apache-2.0

import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.fencing import nova
from nova_ironic_multihost.tests.fencing import recipes

SYSTEMD = recipes.FENCING / 'systemd'
SCRIPT = SYSTEMD / 'fence-compute'

#: A BMC. It notes what it is asked for and how, and answers each status by
#: the next line of the file; the last one stays.
IPMITOOL = r"""#!/bin/bash
echo "ipmitool $*" >> calls
[[ ${!#} == status ]] || exit 0
answer=$(head -n 1 states)
[[ $(wc -l < states) -gt 1 ]] && sed -i 1d states
[[ $answer == fail ]] && { echo 'Unable to establish session' >&2; exit 1; }
echo "Chassis Power is $answer"
"""

#: Our command, which notes what it is told.
COMMAND = r"""#!/bin/bash
echo "nova $*" >> calls
if [[ $1 == list ]]; then cat services; else exit "$(cat status)"; fi
"""
#: The command.
COMMANDS = 'nova_ironic_multihost.client.commands.app'


class ScriptTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, text in ('ipmitool', IPMITOOL), (
                'nova-ironic-multihost', COMMAND):
            self.program(name, text)
        self.given('status', '0')
        self.given('calls')
        self.given('services', 'east down enabled', 'west up enabled')
        self.settings()

    def program(self, name, text):
        (self.home / name).write_text(text)
        (self.home / name).chmod(0o755)

    def given(self, name, *lines):
        (self.home / name).write_text(''.join(f'{line}\n' for line in lines))

    def settings(self, *more, host='east'):
        self.given(f'{host}.conf', '# a comment', '', 'bmc=bmc-1',
                   'bmc_user=fence', 'bmc_password_file=/secret', 'pause=0',
                   *more)

    def states(self, *states):
        self.given('states', *states)

    @property
    def environment(self):
        return {'PATH': f'{self.home}:{os.environ["PATH"]}',
                'RUNTIME_DIRECTORY': str(self.home),
                'FENCE_COMPUTE_DIRECTORY': str(self.home)}

    def fence(self, *argv, status=0):
        """Run it: what it says, and what has been asked for."""
        done = subprocess.run(
            [SCRIPT, *(argv or ['east'])], cwd=self.home, text=True,
            env=self.environment, capture_output=True, timeout=60)
        self.assertEqual(status, done.returncode, done.stderr)
        return done.stderr, (self.home / 'calls').read_text().splitlines()

    def asked(self, calls):
        return [re.sub('.*(power (on|off|status|cycle|reset))', r'\1', call)
                for call in calls]

    FENCED = ('nova fence east --retry 120 --reason powered off by '
              'fence-compute')

    def test_off_is_seen_before_nova_is_told(self):
        self.states('on', 'on', 'off')
        _, calls = self.fence()
        self.assertEqual(
            ['power status', 'power off', 'power status', 'power status',
             self.FENCED], self.asked(calls))
        self.assertEqual(
            'ipmitool -I lanplus -H bmc-1 -U fence -f /secret chassis power '
            'status', calls[0])

    def test_one_that_is_off(self):
        self.states('off')
        for _ in range(2):
            _, calls = self.fence()
        self.assertNotIn('power off', self.asked(calls))
        self.assertEqual(2, calls.count(self.FENCED))

    def test_a_bmc_that_does_not_say(self):
        for state in 'fail', 'unknown':
            self.states(state)
            told, calls = self.fence(status=1)
            self.assertIn('bmc-1 does not say', told)
            self.assertEqual({'power status'}, set(self.asked(calls)))

    def test_a_bmc_that_stops_answering(self):
        self.settings('off_timeout=0')
        self.states('on', 'fail')
        told, calls = self.fence(status=1)
        self.assertIn('is not off', told)
        self.assertNotIn(self.FENCED, calls)

    def test_one_that_stays_on(self):
        self.settings('off_timeout=0')
        self.states('on')
        self.assertIn('is not off', self.fence(status=1)[0])

    def test_nova_is_not_told(self):
        self.states('off')
        self.given('status', '2')
        self.assertIn('run this again', self.fence(status=1)[0])

    def test_if_silent(self):
        self.states('off')
        self.settings('silent_for=0')
        _, calls = self.fence('--if-silent', 'east')
        self.assertIn(self.FENCED, calls)

    def looks_only(self, status, *services):
        """Have the timer run, which does nothing: what it says."""
        self.given('services', *services)
        told, calls = self.fence('--if-silent', 'east', status=status)
        self.assertEqual([], [c for c in calls if 'list --nova' not in c])
        return told

    def test_if_not_silent(self):
        self.states('on', 'off')
        self.settings('silent_for=0')
        for east in 'up enabled', 'up disabled', 'fenced disabled', (
                'down disabled'), 'down ended', 'up ending':
            self.assertEqual('', self.looks_only(
                0, f'east {east}', 'west up enabled'))
        # It has left another spelling of its name behind.
        for services in ('East down enabled', 'east up enabled'), (
                'East up enabled', 'east down enabled'):
            self.looks_only(0, *services, 'west up enabled')

    def test_not_it_alone(self):
        self.states('on', 'off')
        self.settings('silent_for=0')
        east = 'east down enabled'
        for services in (
                ('west down enabled',),
                ('a up enabled', 'b up enabled', 'c down enabled'),
                # They were fenced one after the other.
                ('a up enabled', 'b fenced disabled'),
                ('a up enabled', 'b unknown'),
                ('a down disabled',), ()):
            self.assertIn('not it alone', self.looks_only(1, east, *services))
        self.assertIn('it misses c d.', self.looks_only(
            1, east, 'a up enabled', 'c down enabled', 'd down enabled'))

    def test_not_known_whether_it_is_silent(self):
        self.states('on', 'off')
        self.settings('silent_for=0')
        for services in ('northeast down enabled', 'west up enabled'), (
                'east unknown', 'west up enabled'), ():
            self.assertIn('Nothing is done', self.looks_only(1, *services))
        self.program('nova-ironic-multihost', COMMAND + 'exit 2\n')
        self.assertIn('is not known', self.looks_only(
            1, 'east down enabled', 'west up enabled'))

    def test_many_at_once(self):
        self.states('on')
        silent = [f'c{index} down enabled' for index in range(4)]
        self.given('services', *silent, 'c5 up enabled')
        for host in 'c0', 'c1', 'c2', 'c3':
            self.settings('silent_for=0', host=host)
            _, calls = self.fence('--if-silent', host, status=1)
        self.assertEqual(set(), {c for c in calls if 'list' not in c})

    def test_one_after_the_other(self):
        for host in 'east', 'west':
            self.settings('silent_for=0', host=host)
        self.states('off')
        for _ in range(2):
            _, calls = self.fence('--if-silent', 'east')
        self.assertEqual(2, calls.count(self.FENCED))
        self.given('services', 'east fenced disabled', 'west down enabled',
                   'a up enabled', 'b up enabled')
        told, calls = self.fence('--if-silent', 'west', status=1)
        self.assertIn('east was powered off as silent', told)
        self.assertNotIn('nova fence west', ' '.join(calls))
        # A person is not kept from it, and an hour ends.
        self.fence('west')
        self.settings('silent_for=0', 'one_in=0', host='west')
        _, calls = self.fence('--if-silent', 'west')
        self.assertEqual(2, ' '.join(calls).count('nova fence west'))

    def test_one_that_is_not_powered_off_keeps_no_other_back(self):
        for host in 'east', 'west':
            self.settings('silent_for=0', host=host)
        self.states('fail')
        told, _ = self.fence('--if-silent', 'east', status=1)
        self.assertIn('does not say', told)
        # Somebody has pulled the plug of east, and fenced it.
        self.states('on', 'off')
        self.given('services', 'east fenced disabled', 'west down enabled',
                   'a up enabled', 'b up enabled')
        _, calls = self.fence('--if-silent', 'west')
        self.assertIn('nova fence west', ' '.join(calls))

    def test_silence_that_ends(self):
        self.states('on', 'off')
        self.settings('silent_for=600')
        self.program('nova-ironic-multihost', COMMAND + (
            "\nsed -i 's/east down/east up/' services\n"))
        _, calls = self.fence('--if-silent', 'east')
        self.assertEqual(2, len(calls))

    def test_wrong_calls_and_settings(self):
        for argv in (), ('east', 'west'), ('../east',), ('--if-silent',), (
                'nix',):
            self.fence(*(argv or ['']), status=2)
        for wrong in ('bmcc=x', 'patience=long', 'bmc=', '$(touch x)=1',
                      'silent_for=0300', 'off_timeout=090'):
            self.settings(wrong)
            told, calls = self.fence(status=2)
            self.assertIn('east.conf', told)
            self.assertEqual([], calls)

    def test_two_at_once(self):
        self.states('on', 'on', 'off')
        first, second = (subprocess.Popen(
            [SCRIPT, 'east'], cwd=self.home, env=self.environment,
            stderr=subprocess.PIPE) for _ in range(2))
        self.assertEqual([b'', b''], [
            process.communicate()[1].replace(
                b'fence-compute: east: powering off\n', b'')
            for process in (first, second)])
        self.assertEqual([0, 0], [first.returncode, second.returncode])
        calls = self.asked((self.home / 'calls').read_text().splitlines())
        self.assertEqual(1, calls.count('power off'))
        # The second one begins when the first one is through.
        self.assertEqual(
            [self.FENCED, 'power status', 'power status', self.FENCED],
            calls[-4:])

    def test_who_says_so_does_not_wait_for_the_timer(self):
        self.states('off')
        self.settings('silent_for=600', 'pause=1')
        timer = subprocess.Popen(
            [SCRIPT, '--if-silent', 'east'], cwd=self.home,
            env=self.environment, stderr=subprocess.PIPE)
        while 'list' not in (self.home / 'calls').read_text():
            self.assertIsNone(timer.poll())
        _, calls = self.fence()
        self.assertIn(self.FENCED, calls)
        self.assertIsNone(timer.poll())
        # The timer sees that it is done.
        self.given('services', 'east fenced disabled', 'west up enabled')
        self.assertEqual((b'', 0), (timer.communicate()[1], timer.returncode))
        calls = (self.home / 'calls').read_text().splitlines()
        self.assertEqual(1, calls.count(self.FENCED))

    def test_what_was_fenced_while_the_timer_waited_for_its_turn(self):
        # It looks once more when it has the lock.
        self.states('on')
        self.settings('silent_for=0')
        self.program('nova-ironic-multihost', COMMAND + (
            "\nsed -i 's/east down enabled/east fenced disabled/' services\n"))
        _, calls = self.fence('--if-silent', 'east')
        self.assertEqual(1, self.asked(calls).count('power status'))
        self.assertEqual(3, len(calls))

    def test_with_a_nova(self):
        cloud = self.useFixture(nova.Nova())
        self.states('on', 'off')
        nova_is = (f'OS_CLIENT_CONFIG_FILE={cloud.clouds_file}',
                   'OS_CLOUD=fencing')
        self.settings(*nova_is)
        self.program(
            'nova-ironic-multihost', f"""#!/bin/bash
exec {sys.executable} -W ignore -m {COMMANDS} "$@"
""")
        os.symlink(pathlib.Path(recipes.FENCING).parents[1]
                   / 'nova_ironic_multihost',
                   self.home / 'nova_ironic_multihost')
        cloud.failures = 1
        told, _ = self.fence()
        self.assertIn('HTTP 503', told)
        self.assertNotIn(nova.SECRET, told)
        self.assertEqual(
            [(True, 'disabled')],
            [(c['forced_down'], c['status']) for c in cloud.changes])
        # That of another machine is off.
        cloud.services[0].update(
            state='up', forced_down=False, status='enabled')
        self.settings('patience=0', *nova_is)
        told, _ = self.fence(status=1)
        self.assertIn('east is up', told)
        self.assertIn('BMC of another machine', told)
        self.assertEqual(1, len(cloud.changes))
        # An account that Ironic shows nothing, and a cell that is away.
        cloud.away = True
        cloud.services[0].update(state='down')
        self.states('off')
        self.settings('silent_for=0', *nova_is)
        self.fence('--if-silent', 'east')
        self.assertEqual(('disabled', True), (
            cloud.services[0]['status'], cloud.services[0]['forced_down']))


class UnitsTestCase(base.BaseTestCase):

    def test_units_name_what_is_there(self):
        for path in sorted(SYSTEMD.glob('*.service')):
            unit = configparser.ConfigParser(
                strict=False, interpolation=None, delimiters='=')
            unit.optionxform = str
            unit.read(path)
            self.assertIn(
                pathlib.Path(unit['Service']['ExecStart'].split()[0]).name,
                (SCRIPT.name, 'nova-ironic-multihost'))

    def test_nobody_gives_up_to_unfence(self):
        # nova's API may not answer for an hour after a power failure.
        unit = (SYSTEMD / 'unfence-compute.service').read_text()
        self.assertIn('\nStartLimitIntervalSec=0\n', unit)
        self.assertIn('\nRestart=on-failure\n', unit)

    def test_by_hand_and_by_a_unit_it_has_one_lock(self):
        directory = re.search(
            'RUNTIME_DIRECTORY:-(.*)}', SCRIPT.read_text()).group(1)
        for path in SYSTEMD.glob('fence*.service'):
            self.assertIn(
                f'\nRuntimeDirectory={directory.removeprefix("/run/")}\n',
                path.read_text())

    def test_units_of_nova_compute(self):
        unit = (SYSTEMD / 'unfence-compute.service').read_text()
        for name in ('nova-compute', 'openstack-nova-compute',
                     'kolla-nova_compute_ironic-container'):
            for setting in 'After', 'WantedBy':
                self.assertRegex(
                    unit, fr'(?m)^{setting}=(.* )?{name}\.service( |$)')

    def test_hosts_with_a_hyphen(self):
        # %I makes a slash of it.
        for path in SYSTEMD.glob('*@.service'):
            self.assertRegex(path.read_text(), '(?m)^ExecStart=.* %i$')

    def test_systemd_understands_them(self):
        program = shutil.which('systemd-analyze')
        if program is None:
            self.skipTest('There is no systemd here.')
        done = subprocess.run(
            [program, 'verify', '--man=no', *sorted(
                map(str, SYSTEMD.glob('*@.*')))],
            text=True, capture_output=True)
        self.assertNotIn('Unknown', done.stderr)
