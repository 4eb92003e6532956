# SPDX-License-Identifier: Apache-2.0

import logging

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.servers import evacuation_refusals
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.tests.unit.rules.views import view

ME, OTHER = HostKey('me'), HostKey('other')


class RefusalsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.left = {}
        #: Those that were refused shortly before.
        self.settled = {}
        self.refused = []
        self.looks = 0
        self.answers = True
        self.preferences = ring.Preferences({ME: None}, 32)
        self.refusals = evacuation_refusals.EvacuationRefusals(
            'Me', self, lambda: self.preferences)
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))

    # The evacuations.

    def found(self):
        self.looks += 1
        return {uuid: evacuation.Evacuated(
            record, frozenset({f'evacuation of {uuid}'}))
            for uuid, record in self.left.items()} | self.settled

    def refuse(self, uuid):
        self.refused.append(uuid)
        if not self.answers:
            raise OSError('no answer')
        return self.left.pop(uuid, None) is not None

    def sweep(self, looks=1, seen=None):
        for _ in range(looks * evacuation_refusals.SWEEPS):
            self.refusals.sweep(seen or view(['me', 'other'], ['dead']))

    def test_what_is_sent_here_is_refused_at_once(self):
        self.left['i1'] = Record('n', 'dead')
        self.refusals.refuse('i1')
        self.assertEqual(['i1'], self.refused)
        self.assertIn(evacuation.REFUSED, self.log.output)

    def test_what_was_refused_before_is_no_news(self):
        self.refusals.refuse('i1')
        self.assertEqual(['i1'], self.refused)
        self.assertEqual('', self.log.output)

    def test_what_fails_is_repeated(self):
        """Also if nothing but the machine is left to be freed."""
        self.answers = False
        self.refusals.refuse('i1')
        self.assertIn('no answer', self.log.output)
        self.refusals.sweep(view(['me', 'other'], ['dead']))
        self.assertEqual(['i1'] * 2, self.refused)
        self.assertEqual(1, self.log.output.count('no answer'))
        self.answers = True
        self.sweep(3)
        self.assertEqual(['i1'] * 3, self.refused)

    def test_what_nobody_refuses_is_refused_later(self):
        self.left['i1'] = Record('n', 'dead')
        self.sweep()
        self.assertEqual([], self.refused)
        self.sweep(3)
        self.assertEqual(['i1'], self.refused)

    def test_what_is_new_may_be_on_its_way(self):
        for number in range(5):
            self.left = {f'i{number}': Record('n', 'dead')}
            self.sweep()
        self.assertEqual([], self.refused)

    def test_what_was_refused_just_now_is_undone_again(self):
        """nova's conductor may come to it later."""
        self.settled['i1'] = evacuation.Evacuated(
            Record('n', 'dead'), frozenset())
        self.sweep(2)
        self.assertEqual(['i1'] * 2, self.refused)
        self.assertEqual('', self.log.output)

    def test_another_evacuation_is_not_the_one_that_was_seen(self):
        for number in range(5):
            self.settled = {'i1': evacuation.Evacuated(
                Record('n', 'dead'), frozenset({str(number)}))}
            self.sweep()
        self.assertEqual([], self.refused)
        # The older one of two is.
        self.settled['i1'] = evacuation.Evacuated(
            Record('n', 'dead'), frozenset({'4', '5'}))
        self.sweep()
        self.assertEqual(['i1'], self.refused)

    def test_one_that_fails_holds_up_no_other(self):
        self.answers = False
        self.left = {'i1': Record('n', 'dead'), 'i2': Record('n', 'dead')}
        self.sweep(2)
        self.assertEqual(['i1', 'i2'], self.refused[:2])

    def test_what_is_left_to_others(self):
        self.left['i1'] = Record('n', 'other')
        self.sweep(3)
        self.preferences = ring.Preferences({OTHER: None}, 32)
        self.left['i2'] = Record('n', 'dead')
        self.sweep(3)
        self.assertEqual([], self.refused)
        # What is mine is not.
        self.left['i3'] = Record('n', 'me')
        self.sweep(2)
        self.assertEqual(['i3'], self.refused)

    def test_who_is_fenced_or_has_not_looked_does_nothing(self):
        self.left['i1'] = Record('n', 'dead')
        self.sweep()
        self.sweep(3, view(['other'], fenced=['me']))
        for _ in range(3 * evacuation_refusals.SWEEPS):
            self.refusals.sweep(None)
        self.assertEqual(1, self.looks)
        self.sweep()
        self.assertEqual([], self.refused)
        self.sweep()
        self.assertEqual(['i1'], self.refused)

    def test_preferences_that_are_not_known_yet(self):
        self.preferences = None
        self.left['i1'] = Record('n', 'dead')
        self.sweep(3)
        self.assertEqual([], self.refused)
