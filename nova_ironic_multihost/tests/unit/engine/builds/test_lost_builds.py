# SPDX-License-Identifier: Apache-2.0

import logging
import types

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.builds import lost_builds
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.takeover import Step

ME, OTHER = 'me', 'other'
BUILD = SentBuild('i1', 'n1')


class ArrivalsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        #: Node -> its owner, as nova has it, and for all that this host knows;
        #: None before its first audit.
        self.owners = {'n1': ME}
        self.audited = {'n1': ME}
        self.records_asked = []
        self.cloud = self
        # What nova has, what waits in the queue, what was given up.
        self.builds = {BUILD}
        self.queue = []
        self.ended = []
        self.asked = 0
        self.error = None
        # Of which builds there is a copy.
        self.copies = set()
        # The forwarder.
        self.searched = set()
        self.forwarded = set()
        self.arrivals = lost_builds.InFlightBuilds(
            self, self, self.copies.__contains__, self)

    def holds(self, instance):
        return instance in self.forwarded

    # the auditor and its sources

    @property
    def last(self):
        return self.audited and types.SimpleNamespace(
            view=types.SimpleNamespace(host=ME))

    @property
    def recorded(self):
        return self.audited and frozenset(
            node for node, owner in self.audited.items() if owner == ME)

    def records(self, nodes):
        self.records_asked.append(set(nodes))
        return [Record(node, owner) for node, owner in self.owners.items()
                if node in nodes]

    # the port

    def unclaimed(self):
        return frozenset(self.builds)

    def receive(self):
        self.asked += 1
        if self.error:
            raise self.error
        while self.queue:
            build = self.queue.pop()
            self.arrivals.begin(build.instance)

    def give_up(self, build, reason, absent):
        if not absent():
            return False
        self.ended.append(build)
        self.reason = reason
        self.builds.discard(build)
        return True

    def look(self, turns=lost_builds.InFlightBuilds.TURNS):
        for _ in range(turns):
            self.arrivals.once()

    # the tests

    def test_build_that_may_be_asked_for_again_is_not_lost(self):
        self.copies.add(BUILD)
        self.look()
        self.assertEqual([], self.ended)
        self.copies.clear()
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_build_that_was_lost_ends(self):
        self.look(lost_builds.InFlightBuilds.TURNS - 1)
        self.assertEqual([], self.ended)
        self.look(1)
        self.assertEqual([BUILD], self.ended)
        self.assertIn('lost on the way', self.reason)
        self.assertIn('instance i1 never came', self.log.output)
        self.assertIn('Delete it', self.log.output)

    def test_build_that_waits_in_the_queue_is_left_alone(self):
        self.queue = [BUILD]
        self.look()
        self.assertEqual([], self.ended)
        # It is known to have come; nobody asks for it again.
        self.assertEqual(1, self.asked)

    def test_build_that_came_and_was_given_up_ends(self):
        """nova or placement did not answer, or there was no thread."""
        self.arrivals.begin('i1')
        self.look()
        self.assertEqual([], self.ended)
        self.arrivals.end('i1')
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_build_that_came_twice_is_here_until_both_have_ended(self):
        self.arrivals.begin('i1')
        self.arrivals.begin('i1')
        self.arrivals.end('i1')
        self.assertTrue(self.arrivals.here('i1'))
        self.arrivals.end('i1')
        self.assertFalse(self.arrivals.here('i1'))

    def test_build_of_a_node_of_another_host(self):
        self.owners = self.audited = {'n1': OTHER}
        self.look()
        self.assertEqual([], self.ended)
        self.assertEqual(0, self.asked)
        # It is dead now, and its queues were searched.
        self.searched.add(OTHER)
        self.look()
        self.assertEqual([BUILD], self.ended)
        self.assertIn('compute service other', self.reason)

    def test_build_for_a_dead_host_that_waits_in_the_queue_here(self):
        self.owners = self.audited = {'n1': OTHER}
        self.searched.add(OTHER)
        self.queue = [BUILD]
        self.look()
        self.assertEqual(([], 1), (self.ended, self.asked))

    def test_build_that_the_forwarder_has(self):
        self.owners = self.audited = {'n1': OTHER}
        self.searched.add(OTHER)
        self.forwarded.add('i1')
        self.look()
        self.assertEqual([], self.ended)
        # It was handed on then, and is lost there.
        self.forwarded.clear()
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_queues_that_are_not_searched_for_a_while(self):
        """RabbitMQ gets held requests back, and is left alone then."""
        self.owners = self.audited = {'n1': OTHER}
        for _ in range(2):
            self.assertEqual([], self.ended)
            self.searched.add(OTHER)
            self.look(lost_builds.InFlightBuilds.TURNS // 2)
            self.searched.clear()
            self.look()
        self.assertEqual([BUILD], self.ended)

    def test_build_of_a_node_that_another_has_taken_since_the_audit(self):
        """It waits there."""
        self.owners = {'n1': OTHER}
        self.look()
        self.assertEqual([], self.ended)
        self.owners = {'n1': ME}
        self.look(1)
        self.assertEqual([BUILD], self.ended)

    def test_nova_is_asked_for_no_record_while_nothing_is_lost(self):
        self.queue = [BUILD]
        self.look()
        self.builds = set()
        self.look()
        self.assertEqual([], self.records_asked)
        self.builds = {BUILD}
        self.arrivals.end('i1')
        self.look()
        self.assertEqual([{'n1'}], self.records_asked)

    def test_nothing_before_the_first_audit(self):
        self.audited = None
        self.look()
        self.assertEqual(0, self.asked)
        self.audited = {'n1': ME}
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_turn_without_an_answer_does_not_count(self):
        self.look(lost_builds.InFlightBuilds.TURNS - 1)
        self.error = TimeoutError()
        for _ in range(5):
            self.assertRaises(TimeoutError, self.look, 1)
        self.error = None
        self.assertEqual([], self.ended)
        self.look(1)
        self.assertEqual([BUILD], self.ended)

    def test_build_that_comes_while_it_is_given_up(self):
        give_up = self.give_up

        def come(*args):
            self.arrivals.begin('i1')
            return give_up(*args)

        self.give_up = come
        self.look()
        self.assertEqual([], self.ended)
        self.assertEqual('', self.log.output)

    def test_one_that_cannot_be_ended_holds_up_no_other(self):
        self.builds.add(other := SentBuild('i2', 'n1'))
        failing = [BUILD]
        give_up = self.give_up

        def fail_once(build, *args):
            if build in failing:
                failing.remove(build)
                raise TimeoutError
            return give_up(build, *args)

        self.give_up = fail_once
        self.look()
        self.assertEqual([other], self.ended)
        self.look(1)
        self.assertEqual([other, BUILD], self.ended)


COPY = QueuedRequest(RequestKind.BUILD, 'i1', 'n1')


class RepetitionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        # The store and the port.
        self.readable = self.can_be_undone = True
        self.found = COPY
        self.begun = 1
        self.undone = []
        self.here = set()
        self.retry = lost_builds.BuildRetry(
            self, self, self.here.__contains__)
        self.instance = types.SimpleNamespace(uuid='i1', node='n1')

    def copy(self, build):
        return self.found if build == SentBuild('i1', 'n1') else None

    def repeat(self, build):
        self.undone.append(('repeat', build))

    def undo(self, instance, copy):
        self.undone.append(copy)

    def count(self, instance):
        return self.begun if instance == 'i1' else 0

    def repeatable(self, instance):
        return self.can_be_undone

    def step(self, provision_state='available'):
        return self.retry.step(self.instance, provision_state)

    def test_it_is_begun_again_at_the_second_look(self):
        self.assertIs(Step.AWAIT, self.step())
        self.assertIs(Step.REPEAT, self.step())
        self.retry.undo(self.instance)
        self.assertEqual(
            [('repeat', SentBuild('i1', 'n1')), COPY], self.undone)
        # And the next time once more.
        self.assertIs(Step.AWAIT, self.step())

    def test_one_that_waits_here_for_its_turn_is_waited_for(self):
        """It is refused then, and must not be in the middle of the undoing."""
        self.here.add('i1')
        for state in ('available', 'deploying'):
            for _ in range(2 * forwarding.LOOKS):
                self.assertIs(Step.AWAIT, self.step(state))
        self.here.clear()
        self.assertIs(Step.AWAIT, self.step())
        self.assertIs(Step.REPEAT, self.step())

    def test_without_a_copy_it_fails_in_the_end(self):
        self.found = None
        self.wait()
        self.assertIs(Step.FAIL, self.step())

    def wait(self):
        """Look for as long as a copy may take."""
        for _ in range(forwarding.LOOKS):
            self.assertIs(Step.AWAIT, self.step())

    def test_one_that_another_host_had_waits_anew(self):
        self.step()
        self.retry.wait_anew({'i2'})
        self.assertIs(Step.REPEAT, self.step())
        self.retry.wait_anew({'i1'})
        self.assertIs(Step.AWAIT, self.step())

    def test_copy_of_another_attempt_is_none(self):
        self.instance.node = 'n2'
        self.wait()
        self.assertIs(Step.FAIL, self.step())

    def test_what_cannot_be_undone_fails(self):
        self.can_be_undone = False
        self.step()
        self.assertIs(Step.FAIL, self.step())

    def test_where_there_are_no_copies_nobody_waits(self):
        self.readable = False
        self.assertIs(Step.FAIL, self.step())

    def test_copy_that_goes_back_in_that_moment(self):
        self.found = None
        self.assertRaises(LookupError, self.retry.undo, self.instance)
