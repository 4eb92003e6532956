# SPDX-License-Identifier: Apache-2.0

"""Builds that were sent to a compute service that is dead go on elsewhere."""

import time

from nova_ironic_multihost.engine.builds.lost_builds import InFlightBuilds
from nova_ironic_multihost.tests.functional import base
from nova_ironic_multihost.tests.functional import computes
from nova_ironic_multihost.tests.functional import queues


class ForwardingTestCase(base.MultiHostTestCase):
    """host1 has died, and a build waits for it; host2 lives."""

    def setUp(self):
        super().setUp()
        self.nodes = self.ironic.enroll(3)
        self.fleet.start('host1', 'host2')
        self.settle()
        # For a while nova believes that it is up.
        self.fleet.crash('host1')
        self.server = self.request_server('host1')
        self.node, = self.wait_for_allocation(self.server)
        self.wait_for_message()
        self.fleet.lose('host1')
        self.fleet.force_down('host1')
        self.fleet.look('host2')
        self.driver = self.fleet.manager('host2').driver
        self.driver.service.forwarder._queues = queues.FakeQueues()
        # All that happens from now on does on host2.
        self.enterContext(computes.as_host('host2'))

    def wait_for_message(self):
        deadline = time.monotonic() + base.DEADLINE
        while not any(message['method'] == 'build_and_run_instance'
                      for _, message, *_ in queues.queue('host1')):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(base.POLL)

    def test_build_goes_on_on_a_live_host(self):
        self.assertEqual('host1', self.owners()[self.node])
        self.driver.service.forwarder.once()
        server = self.wait_for_status(self.server, 'ACTIVE')
        self.assertEqual('host2', self.host_of(server))
        self.assertEqual(self.node, self.node_of(server))
        self.assertEqual('host2', self.owners()[self.node])
        self.assertEqual([], queues.queue('host1'))
        self.delete(server)

    def test_build_that_has_come_twice_is_carried_out_once(self):
        queues.queue('host1').append(queues.queue('host1')[0])
        self.driver.service.forwarder.once()
        server = self.wait_for_status(self.server, 'ACTIVE')
        self.driver.service.forwarder.once()
        self.assertEqual([], queues.queue('host1'))
        self.assertEqual('ACTIVE', self.wait_for_end(server))
        self.assertEqual({self.node}, set(
            self._get_allocations_by_server_uuid(server['id'])))

    def test_build_that_is_nowhere_ends_and_its_node_is_adopted(self):
        queues.queue('host1').clear()
        self.driver.service.forwarder.once()
        self.fleet.miss('host2', InFlightBuilds.TURNS)
        server = self.show(self.server)
        self.assertEqual('ERROR', server['status'])
        self.assertIn('host1', server['fault']['message'])
        self.fleet.audit('host2')
        self.assertEqual('host2', self.owners()[self.node])
        self.delete(server)
        for _ in self.nodes:
            self.boot('host2')
