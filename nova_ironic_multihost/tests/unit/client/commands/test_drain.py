# SPDX-License-Identifier: Apache-2.0

import datetime

import requests

from nova_ironic_multihost.client.commands import drain
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.client.commands import waiting

GONE = {'exc': requests.exceptions.ConnectionError('refused')}


class DrainTestCase(waiting.WaitingTestCase):

    def drain(self, *argv, status=0):
        """Run the command: standard output, and standard error."""
        told = self.shell('drain', *argv)
        self.assertEqual(status, told[0], told)
        return told[1:]

    def refused(self, *argv):
        out, err = self.drain(*argv, status=2)
        self.assertEqual([], self.cloud.changes)
        self.assertEqual('', out)
        return err

    def test_disables_and_looks_no_further(self):
        self.cloud.http.get(f'{clouds.IRONIC}/nodes', **GONE)
        out, err = self.drain('east')
        self.assertIn('east is disabled: no build is sent to it', out)
        self.assertEqual('', err)
        self.assertEqual(
            [{'status': 'disabled', 'disabled_reason': drain.REASON}],
            self.cloud.changes)

    def test_a_reason(self):
        self.drain('east', '--reason', 'new memory')
        self.assertEqual('new memory',
                         self.cloud.changes[0]['disabled_reason'])

    def test_a_reason_that_nova_has_no_room_for(self):
        self.assertIn('HTTP 400', self.refused('east', '--reason', 'x' * 256))

    def test_an_empty_reason_is_none(self):
        self.drain('east', '--reason', 'mine')
        self.drain('east', '--reason', '')
        self.assertEqual(['mine'], [
            change['disabled_reason'] for change in self.cloud.changes])

    def test_times_that_are_none(self):
        for time in '-1', 'nan', 'soon':
            self.assertIn('--wait', self.refused('east', f'--wait={time}'))

    def test_twice(self):
        self.drain('east', '--reason', 'mine')
        out, _ = self.drain('east')
        self.assertIn('east is disabled already, with the reason "mine"', out)
        self.assertEqual(1, len(self.cloud.changes))

    def test_one_that_is_fenced_stays_disabled_when_it_is_unfenced(self):
        self.east(state='down', forced_down=True, status='disabled',
                  disabled_reason=f'{fencing.REASON}: fan')
        for _ in range(2):
            self.drain('east')
        self.assertEqual(
            [{'status': 'disabled', 'disabled_reason': drain.REASON}],
            self.cloud.changes)
        [east] = [s for s in self.cloud.survey().computes()
                  if s.host == 'east']
        self.assertEqual({'forced_down': False}, fencing.unwanted(east))

    def test_disabled_without_a_reason(self):
        self.east(status='disabled')
        self.assertIn('without a reason', self.drain('east')[0])

    def test_the_last_one(self):
        self.west(status='disabled')
        err = self.refused('east')
        self.assertIn('every build would end in ERROR', err)
        self.assertIn('undrain west', err)
        self.drain('east', '--even-if-last')
        self.assertEqual(1, len(self.cloud.changes))

    def test_one_that_is_down(self):
        self.east(state='down')
        out, _ = self.drain('east')
        self.assertIn('when it is fenced', out)
        self.assertIn('"drain east --wait 900" shows the rest, "undrain '
                      'east" undoes it', out)

    def test_in_an_outage(self):
        self.east(state='down')
        self.west(state='down')
        self.assertIn('Look at RabbitMQ', self.refused('east'))

    def test_the_last_one_of_bare_metal(self):
        self.west(state='down')
        for host in 'kvm-1', 'kvm-2':
            self.cloud.services += [clouds.service(host)]
            self.cloud.servers += [clouds.server(f's-{host}', host, host)]
        self.assertIn('Besides east no compute', self.refused('east'))
        self.assertIn('kvm-1 has virtual machines', self.refused('kvm-1'))
        self.assertNotIn('/os-hypervisors/detail', self.cloud.asked)
        # One that nobody knows may be one of bare metal.
        self.cloud.servers.pop()
        self.drain('east')

    def test_another_cell_is_out_of_reach(self):
        self.cloud.services += [clouds.service('far')]
        self.cloud.away = {'far'}
        # West may have virtual machines only: nova is not asked.
        out, _ = self.drain('east')
        self.assertIn('Whether another compute service of bare metal', out)
        self.assertIn('"undrain east" undoes it', out)
        self.assertNotIn('/servers/detail', self.cloud.asked)
        self.assertEqual(
            ('disabled', drain.REASON),
            (self.cloud.services[0]['status'],
             self.cloud.services[0]['disabled_reason']))
        status, out, err = self.shell('undrain', 'east')
        self.assertEqual(('enabled', 0), (
            self.cloud.services[0]['status'], status), out + err)

    def test_no_such_host(self):
        err = self.refused('nix')
        self.assertIn('on nix', err)
        self.assertIn('east, west', err)

    def test_nova_forbids_it(self):
        self.cloud.http.put(f'{clouds.NOVA}/os-services/id-east',
                            status_code=403)
        err = self.refused('east')
        self.assertIn('role admin in a project', err)

    def test_waits_until_it_has_no_free_node(self):
        self.after(10, self.move, 'n-1')
        out, _ = self.drain('east', '--wait', '60')
        self.assertEqual([
            'after 0 s: 1 free node left',
            '  west takes 1 free node',
            '  1 node (n-0) stays until the server on each is deleted',
            'after 10 s: 0 free nodes left',
            'east is empty of free nodes'], out.splitlines()[1:])
        self.assertEqual(10, self.now)

    def test_gives_up_waiting(self):
        out, _ = self.drain('east', '--wait', '12', status=1)
        self.assertEqual(12, self.now)
        self.assertEqual(1, out.count('1 free node left'))
        self.assertIn('pulls_per_audit', out.splitlines()[-1])

    def test_looks_once(self):
        self.drain('east', '--wait', '0', status=1)
        self.move('n-1')
        self.drain('east', '--wait', '0')
        self.assertEqual(0, self.now)

    def test_waits_for_nobody(self):
        self.west(state='down')
        out, _ = self.drain('east', '--wait', '600', '--even-if-last',
                            status=1)
        # What one look sees may be half of a change.
        self.assertEqual(2, self.now)
        self.assertIn('stays because no other compute service', out)
        self.assertNotIn('pulls_per_audit', out)

    def test_nobody_for_a_moment(self):
        self.west(state='down')
        self.after(2, self.move, 'n-1')
        self.drain('east', '--wait', '600', '--even-if-last')

    def test_somebody_enables_it_meanwhile(self):
        self.after(10, lambda: self.east(status='enabled'))
        err = self.drain('east', '--wait', '30', status=2)[1]
        self.assertIn('east is enabled and up', err)
        self.assertIn('Drain it again', err)

    def test_somebody_deletes_it_meanwhile(self):
        self.after(10, self.cloud.services.pop, 0)
        err = self.drain('east', '--wait', '600', status=2)[1]
        self.assertEqual(10, self.now)
        self.assertIn('nova has no compute service on east', err)

    def test_it_is_stopped_before_it_is_drained(self):
        words = liveness.stop_marker_text(datetime.datetime(2026, 5, 4))
        self.east(status='disabled', disabled_reason=words)
        self.drain('east')
        self.assertEqual(1, len(self.cloud.changes))

    def test_an_api_that_fails_for_a_moment(self):
        answer = self.cloud._nodes
        url = f'{clouds.IRONIC}/nodes'
        self.cloud.http.get(url, **GONE)
        self.after(20, lambda: self.cloud.http.get(url, json=answer))
        out, err = self.drain('east', '--wait', '30', status=1)
        self.assertEqual(1, err.count('Ironic does not answer at'))
        self.assertIn('after 20 s: 1 free node left', out)

    def test_an_api_that_fails(self):
        self.cloud.http.get(f'{clouds.IRONIC}/nodes', **GONE)
        _, err = self.drain('east', '--wait', '30', status=2)
        self.assertIn('Ironic does not answer at', err)
        self.assertEqual(30, self.now)

    def test_help_teaches(self):
        out, _ = self.drain('--help')
        for words in 'examples:', 'exit status: 0 done', '--even-if-last':
            self.assertIn(words, out)


class UndrainTestCase(waiting.WaitingTestCase):

    def undrain(self, status=0):
        told = self.shell('undrain', 'east')
        self.assertEqual(status, told[0], told)
        return told[1] + told[2]

    def test_enables(self):
        self.east(status='disabled', disabled_reason='mine')
        self.assertIn('east is enabled: it takes', self.undrain())
        self.assertEqual([{'status': 'enabled'}], self.cloud.changes)

    def test_tells_for_what_it_was_disabled(self):
        self.east(status='disabled', disabled_reason='bad NIC')
        self.assertIn('east was disabled for: bad NIC', self.undrain())

    def test_tells_nothing_of_what_drain_has_done(self):
        for reason in (None, drain.REASON, liveness.stop_marker_text(
                datetime.datetime(2026, 5, 4))):
            self.east(status='disabled', disabled_reason=reason)
            self.assertNotIn('was disabled', self.undrain())

    def test_twice(self):
        self.assertIn('east is enabled already', self.undrain())
        self.assertEqual([], self.cloud.changes)

    def test_one_that_is_down(self):
        self.east(status='disabled', state='down')
        self.assertIn('nothing until it is started', self.undrain())

    def test_one_that_was_told_to_end(self):
        self.east(status='disabled', disabled_reason=liveness.stop_marker_text(
            datetime.datetime(2026, 5, 4)))
        self.assertIn('was told to end', self.undrain())

    def test_one_that_is_fenced(self):
        self.east(status='disabled', state='down', forced_down=True)
        told = self.undrain(status=2)
        self.assertIn('unfence east', told)
        self.assertEqual([], self.cloud.changes)
