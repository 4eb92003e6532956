# SPDX-License-Identifier: Apache-2.0

import datetime

from oslotest import base

from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.rules.views import view

ME, OTHER, DEAD = HostKey('me'), HostKey('other'), HostKey('dead')


def at(minute):
    return datetime.datetime(2026, 11, 23, 1, minute, tzinfo=datetime.UTC)


def asked(name, minute, failed=False, ended=None):
    """Return an action; nova looks for a machine at once.

    :param ended: the minute in which it has found none, None if that is not
        noted.
    """
    return evacuation.EvacuationAction(
        name,
        at(minute),
        failed,
        lambda: [
            evacuation.EvacuationEvent(
                evacuation.SCHEDULED, at(minute), ended and at(ended)),
            evacuation.EvacuationEvent(
                evacuation.REBUILT, at(minute), at(minute)),
        ],
    )


class InterruptedTestCase(base.BaseTestCase):

    def interrupted(self, task_state, last):
        return evacuation.interrupted(task_state, lambda: last)

    def test_an_evacuation_is_nothing(self):
        for task_state in ('rebuilding',
                           takeover.taking('rebuilding', OTHER),
                           takeover.taken('rebuilding', ME)):
            self.assertIsNone(self.interrupted(task_state, 'evacuate'))

    def test_a_rebuild_is_one(self):
        for last in 'rebuild', None:
            self.assertEqual('rebuilding', self.interrupted(
                takeover.taken('rebuilding', ME), last))
        # Nor does an evacuation get as far as that.
        self.assertEqual('rebuild_spawning', self.interrupted(
            'rebuild_spawning', 'evacuate'))

    def test_what_it_was_asked_for_does_not_matter_else(self):
        for task_state in None, 'deleting', 'powering-off':
            self.assertEqual(task_state, evacuation.interrupted(
                takeover.taken(task_state, ME), self.fail))


class AskedLastTestCase(base.BaseTestCase):

    def asked(self, *names, over=True):
        """Return the answer for actions, the latest first."""
        events = [
            evacuation.EvacuationEvent(name, at(1), at(2) if ended else None)
            for name, ended in (
                (evacuation.SCHEDULED, True),
                (evacuation.REBUILT, over),
            )
        ]
        return evacuation.asked_last([
            evacuation.EvacuationAction(name, at(0), events=lambda: events)
            for name in names])

    def test_the_last_of_both(self):
        self.assertIsNone(self.asked())
        self.assertIsNone(self.asked('stop', 'create'))
        for before in [], ['stop'], ['reboot', 'stop']:
            self.assertEqual('rebuild', self.asked(*before, 'rebuild'))
        for before in [], ['stop'], ['evacuate']:
            for rest in [], ['create'], ['rebuild', 'create']:
                self.assertEqual(
                    'evacuate', self.asked(*before, 'evacuate', *rest))

    def test_a_rebuild_that_is_not_over_is_still_to_be(self):
        for evacuated in 1, 3:
            self.assertEqual('rebuild', self.asked(
                *['evacuate'] * evacuated, 'rebuild', 'create', over=False))

    def test_a_rebuild_that_something_was_asked_for_after_is_over(self):
        """nova's API accepts nothing else of one that is rebuilt."""
        self.assertEqual('evacuate', self.asked(
            'evacuate', 'stop', 'rebuild', over=False))


class SurplusTestCase(base.BaseTestCase):

    def test_all_but_its_own_machine(self):
        self.assertEqual({'n2', 'n3'}, evacuation.surplus(
            'n1', {'n1', 'n2', 'n3'}))
        self.assertEqual({'n2'}, evacuation.surplus('n1', {'n2'}))
        self.assertEqual(set(), evacuation.surplus('n1', {'n1'}))

    def test_one_that_is_on_its_way_to_a_machine(self):
        self.assertEqual(set(), evacuation.surplus(None, {'n1'}))


class LeftByTestCase(base.BaseTestCase):

    def states(self, vm_state, task_state, actions, faults=(),
               machine='active'):
        return evacuation.left_by(
            vm_state, task_state, actions, map(at, faults), lambda: machine)

    def test_task_state_is_taken_away(self):
        for vm_state in 'active', 'stopped', 'error':
            self.assertEqual((vm_state, None), self.states(
                vm_state, 'rebuilding',
                [asked('evacuate', 5), asked('rebuild', 3)]))

    def test_that_of_a_rebuild_stays(self):
        self.assertEqual(('active', 'rebuilding'), self.states(
            'active', 'rebuilding',
            [asked('rebuild', 7), asked('evacuate', 5)]))

    def test_what_is_none_of_its_stays(self):
        for task_state in (None, 'powering-off', 'rebuild_spawning',
                           takeover.taken('rebuilding', ME)):
            self.assertEqual(('active', task_state), self.states(
                'active', task_state, [asked('evacuate', 5)]))

    def test_error_that_it_has_brought(self):
        for actions in ([asked('evacuate', 5, True), asked('create', 1)],
                        [asked('evacuate', 6, True),
                         asked('evacuate', 5, True), asked('start', 3)]):
            for machine in 'active', 'stopped':
                self.assertEqual((machine, None), self.states(
                    'error', None, actions, [6, 5], machine))

    def test_clocks_of_api_and_conductors_do_not_agree(self):
        """Each fault is compared with what its own conductor wrote."""
        for ahead in -29, -2, -1, 1, 2, 29:
            first = evacuation.EvacuationAction(
                'evacuate',
                at(30),
                True,
                lambda: [
                    evacuation.EvacuationEvent(
                        evacuation.SCHEDULED, at(30 + ahead), at(30 + ahead))
                ],
            )
            second = evacuation.EvacuationAction(
                'evacuate',
                at(31),
                True,
                lambda: [
                    evacuation.EvacuationEvent(
                        evacuation.SCHEDULED, at(31), at(32))
                ],
            )
            self.assertEqual(('active', None), self.states(
                'error', None, [second, first, asked('create', 29)],
                [31, 30 + ahead]))

    def test_error_of_before_a_search_or_after_it_stays(self):
        for fault in 4, 8:
            self.assertEqual(('error', None), self.states(
                'error', None,
                [asked('evacuate', 5, ended=7), asked('create', 1)],
                [6, fault]))

    def test_error_that_was_overcome_before(self):
        self.assertEqual(('active', None), self.states(
            'error', None, [asked('evacuate', 5), asked('reboot', 4)],
            [5, 3]))

    def test_error_of_before_stays(self):
        for actions, faults in (
                # Something had failed.
                ([asked('evacuate', 5), asked('rebuild', 3, True)], [5]),
                ([asked('evacuate', 5), asked('rebuild', 3)], [5, 4]),
                # Nobody knows what it was before.
                ([asked('evacuate', 5)], [5]),
                ([], []),
                # It was asked for something since.
                ([asked('reboot', 6), asked('evacuate', 5),
                  asked('create', 1)], [5]),
                # No fault has come of the evacuation: somebody has set it.
                ([asked('evacuate', 5), asked('create', 1)], [])):
            self.assertEqual(('error', None), self.states(
                'error', None, actions, faults))

    def test_error_of_a_server_whose_machine_says_nothing(self):
        self.assertEqual(('error', None), self.states(
            'error', None, [asked('evacuate', 5), asked('create', 1)], [5],
            None))

    def test_error_that_an_operator_has_set(self):
        self.assertEqual('error', self.left_by_actions(
            asked('evacuate', 5), asked('resetState', 4)))
        self.assertEqual('active', self.left_by_actions(
            asked('evacuate', 5), asked('stop', 4)))

    def left_by_actions(self, *actions):
        return evacuation.left_by(
            'error', None, actions, [at(6)], lambda: 'active')[0]

    def test_error_under_a_mark(self):
        mark = takeover.taken(None, ME)
        self.assertEqual(('active', mark), evacuation.left_by(
            'error', mark, [asked('evacuate', 5), asked('stop', 4)], [at(6)],
            lambda: 'active'))

    def test_server_that_does_something_by_now(self):
        self.assertEqual(('error', 'deleting'), self.states(
            'error', 'deleting',
            [asked('evacuate', 5), asked('create', 1)], [5]))

    def test_machine_is_looked_at_only_if_it_matters(self):
        for vm_state, actions in (
                ('active', [asked('evacuate', 5), asked('create', 1)]),
                ('error', [asked('evacuate', 5)])):
            evacuation.left_by(vm_state, None, actions, [at(5)], self.fail)


class RefuserTestCase(base.BaseTestCase):

    def test_owner_of_the_node_while_it_is_up(self):
        preferences = ring.Preferences({ME: None}, 32)
        self.assertEqual(OTHER, evacuation.refuser(
            OTHER, 'n', view(['me', 'other']), preferences))

    def test_else_one_of_the_others(self):
        preferences = ring.Preferences({ME: None, OTHER: None}, 32)
        seen = view(['me', 'other'], fenced=['dead'])
        chosen = {evacuation.refuser(DEAD, f'node-{i}', seen, preferences)
                  for i in range(50)}
        self.assertEqual({ME, OTHER}, chosen)

    def test_nobody(self):
        seen = view(['me'], dead=['dead'])
        self.assertIsNone(evacuation.refuser(DEAD, 'n', seen, None))
        self.assertIsNone(evacuation.refuser(
            None, 'n', seen, ring.Preferences({}, 32)))
