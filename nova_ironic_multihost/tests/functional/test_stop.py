# SPDX-License-Identifier: Apache-2.0

"""Computes are told to end, and come back."""

import nova.conf

from nova_ironic_multihost.tests.functional import base

CONF = nova.conf.CONF

DISABLED = 'COMPUTE_STATUS_DISABLED'


class StopTestCase(base.MultiHostTestCase):

    def setUp(self):
        super().setUp()
        self.nodes = self.ironic.enroll(9)
        self.fleet.start('host1', 'host2', 'host3')
        self.before = self.settle()
        self.done = []

    def service(self, host):
        """Return (status, reason) as an operator reads them."""
        found, = self.admin_api.get_services(binary='nova-compute', host=host)
        return found['status'], found['disabled_reason']

    def services(self):
        return {host: self.service(host)
                for host in ('host1', 'host2', 'host3')}

    def assertEnabled(self):
        self.assertEqual({('enabled', None)}, set(self.services().values()))
        for node in self.nodes:
            self.assertNotIn(DISABLED, self._get_provider_traits(node))

    def test_a_restart_moves_no_node(self):
        def others_look():
            status, reason = self.service('host2')
            self.assertEqual('disabled', status)
            self.assertIn('stopping since', reason)
            for _ in range(3):
                self.fleet.look('host1', 'host3')
                self.fleet.audit('host1', 'host3')
            self.done.append(self.owners())

        self.fleet.stop('host2', others_look)
        self.assertEqual([self.before], self.done)
        for _ in range(3):
            self.fleet.look()
            self.fleet.audit()
        self.assertEqual(self.before, self.owners())

        self.fleet.start('host2')
        self.assertEqual(self.before, self.owners())
        self.assertEnabled()
        self.assertEqual(self.before, self.settle())

    def test_builds_go_to_others_at_once(self):
        def boot():
            self.done += [self.host_of(self.boot()) for _ in range(3)]

        self.fleet.stop('host2', boot)
        self.assertEqual(3, len(self.done))
        self.assertNotIn('host2', self.done)
        self.fleet.start('host2')
        self.assertEnabled()

    def test_a_build_in_progress_ends_here(self):
        held = self.fleet.hold_claims('host2')
        server = self.request_server('host2')
        held.arrived()

        def go_on():
            held.release()
            self.done.append(self.wait_for_status(server, 'ACTIVE'))

        self.fleet.stop('host2', go_on)
        self.assertEqual('host2', self.host_of(self.done[0]))
        node = self.node_of(self.done[0])
        self.assertNotIn(DISABLED, self._get_provider_traits(node))
        self.fleet.start('host2')
        self.assertEnabled()
        self.assertEqual('ACTIVE', self.show(server)['status'])

    def test_a_compute_that_ends_takes_nothing(self):
        def another_dies():
            self.fleet.kill('host3')
            self.fleet.look('host2')
            self.fleet.audit('host2')
            self.done.append(self.owners())

        self.fleet.stop('host2', another_dies)
        self.assertEqual([self.before], self.done)

    def test_free_nodes_go_to_others_when_it_takes_long(self):
        server = self.boot('host2')
        used = self.node_of(server)

        def wait():
            self.fleet.look('host1', 'host3')
            for host in ('host1', 'host3'):
                self.fleet.pass_time(host, CONF.service_down_time)
            self.fleet.look('host1', 'host3')
            self.done.append(self.nodes_of('host2'))
            # It is up, and is not in the way.
            self.fleet.look('host2')
            self.fleet.audit('host2')
            self.done.append(self.nodes_of('host2'))
            for node in self.nodes:
                self.assertNotIn(DISABLED, self._get_provider_traits(node))
                self.assertEqual(node == used, self.reserved(node))
            self.done.append({self.host_of(self.boot()) for _ in range(8)})

        self.fleet.stop('host2', wait)
        self.assertEqual([{used}, {used}, {'host1', 'host3'}], self.done)
        self.fleet.start('host2')
        self.assertEnabled()
        self.assertEqual('host2', self.host_of(self.show(server)))

    def test_all_are_restarted_together(self):
        def stop_next():
            self.fleet.stop('host1', lambda: self.fleet.stop(
                'host3', lambda: self.done.append(self.services())))

        self.fleet.stop('host2', stop_next)
        services, = self.done
        for _, reason in services.values():
            self.assertIn('stopping since', reason)
        self.assertEqual(
            ['disabled', 'enabled', 'enabled'],
            sorted(status for status, reason in services.values()))
        self.fleet.start('host1', 'host2', 'host3')
        self.assertEnabled()
        self.assertEqual(self.before, self.settle())

    def test_what_an_operator_disables_stays_so(self):
        self.fleet.disable('host1')
        self.fleet.stop('host1')
        self.assertEqual(('disabled', None), self.service('host1'))
        # And while it ends.
        self.fleet.stop('host2', lambda: self.fleet.disable('host2'))
        self.assertEqual(('disabled', None), self.service('host2'))
        self.fleet.start('host1', 'host2')
        self.fleet.look()
        for host in ('host1', 'host2'):
            self.assertEqual(('disabled', None), self.service(host))

    def test_farewell_of_a_process_that_was_killed_is_heard_late(self):
        words = self.said_by('host2')
        self.fleet.kill('host2')
        self.fleet.start('host2')
        self.assertEnabled()
        service = self.fleet._running['host2'].service_ref
        service.disabled, service.disabled_reason = True, words
        service.save()
        self.fleet.look('host2')
        self.assertEnabled()

    def said_by(self, host):
        with self.fleet._as(host):
            self.fleet.manager(host).driver.service.end()
            self.fleet.manager(host).driver.service.shutdown.wait()
        return self.service(host)[1]


class LastTestCase(base.MultiHostTestCase):

    def test_the_only_compute_is_open_for_builds(self):
        """They wait in its queue, and are not set to ERROR."""
        self.ironic.enroll(2)
        self.fleet.start('host1')
        seen = []

        def look():
            found, = self.admin_api.get_services(binary='nova-compute')
            seen.append(found['status'])

        self.fleet.stop('host1', look)
        self.assertEqual(['enabled'], seen)
