# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from keystoneauth1 import exceptions
from oslotest import base

from lab.bench import operations
from lab import errors
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.tests import views


class Cloud:
    """A nova whose server goes through some states, look by look.

    :param looks: (status, task_state) pairs, or None for a server that is
        gone; the last one stays
    """

    def __init__(self, *looks, refused=False):
        self._peer_poller = list(looks)
        self._refused = refused
        self.asked = []

    def compute_services(self):
        return {}

    def nova(self, method, path, json=None, microversion=None):
        if method != 'GET':
            if self._refused:
                raise exceptions.Conflict('busy')
            self.asked.append((method, path, json, microversion))
            return None
        look = (
            self._peer_poller.pop(0)
            if len(self._peer_poller) > 1
            else self._peer_poller[0])
        if look is None:
            raise exceptions.NotFound()
        status, task = look
        return {'server': {'status': status, 'OS-EXT-STS:task_state': task,
                           'fault': {'message': 'broken'}}}


class OperatorTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.held = False

    def sleep(self, seconds):
        self.now += 1.0

    def operator(self, cloud):
        return operations.Operator(
            cloud, lambda server: self.held, bound=30.0,
            clock=lambda: self.now, sleep=self.sleep)

    def do(self, operation, *looks, **more):
        return self.operator(Cloud(*looks, **more)).do('s', operation)

    def test_seconds_until_nothing_goes_on(self):
        outcome = self.do(operations.REBOOT, ('HARD_REBOOT', 'rebooting_hard'),
                          ('HARD_REBOOT', 'rebooting_hard'), ('ACTIVE', None))
        self.assertEqual(operations.Outcome(2.0), outcome)

    def test_what_hangs_is_given_up(self):
        outcome = self.do(operations.STOP, ('ACTIVE', 'powering-off'))
        self.assertIsNone(outcome.seconds)
        self.assertEqual('ACTIVE, in powering-off', outcome.why)
        self.assertEqual(31.0, self.now)

    def test_what_is_done_has_the_right_status(self):
        self.assertIsNone(
            self.do(operations.STOP, ('ACTIVE', None)).seconds)

    def test_refused(self):
        outcome = self.do(operations.STOP, ('ACTIVE', None), refused=True)
        self.assertIsNone(outcome.seconds)
        self.assertIn('refused', outcome.why)

    def test_an_error_is_not_waited_for(self):
        outcome = self.do(operations.STOP, ('ERROR', None))
        self.assertEqual(operations.Outcome(None, 'ERROR: broken'), outcome)
        self.assertEqual(0.0, self.now)

    def test_deleted_when_the_machine_is_free_too(self):
        self.assertEqual(0.0, self.do(operations.DELETE, None).seconds)
        self.held = True
        outcome = self.do(operations.FORCE_DELETE, None)
        self.assertEqual('gone, its machine is held', outcome.why)

    def test_a_server_that_is_gone_cannot_be_stopped(self):
        self.assertIn('gone', self.do(operations.STOP, None).why)

    def test_a_chain_ends_with_what_is_not_done(self):
        found = self.operator(Cloud(('ACTIVE', None))).chains([
            ('s', [operations.REBOOT, operations.STOP, operations.START]),
            ('t', [operations.SOFT_REBOOT])])
        self.assertEqual(['reboot', 'stop', 'start', 'soft reboot'],
                         list(found))
        seconds = operations.seconds(found)
        self.assertEqual((None, None), (seconds['stop'], seconds['start']))
        self.assertNotIn(None, (seconds['reboot'], seconds['soft reboot']))
        self.assertEqual({'stop': 'ACTIVE', 'start': 'not tried'},
                         operations.not_done(found))


class BootTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.bench = mock.Mock()
        self.bench.recorder.view = self.seen()

    @staticmethod
    def seen(reserved=0):
        """All nodes, and how much of one is kept back from placement."""
        seen = views.consistent()
        for i in range(6):
            seen = views.changed(seen, 'providers', i, total=1, reserved=0)
        return views.changed(seen, 'providers', 4, reserved=reserved)

    def boot(self, labels):
        self.bench.cloud.create.side_effect = [f's-{x}' for x in labels]
        return operations.boot_on(self.bench, 'compute-2', labels, 'x')

    def end(self, vm_state):
        """What the view shows of both servers when they have settled."""
        seen = self.seen()
        for uuid in ('s-a', 's-b'):
            seen = views.with_more(seen, 'instances', cloud_state.CloudServer(
                uuid=uuid, vm_state=vm_state))

        def wait_for(condition, timeout, what):
            self.assertFalse(condition(self.bench.recorder.view))
            self.bench.recorder.view = seen
            self.assertTrue(condition(seen))

        self.bench.recorder.wait_for.side_effect = wait_for

    def test_each_on_a_node_of_its_own(self):
        self.end('active')
        self.assertEqual({'a': ('s-a', 'node-1'), 'b': ('s-b', 'node-4')},
                         self.boot(['a', 'b']))

    def test_too_few_nodes(self):
        # One of its two is being cleaned.
        self.bench.recorder.view = self.seen(reserved=1)
        error = self.assertRaises(errors.LabError, self.boot, ['a', 'b'])
        self.assertIn('has 1 free nodes and 2 are needed', str(error))

    def test_one_that_fails(self):
        self.end('error')
        self.assertRaises(errors.LabError, self.boot, ['a', 'b'])


class UsableTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.seen = views.offered()
        self.nodes = ['node-1', 'node-4']

    def usable(self, host='', **changes):
        seen = self.seen
        for field, (index, change) in changes.items():
            seen = views.changed(seen, field, index, **change)
        return operations.usable(seen, self.nodes, host)

    def test_offered_by_a_live_compute(self):
        self.assertTrue(self.usable())
        self.assertTrue(self.usable('Compute-1'))

    def test_still_where_they_were(self):
        self.assertFalse(self.usable('Compute-2'))

    def test_compute_that_gets_no_builds(self):
        for change in ({'up': False}, {'disabled': True}, {'mapped': False}):
            self.assertFalse(self.usable(services=(1, change)), change)

    def test_placement_does_not_offer_it(self):
        for change in ({'reserved': 1}, {'total': 0}):
            self.assertFalse(self.usable(providers=(4, change)), change)
