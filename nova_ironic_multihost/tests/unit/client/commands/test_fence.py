# SPDX-License-Identifier: Apache-2.0

import requests

from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.client.commands import waiting

GONE = {'exc': requests.exceptions.ConnectionError('refused')}

FENCED = {'state': 'down', 'forced_down': True, 'status': 'disabled',
          'disabled_reason': fencing.REASON}


class FenceTestCase(waiting.WaitingTestCase):

    def setUp(self):
        super().setUp()
        self.east(state='down')

    def fence(self, *argv, status=0):
        """Run the command: standard output, and standard error."""
        told = self.shell('fence', *argv)
        self.assertEqual(status, told[0], told)
        return told[1:]

    def answer(self):
        """Let nova answer again."""
        self.cloud.http.get(
            f'{clouds.NOVA}/os-services',
            json=lambda *_: {'services': self.cloud.services})

    def refused(self, *argv):
        out, err = self.fence(*argv, status=2)
        self.assertEqual([], self.cloud.changes)
        self.assertEqual('', out)
        return err

    def test_fences_and_looks_no_further(self):
        for url in clouds.IRONIC, clouds.PLACEMENT:
            self.cloud.http.get(url, **GONE)
        out, err = self.fence('east')
        self.assertIn('"fence east --wait 600" shows the rest. When it is '
                      'repaired: start it, "unfence east"', out)
        self.assertIn('east is forced down and disabled', out)
        self.assertEqual('', err)
        self.assertEqual(
            [{'forced_down': True, 'status': 'disabled',
              'disabled_reason': fencing.REASON}], self.cloud.changes)

    def test_another_cell_is_out_of_reach(self):
        self.cloud.services += [clouds.service('far')]
        self.cloud.away = {'far'}
        self.fence('east')
        self.assertEqual(FENCED, {
            name: self.cloud.services[0][name] for name in FENCED})
        # Nobody waits a minute, for nova, to learn what kind of host it is.
        self.assertNotIn('/servers/detail', self.cloud.asked)
        self.assertIn('Name one of those', self.fence('nix', status=2)[1])

    def test_a_host_of_virtual_machines(self):
        self.cloud.services += [clouds.service('kvm', state='down')]
        # nova may have another name for the host than for its hypervisor.
        for node in 'kvm.example.org', 'hypervisor-7':
            self.cloud.servers[1:] = [clouds.server('s-1', 'kvm', node)]
            for more in (), ('--dry-run',), ('--powered-off', 'kvm'), (
                    '--retry', '60'):
                self.assertIn('kvm has virtual machines',
                              self.refused('kvm', *more))
        self.assertEqual(0, self.now)

    def test_which_kind_of_host_it_is_cannot_be_asked(self):
        self.cloud.http.get(f'{clouds.NOVA}/servers/detail', **GONE)
        self.fence('east')

    def test_records_are_not_asked_for(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-hypervisors/detail', **GONE)
        self.fence('east')
        self.assertEqual({'/os-services': 1, '/servers/detail': 1,
                          '/os-services/id-east': 1}, dict(self.cloud.asked))

    def test_a_reason(self):
        self.fence('east', '--reason', 'fan')
        self.assertEqual(f'{fencing.REASON}: fan',
                         self.cloud.changes[0]['disabled_reason'])

    def test_twice(self):
        self.fence('east', '--reason', 'fan')
        out, _ = self.fence('east')
        self.assertIn('east is fenced already, with the reason '
                      f'"{fencing.REASON}: fan"', out)
        self.assertEqual(1, len(self.cloud.changes))

    def test_the_reason_of_another_fence(self):
        self.fence('east', '--reason', 'fan')
        for _ in range(2):
            self.fence('east', '--reason', 'mainboard')
        self.assertEqual(
            [f'{fencing.REASON}: fan', f'{fencing.REASON}: mainboard'],
            [change['disabled_reason'] for change in self.cloud.changes])
        # That of a drain stays.
        self.east(disabled_reason='new memory')
        self.fence('east', '--reason', 'fan')
        self.assertEqual(2, len(self.cloud.changes))

    def test_another_tool_has_forced_it_down_and_not_disabled_it(self):
        self.east(forced_down=True)
        self.fence('east')
        self.assertEqual(
            [{'status': 'disabled', 'disabled_reason': fencing.REASON}],
            self.cloud.changes)

    def test_one_that_is_up(self):
        self.east(state='up')
        err = self.refused('east')
        self.assertIn('east is up', err)
        self.assertIn('--powered-off east', err)

    def test_said_twice(self):
        self.east(state='up')
        self.fence('east', '--powered-off', 'East')
        self.assertEqual(1, len(self.cloud.changes))

    def test_said_of_another(self):
        self.east(state='up')
        self.assertIn('--powered-off names west',
                      self.refused('east', '--powered-off', 'west'))

    def test_one_that_has_left_another_spelling_behind(self):
        self.cloud.services.insert(0, clouds.service('East', state='down'))
        self.east(updated_at='2025-01-01T00:00:00.000000')
        self.cloud.services[1].update(state='up')
        for name in 'East', 'east':
            self.assertIn('east is up', self.refused(name))

    def test_all_are_down(self):
        self.west(state='down')
        self.assertIn('RabbitMQ', self.refused('east'))
        self.fence('east', '--powered-off', 'east')

    def test_no_such_host(self):
        self.assertIn('east, west', self.refused('nix'))

    def test_nova_does_not_do_it(self):
        self.cloud.http.put(clouds.CHANGE, status_code=500)
        err = self.refused('east')
        self.assertIn('HTTP 500', err)

    def test_tries_again_until_nova_answers(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-services', **GONE)
        self.after(30, self.answer)
        out, err = self.fence('east', '--retry', '60')
        self.assertEqual(30, self.now)
        self.assertIn('east is forced down', out)
        self.assertEqual(1, err.count('nova does not answer at'))

    def test_tries_again_until_nova_calls_it_down(self):
        self.east(state='up')
        self.after(40, lambda: self.east(state='down'))
        _, err = self.fence('east', '--retry', '60')
        self.assertEqual(40, self.now)
        self.assertEqual(1, err.count('east is up'))

    def test_tries_again_and_gives_up(self):
        self.cloud.http.put(clouds.CHANGE, status_code=503)
        err = self.refused('east', '--retry', '12')
        self.assertEqual(12, self.now)
        self.assertIn('HTTP 503', err.splitlines()[-1])

    def test_what_does_not_pass_is_not_tried_again(self):
        for answer in 401, 403:
            self.cloud.http.get(f'{clouds.NOVA}/os-services',
                                status_code=answer)
            self.refused('east', '--retry', '60')
        self.answer()
        self.assertIn('east, west', self.refused('nix', '--retry', '60'))
        self.assertEqual(0, self.now)

    def test_waits_until_others_have_it_all(self):
        self.after(4, self.move, 'n-0')
        self.after(10, self.move, 'n-1')
        out, _ = self.fence('east', '--wait', '60')
        self.assertEqual([
            'after 0 s: 1 server and 1 free node left',
            '  west takes 1 server and 1 free node',
            'after 4 s: 0 servers and 1 free node left',
            'after 10 s: 0 servers and 0 free nodes left',
            'east has nothing left: others have it all'],
            out.splitlines()[1:])
        self.assertEqual(10, self.now)

    def test_gives_up_waiting(self):
        out, _ = self.fence('east', '--wait', '12', status=1)
        self.assertEqual(12, self.now)
        self.assertIn('instance_takeover = never', out.splitlines()[-1])

    def test_what_stays_is_told(self):
        self.cloud.migrations = [('s-0', 'east', 'accepted')]
        self.after(4, self.move, 'n-1')
        out, _ = self.fence('east', '--wait', '12', status=1)
        self.assertEqual(1, out.count('migration is over'))
        self.assertIn('(s-0)', out)
        self.assertEqual(12, self.now)

    def test_what_stays_only_later_is_told_then(self):
        self.after(4, self.move, 'n-1')
        self.after(8, self.cloud.migrations.append,
                   ('s-0', 'east', 'accepted'))
        out, _ = self.fence('east', '--wait', '12', status=1)
        [told] = [i for i, line in enumerate(out.splitlines())
                  if 'migration is over' in line]
        self.assertLess(3, told)

    def test_waits_for_nobody(self):
        self.move('n-0', 'n-1')
        self.cloud.servers[0]['OS-EXT-SRV-ATTR:host'] = 'east'
        self.cloud.nodes[0]['instance_uuid'] = None
        out, _ = self.fence('east', '--wait', '600', status=1)
        self.assertEqual(2, self.now)
        self.assertIn('Ironic holds no node', out)
        self.assertNotIn('instance_takeover', out)

    def test_it_is_alive(self):
        for seconds in 10, 20:
            self.after(seconds, self.beat)
        out, err = self.fence('east', '--wait', '30', status=2)
        self.assertIn('ALIVE', err)
        self.assertIn('Power it off', err)
        self.assertEqual(20, self.now)

    def test_a_last_heartbeat_that_was_under_way(self):
        self.after(2, self.beat)
        self.fence('east', '--wait', '12', status=1)

    def test_somebody_takes_it_back_meanwhile(self):
        self.after(10, lambda: self.east(forced_down=False))
        err = self.fence('east', '--wait', '30', status=2)[1]
        self.assertIn('somebody else has taken back', err)

    def test_an_api_that_fails(self):
        self.cloud.http.get(f'{clouds.IRONIC}/nodes', **GONE)
        _, err = self.fence('east', '--wait', '30', status=2)
        self.assertIn('Ironic does not answer at', err)

    def test_dry_run(self):
        out, _ = self.fence('east', '--dry-run')
        self.assertEqual([
            'east has 1 server and 1 free node',
            '  west takes 1 server and 1 free node',
            '  if [ironic_multihost]instance_takeover is not "never", which '
            'does not show from here'], out.splitlines())
        self.assertEqual([], self.cloud.changes)

    def test_dry_run_of_what_would_stay(self):
        self.west(state='down')
        out, err = self.fence('east', '--dry-run', status=2)
        self.assertIn('1 server (s-0) stays because no other', out)
        self.assertIn('It is refused now: No compute service is up', err)
        self.assertNotIn('"never"', out)

    def test_dry_run_of_one_that_is_up(self):
        self.east(state='up')
        out, err = self.fence('east', '--dry-run', status=2)
        self.assertIn('west takes 1 server and 1 free node', out)
        self.assertIn('It is refused now: east is up', err)

    def test_zones_count(self):
        self.cloud.aggregates = [('here', ['east']), ('there', ['west'])]
        self.assertIn('1 server (s-0) stays',
                      self.fence('east', '--dry-run', status=1)[0])
        status, *_ = self.shell(
            '--move-across-zones', 'fence', 'east', '--dry-run')
        self.assertEqual(0, status)
        self.assertIn('1 server (s-0) stays',
                      self.fence('east', '--wait', '12', status=1)[0])

    def test_help_teaches(self):
        out, _ = self.fence('--help')
        for words in ('POWER ITS MACHINE OFF FIRST', 'examples:',
                      'exit status: 0 done', '--powered-off'):
            self.assertIn(words, out)


class SilentTestCase(waiting.WaitingTestCase):

    def setUp(self):
        super().setUp()
        self.east(state='down')

    def silent(self, *argv, status=0):
        """Run the command: standard output, and standard error."""
        for url in clouds.IRONIC, clouds.PLACEMENT:
            self.cloud.http.get(url, **GONE)
        told = self.shell('silent', 'east', *argv)
        self.assertEqual(status, told[0], told)
        self.assertEqual([], self.cloud.changes)
        return told[1:]

    def test_alone_all_the_time(self):
        out, err = self.silent('--for', '300')
        self.assertIn('east is silent', out)
        self.assertEqual('', err)
        self.assertEqual(300, self.now)
        self.assertNotIn('/os-hypervisors/detail', self.cloud.asked)

    def test_it_is_not_silent(self):
        for state in ({'state': 'up'}, {'status': 'disabled'},
                      {'forced_down': True}):
            self.east(**{'state': 'down', 'status': 'enabled',
                         'forced_down': False} | state)
            out, err = self.silent(status=1)
            self.assertIn('east is not silent: it is ', out)
            self.assertEqual('', err)

    def test_silence_ends(self):
        self.after(100, self.east, state='up')
        out, _ = self.silent('--for', '300', status=1)
        self.assertIn('is not silent', out)
        self.assertEqual(100, self.now)

    def refused(self, *argv):
        out, err = self.silent(*argv, status=2)
        self.assertEqual('', out)
        return err

    def test_others_are_silent(self):
        self.after(100, self.west, state='down')
        self.assertIn('it misses west', self.refused('--for', '300'))
        self.assertEqual(100, self.now)

    def test_one_was_fenced_by_the_clock_of_nova(self):
        self.cloud.services += [
            clouds.service('north'),
            clouds.service('south', **FENCED)]
        services = self.cloud._services

        def at(moment):
            def answer(request, context):
                context.headers['Date'] = moment
                return services(request, context)

            self.cloud.http.get(f'{clouds.NOVA}/os-services', json=answer)

        at('Thu, 01 Jan 2026 00:50:00 GMT')
        self.assertIn('south was fenced within 3600 s', self.refused())
        self.silent('--within', '600')
        at('Thu, 01 Jan 2026 01:01:00 GMT')
        self.silent()

    def test_a_heartbeat_came(self):
        self.after(100, self.beat)
        self.assertIn('a heartbeat came', self.refused('--for', '300'))
        self.assertEqual(100, self.now)

    def test_it_never_sent_a_heartbeat(self):
        self.east(updated_at=None)
        self.assertIn('never had a heartbeat of east', self.refused())

    def test_the_cell_of_another_is_away(self):
        self.cloud.services += [
            clouds.service(host) for host in ('north', 'far-1', 'far-2')]

        def go_away():
            self.cloud.away = {'far-1', 'far-2'}

        self.after(100, go_away)
        self.assertIn('the cell of far-1, far-2. Mend',
                      self.refused('--for', '300'))
        self.assertEqual(100, self.now)

    def test_virtual_machines_while_the_cell_of_another_is_away(self):
        self.cloud.servers[:] = [clouds.server('s-1', 'east', 'hypervisor-7')]
        self.assertIn('east has virtual machines', self.refused())
        self.cloud.services += [clouds.service('north'), clouds.service('far')]
        self.cloud.away = {'far'}
        self.assertIn('the cell of far. Mend', self.refused())

    def test_not_known(self):
        self.cloud.away = {'east'}
        self.assertIn('does not reach', self.refused())
        self.cloud.http.get(f'{clouds.NOVA}/os-services', status_code=500)
        self.assertIn('HTTP 500', self.refused())

    def test_a_host_of_virtual_machines(self):
        self.cloud.servers = [clouds.server('s-1', 'east', 'vm-host')]
        self.assertIn('has virtual machines', self.refused())

    def test_no_such_host(self):
        self.assertEqual(2, self.shell('silent', 'north')[0])


class UnfenceTestCase(waiting.WaitingTestCase):

    def setUp(self):
        super().setUp()
        self.east(**FENCED)

    def unfence(self, *argv, status=0):
        told = self.shell('unfence', 'east', *argv)
        self.assertEqual(status, told[0], told)
        return told[1] + told[2]

    def start(self):
        for seconds in range(10, 50, 10):
            self.after(seconds, self.beat)

    def test_one_that_runs(self):
        self.start()
        self.cloud.servers = []
        self.assertEqual('east is no longer fenced\n', self.unfence())
        self.assertEqual([{'forced_down': False, 'status': 'enabled'}],
                         self.cloud.changes)
        self.assertEqual(20, self.now)

    def test_one_that_does_not_run(self):
        told = self.unfence(status=2)
        self.assertIn('has not heard from east for 60 s', told)
        self.assertIn('Start nova-compute', told)
        self.assertEqual((60, []), (self.now, self.cloud.changes))

    def test_what_operators_write_meanwhile_is_no_heartbeat(self):
        def write(reason):
            self.beat()
            self.east(disabled_reason=reason)

        self.after(10, write, 'mine')
        self.after(20, write, 'no, mine')
        self.assertIn('has not heard from east', self.unfence(status=2))
        self.assertEqual([], self.cloud.changes)

    def test_how_long_it_may_need(self):
        self.after(200, self.beat)
        self.after(210, self.beat)
        self.unfence('--wait', '300')

    def test_answers_that_take_longer_than_it_may_need(self):
        # nova waits for the database of a cell for a minute.
        self.cloud.services += [clouds.service('far')]
        self.cloud.away = {'far'}
        self.cloud.http.get(f'{clouds.NOVA}/os-hypervisors/detail', **GONE)
        services = self.cloud._services

        def slow(request, context):
            self.now += 65
            self.beat()
            return services(request, context)

        self.cloud.http.get(f'{clouds.NOVA}/os-services', json=slow)
        self.assertIn('east is no longer fenced', self.unfence())
        self.assertFalse(self.cloud.services[0]['forced_down'])
        self.assertEqual('enabled', self.cloud.services[0]['status'])

    def test_twice(self):
        self.start()
        self.unfence()
        self.assertIn('east is not fenced: it is enabled', self.unfence())
        self.assertEqual(1, len(self.cloud.changes))

    def test_one_that_was_drained_before(self):
        self.east(disabled_reason='new memory')
        self.start()
        told = self.unfence()
        self.assertEqual([{'forced_down': False}], self.cloud.changes)
        self.assertIn('reason "new memory"', told)
        self.assertIn('undrain east', told)

    def test_somebody_drains_it_meanwhile(self):
        self.start()
        self.after(15, lambda: self.east(disabled_reason='bad NIC'))
        told = self.unfence()
        self.assertEqual([{'forced_down': False}], self.cloud.changes)
        self.assertIn('reason "bad NIC"', told)

    def test_somebody_unfences_it_meanwhile(self):
        self.after(15, lambda: self.east(
            forced_down=False, status='enabled', disabled_reason=None))
        self.assertIn('east is not fenced: it is enabled', self.unfence())
        self.assertEqual([], self.cloud.changes)

    def test_one_that_is_drained_and_not_fenced(self):
        self.east(state='up', forced_down=False, disabled_reason=None)
        told = self.unfence()
        self.assertIn('without a reason', told)
        self.assertEqual([], self.cloud.changes)

    def test_one_that_another_tool_has_unfenced_half(self):
        self.east(state='up', forced_down=False)
        self.unfence()
        self.assertEqual([{'status': 'enabled'}], self.cloud.changes)
        self.assertEqual(0, self.now)

    def test_one_that_is_down_and_not_forced_down(self):
        self.east(forced_down=False)
        self.assertIn('east is down: it takes nothing', self.unfence())
        self.start()
        self.east(**FENCED)
        self.assertNotIn('is down', self.unfence())

    def test_an_api_that_fails(self):
        computes = self.cloud._services
        url = f'{clouds.NOVA}/os-services'

        def fail():
            self.cloud.http.get(url, **GONE)

        self.after(10, fail)
        self.assertIn('nova does not answer at',
                      self.unfence(status=2))
        self.now = 0
        self.cloud.http.get(url, json=computes)
        self.after(10, fail)
        self.after(20, lambda: self.cloud.http.get(url, json=computes))
        self.start()
        self.unfence()

    def test_nova_refuses(self):
        self.start()
        self.cloud.evacuated = {'east'}
        told = self.unfence(status=2)
        self.assertIn('remain associated with the host.', told)
