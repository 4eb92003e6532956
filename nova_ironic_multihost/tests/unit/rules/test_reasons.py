# SPDX-License-Identifier: Apache-2.0

"""Each rule leads to a reason, and each reason comes from a rule."""

from oslotest import base

from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason


#: Reason -> the rules that it comes from, as "nova-ironic-multihost node" and
#: the documentation show them: of nodes that are mine, and of all others.
MINE = {
    'INSTANCE_HERE': (1,), 'TAKEN_OVER': (3,), 'BUILDING': (6,),
    'LEAKED': (4,), 'UNKNOWN': (5,), 'KEPT': (6,), 'CREATED': (7,),
    'ADOPTED': (8,), 'PULLED': (9,), 'UNLISTED': (6,)}
NOT_MINE = {
    'INSTANCE_ELSEWHERE': (2,), 'INSTANCE_OF_DEAD': (3,),
    'INSTANCE_WAITS': (3,), 'TAKEOVER_FAILED': (3, 8), 'ADOPTION_WAITS': (8,),
    'OTHER_PREFERRED': (11,), 'AWAITED': (8,), 'UNANSWERED': (8, 9),
    'STARTING': (3, 4, 5, 8, 9), 'BARRED': (3, 4, 5, 7, 8, 9),
    'UNMAPPED': (3, 4, 5, 8, 9), 'UNTESTED': (9,), 'ALLOCATED': (9,),
    'QUEUED': (9,), 'OTHER_ZONE': (8, 9), 'OTHER_PARTITION': (10,)}


class RulesTestCase(base.BaseTestCase):

    def test_reasons(self):
        for mine, expected in (True, MINE), (False, NOT_MINE):
            self.assertEqual(expected, {
                reason.name: reason.rules for reason in Reason
                if reason.mine is mine})

    def test_numbers_follow_each_other(self):
        self.assertEqual(list(range(1, len(ownership.RULES) + 1)),
                         list(ownership.RULES))

    def test_every_reason_names_rules_that_exist(self):
        for reason in Reason:
            self.assertTrue(reason.rules, reason)
            self.assertLessEqual(set(reason.rules), ownership.RULES.keys())

    def test_every_rule_has_a_reason_that_does_what_it_says(self):
        for number, rule in ownership.RULES.items():
            outcomes = {reason.mine for reason in Reason
                        if number in reason.rules}
            self.assertIn(rule.outcome.startswith('mine'), outcomes)

    def test_a_rule_that_takes_nothing_has_no_reason_that_does(self):
        for number, rule in ownership.RULES.items():
            if rule.outcome.startswith('not mine'):
                self.assertEqual({False}, {
                    reason.mine for reason in Reason
                    if number in reason.rules})
