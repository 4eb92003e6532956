# SPDX-License-Identifier: Apache-2.0

"""Instances and builds of a dead host are taken over, each once."""

from unittest import mock

import fixtures

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import decide
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine import cloud


class TakeoverTestCase(cloud.AuditTestCase):
    """c dies with an instance on each of its nodes."""

    def setUp(self):
        super().setUp()
        self.cloud = cloud.Cloud('a', 'b', 'c')
        self.settle('a', 'b', 'c')
        self.theirs = [node for node, host in self.cloud.owners.items()
                       if host == 'c']
        for node in self.theirs:
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = InstanceState(
                'c', node=node, vm_state='active')
        self.options['policy'] = takeover.Policy('forced_down')
        self.useFixture(fixtures.MockPatchObject(decide, 'TOGETHER', 2))

    def hosts(self):
        return {state.host for state in self.cloud.placed.values()}

    def test_a_fenced_hosts_instances_go_to_the_preferred(self):
        self.cloud.set('c', up=False)
        self.audit('a'), self.audit('b')
        self.assertEqual({'c'}, self.hosts())
        self.cloud.set('c', up=False, forced_down=True)
        taken = {}
        for host in 'ab':
            found = self.audit(host)
            self.assertEqual(
                {'c'} if found.taken_over else set(),
                set(found.taken_over.values()))
            taken.update(dict.fromkeys(found.taken_over, host))
        self.assertEqual({f'i-{node}' for node in self.theirs}, taken.keys())
        self.assertEqual(taken, {
            instance: state.host
            for instance, state in self.cloud.placed.items()})
        for node in self.theirs:
            self.assertEqual(taken[f'i-{node}'], self.cloud.owners[node])

    def strand(self):
        """c had claimed its builds, and had reserved no machine yet."""
        for node in self.theirs:
            self.cloud.ironic[node] = None
            self.cloud.allocations[node] = frozenset([f'i-{node}'])
            self.cloud.placed[f'i-{node}'] = InstanceState(
                'c', node=node, vm_state='building')
        self.cloud.set('b', up=False)

    def test_builds_without_a_machine_are_taken_and_their_nodes_too(self):
        self.strand()
        self.cloud.set('c', up=False)
        found = self.audit('a')
        self.assertEqual(
            {Reason.AWAITED}, {found.reasons[node] for node in self.theirs})
        self.cloud.set('c', up=False, forced_down=True)
        found = self.audit('a')
        self.assertEqual({f'i-{node}': 'c' for node in self.theirs},
                         dict(found.taken_over))
        self.assertEqual(
            {Reason.ADOPTED}, {found.reasons[node] for node in self.theirs})
        self.assertEqual({}, dict(self.audit('a').taken_over))

    def test_of_a_host_that_is_back_in_between_nothing_more_is_taken(self):
        """Each portion may take minutes."""
        self.give_all_to_c()
        self.cloud.set('c', up=False, forced_down=True)
        take_over = self.cloud.take_over

        def take_and_unfence(*arguments):
            self.cloud.set('c', up=False)
            return take_over(*arguments)

        self.cloud.take_over = take_and_unfence
        found = self.audit('a')
        self.assertEqual(decide.TOGETHER, len(found.taken_over))
        self.assertEqual(decide.TOGETHER, len(self.asked('take_over')))

    def test_builds_of_a_host_that_is_back_when_placement_answers(self):
        self.strand()
        self.cloud.set('c', up=False, forced_down=True)
        ask = self.cloud.consumers_of
        self.cloud.consumers_of = lambda nodes: (
            self.cloud.set('c'), ask(nodes))[1]
        found = self.audit('a')
        self.assertEqual({}, dict(found.taken_over))
        self.assertEqual({'c'}, self.hosts())

    def test_build_of_which_ironic_does_not_say_whether_it_has_a_machine(self):
        self.strand()
        self.cloud.set('c', up=False, forced_down=True)
        ask = self.cloud.consumers_of

        def ask_and_break(nodes):
            self.cloud.broken = True
            return ask(nodes)

        with mock.patch.object(self.cloud, 'consumers_of', ask_and_break):
            self.assertEqual({}, dict(self.audit('a').taken_over))
        self.cloud.broken = False
        self.assertEqual({f'i-{node}' for node in self.theirs},
                         self.audit('a').taken_over.keys())

    def give_all_to_c(self):
        for node in cloud.NODES:
            self.cloud.owners[node] = 'c'
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = cloud.instance('c', node)

    def test_what_goes_wrong_ends_it_and_loses_nothing(self):
        self.cloud.set('c', up=False, forced_down=True)
        self.give_all_to_c()
        wanted = [f'i-{node}' for node in self.preferred('a', 'a', 'b')]
        self.assertGreater(len(wanted), 3)
        take_over, asked = self.cloud.take_one, []

        def fail_twice(instance, state, host):
            asked.append(instance)
            if len(asked) in (2, 4):
                raise OSError('the answer is lost')
            return take_over(instance, state, host)

        self.cloud.take_one = fail_twice
        with self.assertLogs('nova_ironic_multihost', 'WARNING') as logs:
            found = self.audit('a')
        self.assertEqual(2, len(logs.output))
        self.assertEqual({asked[0], asked[2]}, set(found.taken_over))
        self.assertEqual(4, len(asked))
        found = self.audit('a')
        self.assertEqual(
            set(wanted) - {asked[0], asked[2]}, set(found.taken_over))

    def test_if_nothing_is_known_of_a_portion_it_ends_there(self):
        """nova does not answer: each question waits for a minute."""
        self.cloud.set('c', up=False, forced_down=True)
        self.give_all_to_c()
        made = []

        def fail(instances, host, eligible):
            made.extend(instances)
            raise OSError('no answer')

        self.cloud.take_over = fail
        with self.assertLogs('nova_ironic_multihost', 'WARNING') as logs:
            found = self.audit('a')
        self.assertEqual((1, {}), (len(logs.output), dict(found.taken_over)))
        self.assertEqual(2, len(made))

    def test_builds_and_servers_are_so_many_together(self):
        self.strand()
        self.cloud.set('c', up=False, forced_down=True)
        server = self.theirs[0]
        self.cloud.ironic[server] = f'i-{server}'
        first, second = (self.audit('a', takeovers_per_audit=2)
                         for _ in range(2))
        self.assertEqual(2, len(first.taken_over))
        # A server needs no answer of placement.
        self.assertIs(Reason.TAKEN_OVER, first.reasons[server])
        self.assertEqual(1, [first.reasons[node] for node in self.theirs]
                         .count(Reason.ADOPTED))
        self.assertEqual(2, len(second.taken_over))

    def test_builds_that_cannot_be_taken_keep_no_other_waiting(self):
        self.strand()
        self.cloud.set('c', up=False, forced_down=True)
        take_over, taken = self.cloud.take_one, set()
        beyond_help = {f'i-{node}' for node in sorted(self.theirs)[:2]}

        def fail(instance, state, host):
            if instance in beyond_help:
                raise OSError('no answer')
            return take_over(instance, state, host)

        self.cloud.take_one = fail
        with self.assertLogs('nova_ironic_multihost', 'WARNING'):
            for _ in range(50):
                taken |= self.audit('a').taken_over.keys()
        self.assertEqual(
            {f'i-{node}' for node in self.theirs} - beyond_help, taken)

    def test_build_that_has_changed_since_keeps_its_node_waiting(self):
        self.strand()
        self.cloud.set('c', up=False, forced_down=True)
        self.cloud.take_one = lambda *arguments: False
        found = self.audit('a')
        self.assertEqual({}, dict(found.taken_over))
        self.assertEqual({Reason.TAKEOVER_FAILED}, {
            found.reasons[node] for node in self.theirs})

    def look_and_audit(self):
        for host in ('a', 'b'):
            settings = audit_state.Settings(host, points=32, **self.options)
            auditor = self.auditors[host]
            auditor.heartbeats.note_down(settings, auditor.read_view(settings))
        self.settle('a', 'b')

    def test_down_counts_from_when_it_was_first_seen_down(self):
        self.options['policy'] = takeover.Policy('down', after=60)

        def look(*pauses):
            for pause in pauses:
                self.clock.now += pause
                self.look_and_audit()

        self.cloud.set('c', up=False)
        look(0, 30, 29)
        self.assertEqual({'c'}, self.hosts())
        self.cloud.set('c')
        look(0)
        self.cloud.set('c', up=False)
        look(30, 30, 29)
        self.assertEqual({'c'}, self.hosts())
        look(1)
        self.assertEqual({'a', 'b'}, self.hosts())

    def test_those_of_one_host_are_audited_at_once(self):
        self.cloud.set('c', up=False, forced_down=True)
        before = self.auditors['a'].last
        reasons = self.auditors['a'].audit_hosts(
            audit_state.Settings('a', points=32, **self.options), ['c'],
            lambda found, mine: None)
        after = self.auditors['a'].last
        taken = set(after.taken_over)
        self.assertTrue(taken)
        self.assertEqual(
            taken, {f'i-{node}' for node, reason in reasons.items()
                    if reason is Reason.TAKEN_OVER})
        self.assertEqual(taken, {
            instance for instance, state in self.cloud.placed.items()
            if state.host == 'a'})
        self.assertLessEqual(before.nodes.keys(), after.nodes.keys())
        # Once for each.
        self.auditors['a'].audit_hosts(
            audit_state.Settings('a', points=32, **self.options), ['c'],
            lambda found, mine: None)
        self.assertEqual({}, dict(self.auditors['a'].last.taken_over))

    def test_those_that_cannot_be_taken_keep_nobody_waiting(self):
        stuck = {f'i-{node}' for node in sorted(self.theirs)[:2]}
        take_over = self.cloud.take_one
        self.cloud.take_one = lambda instance, state, host: (
            instance not in stuck and take_over(instance, state, host))
        self.cloud.set('b', up=False)
        self.cloud.set('c', up=False, forced_down=True)
        for _ in range(50):
            self.audit('a', takeovers_per_audit=1)
        self.assertEqual(stuck, {
            instance for instance, state in self.cloud.placed.items()
            if state.host == 'c'})
        # They are tried again, and taken when that goes.
        self.cloud.take_one = take_over
        self.audit('a', takeovers_per_audit=1)
        self.audit('a', takeovers_per_audit=1)
        self.assertEqual({'a'}, self.hosts())
