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

from nova_ironic_multihost.tests import clouds
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
if [[ $1 == silent ]]; then cat answer; exit "$(cat silence)"; fi
exit "$(cat status)"
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
        self.silence(0, 'east is silent, and no other compute service is')
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

    def silence(self, status, *answer):
        self.given('silence', status)
        self.given('answer', *answer)

    def states(self, *states):
        self.given('states', *states)

    #: Which of the machines that have timers runs it.
    machine = 'first'

    @property
    def environment(self):
        return {'PATH': f'{self.home}:{os.environ["PATH"]}',
                'RUNTIME_DIRECTORY': str(self.home / self.machine),
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
        self.states('on', 'off')
        _, calls = self.fence('--if-silent', 'east')
        self.assertEqual(
            ['nova silent east --for 300 --within 3600', 'power status',
             'nova silent east --for 0 --within 3600', 'power off',
             'power status', self.FENCED], self.asked(calls))

    def looks_only(self, status, silence, *answer):
        """Have the timer run, which does nothing: what it says."""
        self.silence(silence, *answer)
        self.states('on', 'off')
        told, calls = self.fence('--if-silent', 'east', status=status)
        self.assertEqual([], [c for c in calls if 'nova silent' not in c])
        return told

    def test_if_not_silent(self):
        self.assertEqual('', self.looks_only(
            0, 1, 'east is not silent: it is enabled and up'))

    def test_not_known_whether_it_is_silent(self):
        # Refused, an argument that it does not know, a crash, not there.
        for status in 2, 1, 0, 126, 127, 137:
            self.assertIn('is not known', self.looks_only(1, status))
        self.assertIn('is not known', self.looks_only(
            1, 2, 'east is not silent: it is enabled and up'))
        (self.home / 'nova-ironic-multihost').unlink()
        (self.home / 'python').symlink_to(sys.executable)
        self.assertIn('is not known', self.looks_only(1, 0))

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
        self.program('nova-ironic-multihost', COMMAND.replace(
            'cat answer', 'until [[ -e over ]]; do sleep 1; done; cat answer'))
        timer = subprocess.Popen(
            [SCRIPT, '--if-silent', 'east'], cwd=self.home,
            env=self.environment, stderr=subprocess.PIPE)
        while 'silent' not in (self.home / 'calls').read_text():
            self.assertIsNone(timer.poll())
        _, calls = self.fence()
        self.assertIn(self.FENCED, calls)
        self.assertIsNone(timer.poll())
        # The timer sees that it is done.
        self.silence(1, 'east is not silent: it is disabled and fenced')
        self.given('over')
        self.assertEqual((b'', 0), (timer.communicate()[1], timer.returncode))
        calls = (self.home / 'calls').read_text().splitlines()
        self.assertEqual(1, calls.count(self.FENCED))

    def test_what_was_fenced_while_the_timer_waited_for_its_turn(self):
        # It looks once more when it has the lock.
        self.states('on')
        self.program('nova-ironic-multihost', COMMAND.replace(
            'cat answer', "cat answer; "
            "echo 'east is not silent: it is fenced' > answer").replace(
                'cat silence', 'cat silence; echo 1 > silence'))
        _, calls = self.fence('--if-silent', 'east')
        self.assertEqual(1, self.asked(calls).count('power status'))
        self.assertEqual(3, len(calls))

    def nova_is(self, cloud):
        """Return the settings that say which nova is asked."""
        return (f'OS_CLIENT_CONFIG_FILE={cloud.clouds_file}',
                'OS_CLOUD=fencing')

    def with_a_nova(self):
        """Have our own command, and a nova that it asks."""
        cloud = self.useFixture(nova.Nova())
        self.program(
            'nova-ironic-multihost', f"""#!/bin/bash
exec {sys.executable} -W ignore -m {COMMANDS} "$@"
""")
        os.symlink(pathlib.Path(recipes.FENCING).parents[1]
                   / 'nova_ironic_multihost',
                   self.home / 'nova_ironic_multihost')
        return cloud

    def test_with_a_nova(self):
        cloud = self.with_a_nova()
        nova_is = self.nova_is(cloud)
        self.settings(*nova_is)
        self.states('on', 'off')
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

    def test_if_silent_with_a_nova(self):
        # Its account sees nothing in Ironic.
        cloud = self.with_a_nova()
        hosts = ['east', 'north', 'south']
        cloud.services[:] = [
            clouds.service('west'), clouds.service('middle'),
            *(clouds.service(host, state='down') for host in hosts)]
        for host in hosts:
            self.settings('silent_for=0', *self.nova_is(cloud), host=host)
        # One switch for all of them.
        self.states('on', 'off')
        told = [self.fence('--if-silent', host, status=1)[0]
                for host in hosts]
        self.assertIn('and it misses north, south', told[0])
        self.assertEqual([], cloud.changes)
        # They die one after the other.
        for service in cloud.services[3:]:
            service['state'] = 'up'
        self.fence('--if-silent', 'east')
        self.assertEqual(('disabled', True), (
            cloud.services[2]['status'], cloud.services[2]['forced_down']))
        cloud.services[3]['state'] = 'down'
        self.states('on', 'off')
        self.machine = 'second'
        told, _ = self.fence('--if-silent', 'north', status=1)
        self.assertIn('east was fenced within 3600 s', told)
        self.assertEqual(1, len(cloud.changes))
        # A person is not kept from it, and an hour ends.
        self.settings('silent_for=0', 'one_in=0', *self.nova_is(cloud),
                      host='north')
        self.fence('--if-silent', 'north')
        self.assertEqual(2, len(cloud.changes))

    def test_if_silent_while_a_cell_is_away(self):
        cloud = self.with_a_nova()
        cloud.away = True
        self.states('off')
        self.settings('silent_for=0', *self.nova_is(cloud))
        told, _ = self.fence('--if-silent', 'east', status=1)
        self.assertIn('the cell of far. Mend', told)
        self.assertEqual([], cloud.changes)
        # A person is not kept from it.
        self.fence('east')
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
