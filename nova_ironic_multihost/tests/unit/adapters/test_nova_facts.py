# SPDX-License-Identifier: Apache-2.0

"""The methods of nova's driver that the sources of an audit use."""

import inspect
import threading
from unittest import mock

import fixtures
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import nova_facts
from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.adapters import rpc_queue
from nova_ironic_multihost.adapters import takeover_write
from nova_ironic_multihost.engine.base import metrics as totals
from nova_ironic_multihost.engine.base import ports
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base


class NovaFactsTestCase(oslo_base.BaseTestCase):

    def test_ports_are_implemented(self):
        for port, adapter in (
                (ports.Sources, nova_facts.NovaSources),
                (ports.Pages, ironic.NodePages),
                (ports.Writes, nova_facts.NovaWrites),
                (ports.Instances, nova_servers.ServerCalls),
                (ports.Machines, ironic.IronicMachines),
                (ports.Registration, nova_facts.ServiceRecord),
                (ports.Tracker, nova_tracker.NovaTracker),
                (ports.Traits, placement.TraitWriter),
                (ports.Queue, rpc_queue.RpcQueue),
                (ports.Queues, rpc_queue.RpcQueues)):
            for name, method in vars(port).items():
                if inspect.isfunction(method) and not name.startswith('_'):
                    self.assertEqual(
                        base.parameters(method),
                        base.parameters(getattr(adapter, name)), name)

    def consumers_of(self, answer, nodes):
        self.useFixture(fixtures.MockPatchObject(
            nova_facts.db, 'consumers',
            lambda context, client, node: answer(node)))
        return nova_facts.NovaSources(
            mock.Mock(), mock.Mock()).consumers_of(nodes)

    def test_placement_is_asked_of_some_nodes_at_a_time(self):
        together = threading.Barrier(nova_facts.AT_ONCE)
        most, nodes = [0], [str(n) for n in range(3 * nova_facts.AT_ONCE)]

        def answer(node):
            together.wait(60)
            most[0] = max(most[0], threading.active_count() - before)
            return None if node == '1' else frozenset({f'i-{node}'})

        before = threading.active_count()
        self.assertEqual(
            {node: None if node == '1' else {f'i-{node}'} for node in nodes},
            self.consumers_of(answer, nodes))
        self.assertEqual([nova_facts.AT_ONCE], most)
        self.assertEqual({}, self.consumers_of(self.fail, []))

    def test_who_does_not_answer_is_not_asked_for_all_nodes(self):
        """Each question may take as long as a timeout."""
        nodes, asked = [str(n) for n in range(1000)], []

        def answer(node):
            asked.append(node)
            return frozenset() if node in '12' else None

        found = self.consumers_of(answer, nodes)
        self.assertEqual(nodes, [*found])
        self.assertEqual(
            [None], [*{found[node] for node in nodes if node not in '12'}])
        self.assertLess(len(asked), 3 * nova_facts.AT_ONCE)

    def test_what_fails_fails_for_all_nodes(self):
        self.assertRaises(
            ZeroDivisionError, self.consumers_of, lambda node: 1 / 0, 'abc')

    def test_nothing_is_taken_over_by_a_service_that_is_about_to_end(self):
        moved = self.useFixture(fixtures.MockPatchObject(
            takeover_write, 'take_over', return_value={'uuid': True})).mock
        ending = False
        recorder = totals.Metrics()
        writes = nova_facts.NovaWrites(lambda: ending, recorder)
        wanted = {'uuid': mock.Mock()}
        self.assertEqual(
            {'uuid': True}, writes.take_over(wanted, 'host', frozenset))
        ending = True
        self.assertEqual(
            {'uuid': False}, writes.take_over(wanted, 'host', frozenset))
        moved.assert_called_once()
        self.assertEqual(1, recorder.totals.counts[Event.TAKEN_OVER])

    def test_take_overs_are_counted(self):
        take_over = self.useFixture(fixtures.MockPatchObject(
            takeover_write, 'take_over', return_value={
                'i1': True, 'i2': True, 'i3': False, 'i4': OSError()})).mock
        recorder = totals.Metrics()
        failed = mock.Mock()
        writes = nova_facts.NovaWrites(recorder=recorder, failed=failed)
        wanted = dict.fromkeys(['i1', 'i2', 'i3', 'i4'])

        def counted():
            counts = recorder.totals.counts
            return counts[Event.TAKEN_OVER], counts[Event.TAKEOVER_FAILED]

        writes.take_over(wanted, 'host', frozenset)
        self.assertEqual((2, 1), counted())
        self.assertEqual(1, failed.call_count)
        take_over.side_effect = OSError
        self.assertRaises(OSError, writes.take_over, wanted, 'host', frozenset)
        self.assertEqual((2, 5), counted())
        self.assertEqual(2, failed.call_count)
        take_over.side_effect = None
        take_over.return_value = dict.fromkeys(wanted, False)
        writes.take_over(wanted, 'host', frozenset)
        self.assertEqual(2, failed.call_count)
        self.assertEqual(frozenset(), writes.under_way)

    def test_each_attempt_at_an_instance_has_a_number_of_its_own(self):
        """However many others are taken over in between."""
        numbers = []

        def take_over(context, instances, host, eligible, attempts):
            numbers.extend(attempts[uuid] % takeover.ATTEMPTS
                           for uuid in instances if uuid == 'i1')
            return dict.fromkeys(instances, False)

        self.useFixture(fixtures.MockPatchObject(
            takeover_write, 'take_over', take_over))
        writes = nova_facts.NovaWrites()
        for _ in range(takeover.ATTEMPTS):
            writes.take_over({'i1': None}, 'host', frozenset)
            for number in range(takeover.ATTEMPTS - 1):
                writes.take_over({f'other{number}': None}, 'host', frozenset)
        self.assertEqual(takeover.ATTEMPTS, len(set(numbers)))

    def test_provider_of_a_node_that_is_gone(self):
        consumers = self.useFixture(fixtures.MockPatchObject(
            nova_facts.db, 'consumers')).mock
        states = self.useFixture(fixtures.MockPatchObject(
            nova_facts.db, 'instance_states')).mock
        client = mock.Mock()
        writes = nova_facts.NovaWrites(
            tracker=mock.Mock(report_client=client))
        living, gone = InstanceState('a'), InstanceState('a', deleted=True)
        for consumers.return_value, states.return_value in (
                (None, {}), ({'i'}, {}), ({'i'}, {'i': living}),
                ({'i', 'j'}, {'i': living, 'j': gone})):
            self.assertFalse(writes.remove_provider('n'))
        client.delete.assert_not_called()
        for status, done in (204, True), (404, True), (409, False), (
                500, False):
            answer = mock.MagicMock(status_code=status)
            answer.__bool__.return_value = status < 400
            client.delete.return_value = answer
            consumers.return_value = {'j'}
            states.return_value = {'j': gone}
            self.assertIs(done, writes.remove_provider('n'))
            client.delete_allocation_for_instance.assert_called_with(
                mock.ANY, 'j', force=True)
            self.assertEqual('/resource_providers/n',
                             client.delete.call_args.args[0])
            client.invalidate_resource_provider.assert_called_with('n')
