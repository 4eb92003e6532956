# SPDX-License-Identifier: Apache-2.0

import datetime
import logging
import threading
import typing
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.base import ports
from nova_ironic_multihost.engine import lifecycle
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine.nodes import test_due_nodes

MOMENT = datetime.datetime(2026, 5, 4, tzinfo=datetime.UTC)
WORDS = liveness.stop_marker_text(MOMENT)


class DepartureTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.registration = mock.create_autospec(
            ports.Registration, instance=True)
        self.may_close = mock.Mock(return_value=True)
        self.pauses = []
        self.departure = lifecycle.Shutdown(
            self.registration, self.may_close, lambda: MOMENT,
            self.pauses.append)
        self.departure.undo()
        self.registration.reset_mock()

    def begin(self):
        """Begin it, and let it come to its end."""
        self.departure.begin()
        self.assertTrue(self.departure.begun())
        self.assertTrue(self.departure._said.wait(60))

    def test_it_is_said_once(self):
        self.assertFalse(self.departure.begun())
        self.begin()
        with fixtures.FakeLogger(level=logging.WARNING) as log:
            self.departure.wait()
        self.assertEqual('', log.output)
        self.departure.begin()
        self.registration.say.assert_called_once_with(WORDS)
        self.registration.close.assert_called_once_with(WORDS)

    def test_builds_are_still_sent_here_if_too_many_end(self):
        self.may_close.side_effect = lambda: (
            self.registration.say.assert_called_once_with(WORDS))
        self.begin()
        self.may_close.assert_called_once_with()
        self.registration.close.assert_not_called()

    def test_what_an_operator_has_disabled_is_left_alone(self):
        self.registration.say.return_value = False
        self.begin()
        self.may_close.assert_not_called()
        self.registration.close.assert_not_called()

    def test_it_is_said_again_until_it_is_heard(self):
        self.registration.say.side_effect = [OSError, OSError, True]
        self.begin()
        self.assertEqual([lifecycle.PAUSE] * 2, self.pauses)
        self.may_close.assert_called_once_with()

    def test_it_is_not_said_for_ever(self):
        self.registration.say.side_effect = OSError
        self.begin()
        self.assertEqual(lifecycle.ATTEMPTS, self.registration.say.call_count)
        self.may_close.assert_not_called()

    def test_the_end_does_not_wait_for_who_does_not_answer(self):
        self.useFixture(fixtures.MockPatchObject(lifecycle, 'WAIT', 0.01))
        answer = threading.Event()
        self.addCleanup(answer.set)
        self.registration.say.side_effect = lambda words: answer.wait(60)
        with self.assertLogs(lifecycle.__name__, 'WARNING') as logs:
            self.departure.begin()
            self.departure.wait()
        self.assertIn('nova-conductor', logs.output[0])
        self.assertTrue(self.departure.begun())

    def test_who_else_ends_is_not_known(self):
        self.may_close.side_effect = OSError('gone')
        with self.assertLogs(lifecycle.__name__, 'WARNING'):
            self.begin()
        self.registration.close.assert_not_called()

    def test_a_start_that_was_refused_says_nothing(self):
        self.departure = lifecycle.Shutdown(
            self.registration, self.may_close)
        self.departure.wait()
        self.begin()
        self.departure.wait()
        self.registration.say.assert_not_called()

    def test_there_is_no_thread(self):
        self.useFixture(fixtures.MockPatch(
            'threading.Thread.start', side_effect=RuntimeError('no thread')))
        with self.assertLogs(periodic.__name__, 'WARNING') as logs:
            self.begin()
        self.assertIn('no thread', logs.output[0])

    def test_the_next_start_takes_it_back(self):
        with self.assertLogs(lifecycle.__name__, 'INFO') as logs:
            self.departure.undo()
        self.assertIn('enabled again', logs.output[0])
        self.registration.take_back.return_value = False
        self.useFixture(fixtures.MockPatchObject(
            lifecycle.LOG, 'info', self.fail))
        self.departure.undo()

    def test_a_start_goes_on_if_it_cannot_be_taken_back(self):
        self.registration.take_back.side_effect = OSError('gone')
        with self.assertLogs(lifecycle.__name__, 'WARNING') as logs:
            self.departure.undo()
        self.assertIn('gone', logs.output[0])

    def test_who_ends_takes_nothing_back(self):
        self.begin()
        self.departure.undo()
        self.registration.take_back.assert_not_called()

    def test_words_that_are_taken_back_late_are_said_again(self):
        """nova answers slowly, and the service is told to end meanwhile."""
        said = ['words of before']

        def take_back():
            self.departure.begin()
            self.assertTrue(self.departure._said.wait(60))
            self.assertEqual([WORDS], said)
            said.clear()
            return True

        def say(words):
            said[:] = [words]
            return True

        self.registration.take_back.side_effect = take_back
        self.registration.say.side_effect = say
        self.departure.undo()
        self.assertEqual([WORDS], said)

    def test_handler_of_a_signal_does_not_wait_for_what_it_interrupts(self):
        """oslo.service ends the process in it: nothing below goes on."""
        class End(BaseException):
            """The end of the process."""

        def take_back():
            self.departure.begin()
            self.departure.wait()
            raise End

        self.registration.take_back.side_effect = take_back
        self.useFixture(fixtures.MockPatchObject(
            lifecycle.LOG, 'warning', self.fail))
        self.assertRaises(End, self.departure.undo)
        self.registration.say.assert_called_once_with(WORDS)


class ProviderTraits(typing.NamedTuple):

    marked: bool
    generation: int


class Placement:
    """The marks of nodes; calls ``meanwhile`` between reading and writing."""

    def __init__(self):
        self.providers = dict.fromkeys(cloud.NODES, ProviderTraits(False, 1))
        self.asked = []
        self.meanwhile = lambda: None

    def change(self, node, marked=None):
        before = self.providers[node]
        self.providers[node] = ProviderTraits(
            before.marked if marked is None else marked,
            before.generation + 1)

    def disabled(self):
        self.asked.append('disabled')
        return {node for node, its in self.providers.items() if its.marked}

    def read(self, nodes):
        self.asked.append(list(nodes))
        return {node: self.providers[node] for node in nodes
                if node in self.providers}

    def write(self, found, disabled):
        self.meanwhile()
        written = {}
        for node, its in found.items():
            if its == self.providers[node]:
                self.change(node, disabled)
                written[node] = self.providers[node].generation
        return written


class StatusTestCase(test_due_nodes.ScheduledTestCase):

    def setUp(self):
        super().setUp()
        self.placement = Placement()
        self.wrote = []
        self.ending = False
        self.status = lifecycle.DisabledTrait(
            self.auditor, self.schedule, self.placement,
            lambda: self.auditor.last.view,
            lambda *what: self.wrote.append(what), lambda: self.ending)
        self.status.once()
        self.placement.asked.clear()

    def see(self, **state):
        """Let a be seen as it is now."""
        self.cloud.set('a', **state)
        self.begin()

    def disable(self, told=True):
        self.cloud.set('a', disabled=True)
        if told:
            self.status.note()

    def assertMarked(self, *nodes):
        self.assertEqual(sorted(nodes), sorted(self.placement.disabled()))

    def test_placement_is_asked_when_there_is_a_reason(self):
        self.begin()
        self.status.once()
        self.assertEqual([], self.placement.asked)

    def test_nodes_of_a_service_that_is_disabled_and_enabled(self):
        self.disable()
        self.status.once()
        self.assertMarked(*self.mine)
        self.cloud.set('a')
        self.status.note()
        self.status.once()
        self.assertMarked()
        # And no audits of all nodes for that.
        self.assertEqual([], self.schedule.waiting())

    def test_nobody_has_told_it(self):
        self.disable(told=False)
        self.status.once()
        self.assertMarked()
        self.see(disabled=True)
        self.status.once()
        self.assertMarked(*self.mine)
        self.assertEqual([], self.schedule.waiting())

    def test_disabled_and_enabled_before_anything_was_done(self):
        self.disable()
        self.cloud.set('a')
        self.status.note()
        self.status.once()
        self.assertMarked()
        self.assertEqual(['disabled'], self.placement.asked[:-1])

    def test_enabled_while_nodes_are_marked(self):
        self.useFixture(
            fixtures.MockPatchObject(lifecycle, 'TOGETHER', 2))

        def enable():
            self.cloud.set('a')
            self.status.note()

        self.disable()
        self.placement.meanwhile = enable
        self.status.once()
        self.assertEqual(2, len(self.placement.disabled()))
        self.placement.meanwhile = lambda: None
        self.status.once()
        self.assertMarked()

    def test_what_was_before_this_process(self):
        """The process before has ended in the middle of it."""
        self.placement.change(self.mine[0], True)
        self.status._done = None
        self.status.once()
        self.assertMarked()

    def test_free_nodes_come_first(self):
        self.useFixture(
            fixtures.MockPatchObject(lifecycle, 'TOGETHER', 2))
        used = self.mine[0]
        self.cloud.ironic[used] = 'i1'
        self.cloud.placed['i1'] = InstanceState('a', node=used)
        self.begin()
        self.disable()
        self.status.once()
        come = [node for some in self.placement.asked[1:] for node in some]
        self.assertEqual((set(self.mine), used), (set(come), come[-1]))

    def test_node_that_another_host_has_pulled(self):
        pulled = self.mine[0]
        self.cloud.owners[pulled] = 'b'
        self.disable()
        self.status.once()
        self.assertMarked(*self.mine[1:])
        self.assertFalse(self.schedule.is_due(pulled))

    def test_record_is_read_after_the_provider(self):
        """Else one that is pulled in between would be marked for minutes."""
        asked = self.cloud.asked = self.placement.asked
        self.disable()
        self.status.once()
        nodes = list(self.auditor.last.nodes)
        self.assertEqual(
            ['disabled', nodes, *(('record', node) for node in nodes)],
            [one for one in asked if one != ('service', 'a')])

    def test_provider_that_is_another_by_now_is_audited(self):
        node, gone = self.mine[:2]
        del self.placement.providers[gone]
        self.placement.meanwhile = lambda: self.placement.change(node)
        self.disable()
        self.status.once()
        self.assertMarked(*self.mine[2:])
        self.assertEqual([node], self.schedule.waiting())

    def test_audit_that_began_before(self):
        node = self.mine[0]
        with self.schedule.auditing(node):
            self.disable()
            self.status.once()
            self.schedule.touch(node)
        self.assertEqual([node], self.schedule.waiting())

    def test_what_was_written_is_told(self):
        self.disable()
        self.status.once()
        self.assertEqual([(node, 1, 2) for node in self.mine],
                         sorted(self.wrote))

    def test_placement_that_does_not_answer_is_asked_again(self):
        self.disable()
        with mock.patch.object(
                self.placement, 'read', side_effect=OSError('away')):
            self.assertRaises(OSError, self.status.once)
        self.status.once()
        self.assertMarked(*self.mine)

    def test_service_that_is_about_to_end(self):
        """nova has it disabled, and no operator has done that."""
        self.disable()
        self.ending = True
        self.status.once()
        self.assertMarked()
        self.ending = False
        self.cloud.set('a', stop_marker='stopping')
        self.status.once()
        self.assertMarked()
        # Until it is back.
        self.cloud.set('a', disabled=True)
        self.status.once()
        self.assertMarked(*self.mine)

    def test_before_anything_is_known(self):
        for view, audit in ((None, self.auditor.last),
                            (self.auditor.last.view, None)):
            auditor = mock.Mock(last=audit)
            lifecycle.DisabledTrait(
                auditor,
                self.schedule,
                self.placement,
                lambda view=view: view,
                self.fail,
            ).once()
        self.assertEqual([], self.placement.asked)
