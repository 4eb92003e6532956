# SPDX-License-Identifier: Apache-2.0

"""Builds that were begun are begun again, if there is a copy."""

import contextlib
import types

from oslotest import base

from nova_ironic_multihost.engine.builds import build_retry
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.takeover import Step

COPY = QueuedRequest(RequestKind.BUILD, 'i1', 'n1')


class RepetitionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        # The store and the port.
        self.readable = self.all_seen = self.can_be_undone = True
        self.found = COPY
        self.begun = 1
        self.undone, self.forgotten = [], []
        self.now = 0
        self.here = set()
        self.retry = build_retry.BuildRetry(
            self, self, self.here.__contains__, lambda: self.now)
        self.instance = types.SimpleNamespace(uuid='i1', node='n1')

    def copy(self, build):
        return self.found if build == SentBuild('i1', 'n1') else None

    @contextlib.contextmanager
    def repeating(self, build):
        self.undone.append(('repeat', build))
        yield
        self.undone.append('done')

    def undo(self, instance, copy):
        self.undone.append(copy)

    def count(self, instance):
        return self.begun if instance == 'i1' else 0

    def forget(self, instances):
        self.forgotten.append(instances)

    def repeatable(self, instance):
        return self.can_be_undone

    def step(self, provision_state='available'):
        return self.retry.step(self.instance, provision_state)

    def test_it_is_begun_again_at_the_second_look(self):
        self.assertIs(Step.AWAIT, self.step())
        self.now = 10
        self.assertIs(Step.REPEAT, self.step())
        self.retry.undo(self.instance)
        self.assertEqual([('repeat', SentBuild('i1', 'n1')), COPY, 'done'],
                         self.undone)
        # And the next time once more.
        self.assertIs(Step.AWAIT, self.step())

    def test_one_that_waits_here_for_its_turn_is_waited_for(self):
        """It is refused then, and must not be in the middle of the undoing."""
        self.here.add('i1')
        for state in ('available', 'deploying'):
            for self.now in (0, 10, 10000):
                self.assertIs(Step.AWAIT, self.step(state))
        self.here.clear()
        self.assertIs(Step.AWAIT, self.step())
        self.now += 10
        self.assertIs(Step.REPEAT, self.step())

    def test_without_a_copy_it_fails_in_the_end(self):
        self.found = None
        self.wait()
        self.assertIs(Step.FAIL, self.step())

    def wait(self):
        """Look every few seconds, for as long as a copy may take."""
        for _ in range(forwarding.BACKUP_WAIT // 10):
            self.assertIs(Step.AWAIT, self.step())
            self.now += 10

    def test_time_in_which_nobody_looks_does_not_count(self):
        """Nothing answers in an outage, and no copy comes."""
        self.found = None
        for seconds in (
                0, forwarding.LONG_BACKUP_WAIT, forwarding.BACKUP_WAIT):
            self.now += seconds
            self.assertIs(Step.AWAIT, self.step())

    def test_it_is_begun_again_by_workers_that_come_seldom(self):
        self.assertIs(Step.AWAIT, self.step())
        self.now = 10 * build_retry.GAP
        self.assertIs(Step.REPEAT, self.step())

    def test_without_a_copy_it_fails_however_seldom_it_is_seen(self):
        self.found = None
        steps = []
        for _ in range(forwarding.BACKUP_WAIT // build_retry.GAP + 1):
            steps.append(self.step())
            self.now += 10 * build_retry.GAP
        self.assertEqual([Step.FAIL], list({*steps} - {Step.AWAIT}))
        self.assertIs(Step.FAIL, steps[-1])

    def test_one_that_another_host_had_waits_anew(self):
        self.step()
        self.now = build_retry.GAP
        self.retry.wait_anew({'i2'})
        self.assertIs(Step.REPEAT, self.step())
        self.retry.wait_anew({'i1'})
        self.assertIs(Step.AWAIT, self.step())
        self.assertEqual([{'i2'}, {'i1'}], self.forgotten)

    def test_copy_of_another_attempt_is_none(self):
        self.instance.node = 'n2'
        self.wait()
        self.assertIs(Step.FAIL, self.step())

    def test_what_cannot_be_undone_fails(self):
        self.can_be_undone = False
        self.step()
        self.now = 10
        self.assertIs(Step.FAIL, self.step())

    def test_where_there_are_no_copies_nobody_waits(self):
        self.readable = False
        self.assertIs(Step.FAIL, self.step())

    def test_copy_that_goes_back_in_that_moment(self):
        self.found = None
        self.assertRaises(LookupError, self.retry.undo, self.instance)
