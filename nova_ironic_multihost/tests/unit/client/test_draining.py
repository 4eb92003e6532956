# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import draining
from nova_ironic_multihost.client import forecast
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.tests import views

SETTINGS = ownership_report.SharedSettings(1024)

STOP_MARKER = liveness.stop_marker_text(datetime.datetime(2026, 5, 4))


class RefusalTestCase(base.BaseTestCase):

    def refusal(self, *states):
        known = tuple(
            cloud_state.Service(f'compute-{i}', **state)
            for i, state in enumerate(states))
        return draining.refusal(known, known[0])

    def test_another_one_is_enabled_and_up(self):
        self.assertIsNone(self.refusal({}, {}))

    def test_it_is_the_last_one(self):
        for others in ([], [{'up': False}],
                       [{'up': False, 'disabled': True}]):
            told = self.refusal({}, *others)
            self.assertIn('Besides compute-0 no compute service', told)
            self.assertIn('start another one first', told)
            self.assertIn('--even-if-last', told)

    def test_whom_to_enable(self):
        self.assertIn('undrain compute-1',
                      self.refusal({}, {'disabled': True}, {'up': False}))

    def test_nobody_takes_the_nodes_of_one_that_has_no_builds(self):
        for state in {'disabled': True}, {'up': False}:
            self.assertIsNone(self.refusal(state, {}))
            self.assertIn('undrain compute-1',
                          self.refusal(state, {'disabled': True}))

    def test_an_outage_looks_like_the_death_of_all(self):
        for others in [], [{'up': False}]:
            self.assertIn('Look at RabbitMQ, nova-conductor',
                          self.refusal({'up': False}, *others))


class WantedTestCase(base.BaseTestCase):

    def wanted(self, reason=None, **state):
        return draining.wanted(cloud_state.Service('h', **state), reason)

    def test_one_that_is_enabled(self):
        self.assertEqual(
            {'status': 'disabled', 'disabled_reason': draining.REASON},
            self.wanted())
        self.assertEqual(
            {'status': 'disabled', 'disabled_reason': 'mine'},
            self.wanted('mine'))

    def test_one_that_is_drained(self):
        self.assertEqual({}, self.wanted(disabled=True))

    def wanted_again(self, reason, there):
        return draining.wanted(
            cloud_state.Service('h', disabled=True, reason=there), reason)

    def test_another_reason(self):
        self.assertEqual({}, self.wanted_again('mine', 'mine'))
        self.assertEqual({}, self.wanted_again(None, 'mine'))
        self.assertEqual({'status': 'disabled', 'disabled_reason': 'new'},
                         self.wanted_again('new', 'mine'))

    def test_one_that_was_told_to_end(self):
        # Its next start would enable it.
        self.assertEqual(
            {'status': 'disabled', 'disabled_reason': draining.REASON},
            self.wanted(disabled=True, stop_marker=STOP_MARKER))


class LeftTestCase(base.BaseTestCase):
    """Of compute-2, which has node-1 and node-4."""

    def setUp(self):
        super().setUp()
        self.seen = views.changed(
            views.consistent(), 'services', 1, disabled=True)
        them = forecast.Successors(self.seen, 'compute-2', SETTINGS)
        self.heirs = [them.of_node('node-1'), them.of_node('node-4')]

    def change(self, field, index, **changes):
        self.seen = views.changed(self.seen, field, index, **changes)

    def left(self):
        return draining.left(self.seen, 'Compute-2', SETTINGS)

    def told(self):
        return list(draining.sentences(self.left()))

    def test_free_nodes_that_others_prefer(self):
        found = self.left()
        self.assertEqual(2, found.free)
        self.assertEqual({host: self.heirs.count(host)
                          for host in self.heirs}, found.waits)
        [told] = self.told()
        self.assertIn('2 nodes are free and on the way: compute-', told)

    def test_names_are_those_of_nova(self):
        self.change('services', 0, host='Compute-1')
        self.change('services', 2, up=False)
        self.assertEqual({'Compute-1': 2}, self.left().waits)
        self.assertIn('on the way: Compute-1 2', self.told()[0])

    def test_nodes_with_servers_stay(self):
        self.change('nodes', 1, instance_uuid='s')
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer('s'))
        found = self.left()
        self.assertEqual((1, 1, 0), (
            found.free, found.serving, found.strays))
        self.assertIn('1 node is with servers: they stay', self.told()[1])

    def test_machines_that_leaked_are_not_with_servers(self):
        self.change('nodes', 1, instance_uuid='gone')
        self.change('nodes', 4, instance_uuid='unknown')
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(
                'gone', deleted=True))
        found = self.left()
        self.assertEqual((0, 0, 2), (
            found.free, found.serving, found.strays))
        [told] = self.told()
        self.assertIn('2 nodes are held for servers that nova does not have',
                      told)

    def test_nodes_that_a_build_has_claimed_stay(self):
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(
                's', host='compute-2', node='node-1', vm_state='building'))
        self.assertEqual((1, 1), (self.left().free, self.left().serving))

    def test_a_server_that_is_gone_holds_nothing(self):
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(
                's', host='compute-2', node='node-1', deleted=True))
        self.assertEqual((2, 0), (self.left().free, self.left().serving))

    def test_nobody_is_left_to_take_them(self):
        self.change('services', 0, disabled=True)
        self.change('services', 2, up=False)
        found = self.left()
        self.assertEqual((2, {}, 2), (found.free, found.waits, found.stays))
        self.assertIn('nobody may take them', self.told()[0])

    def test_nobody_is_left_in_their_zone(self):
        self.seen = dataclasses.replace(self.seen, zones=(
            ('compute-1', 'here'), ('compute-2', 'there'),
            ('compute-3', 'here')))
        self.assertEqual((2, {}), (self.left().stays, self.left().waits))

    def test_nodes_that_ironic_does_not_show(self):
        self.seen = views.without(self.seen, 'nodes', 1)
        found = self.left()
        self.assertEqual((1, 1), (found.free, found.hidden))
        self.assertIn('Ironic does not show', self.told()[1])

    def test_nothing_is_left(self):
        self.change('records', 1, host='compute-1')
        self.change('records', 4, host='compute-3')
        self.assertEqual(draining.Leftover({}, 0, 0, 0, 0), self.left())
        self.assertEqual(0, self.left().free)
        self.assertEqual([], self.told())
