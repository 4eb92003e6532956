# SPDX-License-Identifier: Apache-2.0

import typing
from unittest import mock

import fixtures

from nova_ironic_multihost.engine.tracking import disabled_trait
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine.tracking import test_due_nodes


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
        self.status = disabled_trait.DisabledTrait(
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
            fixtures.MockPatchObject(disabled_trait, 'TOGETHER', 2))

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
            fixtures.MockPatchObject(disabled_trait, 'TOGETHER', 2))
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
            disabled_trait.DisabledTrait(
                auditor,
                self.schedule,
                self.placement,
                lambda view=view: view,
                self.fail,
            ).once()
        self.assertEqual([], self.placement.asked)
