# SPDX-License-Identifier: Apache-2.0

"""What still holds of a decision when it is carried out."""

import dataclasses

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import recheck
from nova_ironic_multihost.engine.audit.recheck import Offer
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine import cloud


class StillValidTestCase(cloud.AuditTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.auditors['a'] = self.auditor = self.new_auditor()
        for _ in range(2):
            self.auditor.audit(audit_state.Settings(
                'a', points=32, pull_delay_audits=1))
        self.node = next(iter(self.auditor.last.nodes))

    def test_as_decided(self):
        self.assertTrue(self.offers().still_valid(self.node))

    def test_nothing_before_the_first_audit(self):
        offers = recheck.Recheck(self.new_auditor(), cloud.Tracker())
        self.assertFalse(offers.still_valid(self.node))
        # nova's start is not over: it is not for us to judge.
        self.assertTrue(offers.may_take(self.node))

    def test_record_that_was_read_by_nova_is_not_read_again(self):
        self.cloud.asked.clear()
        self.cloud.set('c')
        self.assertFalse(self.offers().still_valid(
            self.node, Record(self.node, 'c')))
        self.assertTrue(self.offers().still_valid(
            self.node, Record(self.node, 'A')))
        self.assertEqual([], self.asked('record'))

    def test_not_for_a_node_that_is_not_mine(self):
        other = next(iter(set(cloud.NODES) - set(self.auditor.last.nodes)))
        self.assertFalse(self.offers().still_valid(other))
        self.assertFalse(self.offers().still_valid('never-heard-of'))

    def test_free_node_of_a_dead_host_when_this_one_is_disabled_since(self):
        served, free = cloud.NODES[:2]
        self.cloud.ironic[served] = 'i1'
        self.cloud.placed = {'i1': InstanceState('a')}
        self.cloud.set('b', up=False, forced_down=True)
        settings = audit_state.Settings('a', points=32)
        self.auditor.audit(settings)
        for disabled in True, False:
            self.cloud.set('a', disabled=disabled)
            self.auditor.read_view(settings)
            self.assertTrue(self.offers().still_valid(
                served, Record(served, 'b')))
            self.assertEqual(not disabled, self.offers().still_valid(
                free, Record(free, 'b')))

    def test_an_older_answer_does_not_undo_that_this_host_is_disabled(self):
        """The peer poll read the services later than this audit."""
        self.cloud.set('b', up=False, forced_down=True)
        settings = audit_state.Settings('a', points=32)
        read = self.cloud.services

        def services():
            found = read()
            self.cloud.services = read
            self.cloud.set('a', disabled=True)
            self.clock.now += 1
            self.auditor.read_view(settings)
            return found

        self.cloud.services = services
        self.auditor.audit(settings)
        free = cloud.NODES[1]
        self.assertTrue(self.auditor.is_mine(free))
        self.assertFalse(self.offers().still_valid(free, Record(free, 'b')))

    def test_nothing_is_looked_up_before_the_tracker_reads_a_record(self):
        other = next(iter(set(cloud.NODES) - set(self.auditor.last.nodes)))
        self.cloud.asked.clear()
        self.assertTrue(self.offers().may_take(self.node))
        self.assertFalse(self.offers().may_take(other))
        self.assertTrue(self.offers('a', other).may_take(other))
        self.assertEqual([], self.cloud.asked)

    def asked_of(self, node):
        """Return what is asked when the tracker has read the record."""
        self.cloud.asked.clear()
        self.assertTrue(self.offers().still_valid(
            node, Record(node, 'b')))
        return [kind for kind, _ in self.cloud.asked]

    def test_of_a_node_no_more_is_asked_than_the_decision_depends_on(self):
        self.assertEqual([], self.asked_of(self.node))
        leaked, served = cloud.NODES[:2]
        self.cloud.set('b', up=False)
        self.cloud.ironic.update({leaked: 'i1', served: 'i2'})
        self.cloud.placed = {'i1': InstanceState('b', deleted=True),
                             'i2': InstanceState('a')}
        self.auditor.audit(audit_state.Settings('a', points=32))
        self.assertEqual(['service'], self.asked_of(leaked))
        self.assertEqual(['instance_state'], self.asked_of(served))


class MayCreateTestCase(cloud.AuditTestCase):
    """Two hosts start on an empty database."""

    def setUp(self):
        super().setUp()
        # None has a record, so none of them is seen.
        self.cloud = cloud.Cloud()
        self.cloud.set('a', ironic=False)
        self.settings = audit_state.Settings('a', points=32)
        self.auditors['a'] = self.auditor = self.new_auditor()
        self.auditor.audit(self.settings)
        self.assertEqual(set(cloud.NODES), set(self.auditor.last.nodes))

    def may_create(self):
        offers = self.offers()
        return {node for node in cloud.NODES
                if offers.may_create(node, self.settings)}

    def test_what_is_wanted_as_long_as_nobody_else_is_seen(self):
        self.assertEqual(set(cloud.NODES), self.may_create())

    def test_a_heartbeat_is_not_expected_of_a_service_that_starts(self):
        self.cloud.set('a', up=False)
        self.auditor.audit(self.settings, settled=False)
        self.assertEqual(set(cloud.NODES), self.may_create())
        self.auditor.audit(self.settings)
        self.assertEqual(set(), self.may_create())

    def test_not_what_another_is_preferred_for_by_now(self):
        self.cloud.set('b')
        self.assertEqual(self.preferred('a', 'a', 'b'), self.may_create())

    def test_what_is_here_whoever_is_preferred(self):
        self.cloud.set('b')
        node = next(iter(set(cloud.NODES) - self.preferred('a', 'a', 'b')))
        self.cloud.ironic[node] = 'i1'
        self.cloud.placed = {'i1': InstanceState('a')}
        self.auditor.audit(self.settings)
        self.assertIn(node, self.may_create())
        self.assertFalse(self.offers().may_create('unheard-of', self.settings)
                         and self.auditor.reason('unheard-of'))


class OfferTestCase(cloud.AuditTestCase):
    """What placement is told; all nodes are b's at first."""

    def setUp(self):
        super().setUp()
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.settle('b')
        for _ in range(2):
            self.audit('a')
        self.pulled = next(iter(self.auditors['a'].last.nodes))

    def test_a_node_that_is_pulled_is_offered_when_it_has_moved(self):
        self.assertIs(Offer.NOTHING, self.offers().of(self.pulled))
        self.assertIs(Offer.AS_IRONIC_SAYS,
                      self.offers('a', self.pulled).of(self.pulled))

    def test_a_node_is_pulled_by_no_host_that_is_disabled_since(self):
        self.cloud.owners[self.pulled] = 'b'
        for disabled in True, False:
            self.cloud.set('a', disabled=disabled)
            self.auditors['a'].read_view(audit_state.Settings('a', points=32))
            self.assertEqual(not disabled, bool(
                self.offers().to_pull([self.pulled], '')))

    def test_a_node_that_a_build_is_on_its_way_to_is_not_pulled(self):
        for consumers in (frozenset(['i1']), None):
            self.cloud.allocations[self.pulled] = consumers
            self.assertIs(Offer.REFUSED, self.offers().of(self.pulled))

    def test_a_node_that_is_not_to_be_pulled_any_more_is_not_spoken_for(self):
        """A look has decided on it anew, when the tracker was at it."""
        last = self.auditors['a'].last
        self.auditors['a'].last = dataclasses.replace(
            last, reasons={**last.reasons, self.pulled: Reason.QUEUED})
        self.assertIs(Offer.REFUSED, self.offers().of(self.pulled))
        self.assertIs(Offer.AS_IRONIC_SAYS,
                      self.offers('a', self.pulled).of(self.pulled))

    def test_a_node_that_another_has_pulled_is_no_more_spoken_for(self):
        self.assertEqual('a', self.cloud.owners[self.pulled])
        offers = self.offers('b', *cloud.NODES)
        self.assertIs(Reason.KEPT,
                      self.auditors['b'].last.reasons[self.pulled])
        self.assertIs(Offer.REFUSED, offers.of(self.pulled))
        self.cloud.owners[self.pulled] = 'b'
        self.assertIs(Offer.AS_IRONIC_SAYS, offers.of(self.pulled))

    def test_only_of_nodes_that_another_would_pull_it_is_asked(self):
        self.cloud.asked.clear()
        for node in cloud.NODES:
            self.offers('b', *cloud.NODES).of(node)
        self.assertEqual(
            set(cloud.NODES) - self.preferred('b', 'a', 'b'),
            set(self.asked('record')))
        self.cloud.set('b', disabled=True)
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.audit('b')
        self.cloud.asked.clear()
        for node in cloud.NODES:
            self.offers('b', *cloud.NODES).of(node)
        self.assertEqual(set(cloud.NODES), set(self.asked('record')))

    def test_who_is_about_to_end_takes_nothing_and_looks_at_all_it_has(self):
        ending = True
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.audit('b')
        offers = recheck.Recheck(self.auditors['b'], cloud.Tracker(
            *cloud.NODES), lambda: ending)
        mine, = sorted(self.preferred('b', 'a', 'b'))[:1]
        self.cloud.asked.clear()
        self.assertIs(Offer.AS_IRONIC_SAYS, offers.of(mine))
        self.assertEqual([mine], self.asked('record'))
        self.cloud.owners[mine] = 'a'
        self.assertIs(Offer.REFUSED, offers.of(mine))
        self.assertFalse(offers.may_create(mine, audit_state.Settings('b')))
        ending = False
        self.assertTrue(offers.may_create(mine, audit_state.Settings('b')))

    def test_nodes_of_lost_servers_are_not_offered(self):
        leaked, unknown, building, mine, free = cloud.NODES[:5]
        self.cloud = cloud.Cloud('a')
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'a')
        self.cloud.ironic.update({
            leaked: 'i1', unknown: 'i2', building: 'i3', mine: 'i4'})
        self.cloud.placed = {
            'i1': InstanceState('b', deleted=True),
            'i3': InstanceState(None), 'i4': InstanceState('a')}
        del self.auditors['a']
        self.audit('a')
        offers = self.offers('a', *cloud.NODES)
        for node in (leaked, unknown, building):
            self.assertIs(Offer.NOTHING, offers.of(node))
        for node in (mine, free):
            self.assertIs(Offer.AS_IRONIC_SAYS, offers.of(node))


class DoubtTestCase(cloud.AuditTestCase):

    def test_record_is_looked_at_while_others_may_have_taken_it(self):
        self.settle('a', 'b')
        mine = sorted(self.preferred('a', 'a', 'b'))
        offers = self.offers('a', *mine)
        self.cloud.owners[mine[0]] = 'b'
        self.assertIs(Offer.AS_IRONIC_SAYS, offers.of(mine[0]))
        self.clock.now += 1
        self.auditors['a'].doubt()
        self.assertIs(Offer.REFUSED, offers.of(mine[0]))
        self.assertIs(Offer.AS_IRONIC_SAYS, offers.of(mine[1]))


class ToMoveTestCase(cloud.AuditTestCase):
    """b is dead, and a has decided to have its nodes."""

    def setUp(self):
        super().setUp()
        self.settle('a', 'b')
        self.theirs = sorted(self.preferred('b', 'a', 'b'))
        self.used = self.theirs.pop()
        self.cloud.ironic[self.used] = 'i1'
        self.cloud.placed['i1'] = cloud.instance('b', self.used)
        self.cloud.set('b', up=False)
        self.decide()

    def decide(self):
        """Decide; nova's tracker has taken nothing yet."""
        owners = dict(self.cloud.owners)
        self.audit('a')
        self.cloud.owners = owners
        self.cloud.asked.clear()

    def to_move(self, *tracked, ending=False, label=''):
        offers = recheck.Recheck(
            self.auditors['a'], cloud.Tracker(*tracked), lambda: ending)
        return sorted(record.node for record
                      in offers.to_move(cloud.NODES, label))

    def test_free_nodes_of_the_dead(self):
        self.assertEqual(self.theirs, self.to_move())
        # Whatever their number, who is there is asked once.
        self.assertEqual(['b'], self.asked('service'))

    def test_free_nodes_of_the_dead_that_was_disabled_are_audited(self):
        """They may carry a trait that no build is to see any more."""
        self.options['policy'] = takeover.Policy('forced_down')
        self.cloud.set('b', up=False, disabled=True, forced_down=True)
        self.decide()
        self.assertEqual([self.used], self.to_move())
        del self.cloud.states['b']
        self.assertEqual([self.used], self.to_move())

    def test_what_the_tracker_has_and_who_ends(self):
        self.assertEqual(self.theirs[1:], self.to_move(self.theirs[0]))
        self.assertEqual([], self.to_move(ending=True))

    def test_free_nodes_when_this_host_is_disabled_since(self):
        self.options['policy'] = takeover.Policy('forced_down')
        self.cloud.set('b', up=False, forced_down=True)
        self.decide()
        settings = audit_state.Settings('a', points=32)
        for disabled, moved in (
                (True, [self.used]), (False, [*self.theirs, self.used])):
            self.cloud.set('a', disabled=disabled)
            self.auditors['a'].read_view(settings)
            self.assertEqual(sorted(moved), self.to_move())

    def test_node_that_has_moved_since(self):
        self.cloud.set('c')
        self.cloud.owners[self.theirs[0]] = 'c'
        self.cloud.owners[self.theirs[1]] = 'a'
        del self.cloud.owners[self.theirs[2]]
        self.assertEqual(
            [self.theirs[1], *self.theirs[3:]], self.to_move())

    def test_owner_that_is_back(self):
        self.cloud.set('b')
        self.assertEqual([], self.to_move())

    def test_node_whose_server_is_being_deleted_is_audited_as_it_comes(self):
        self.options['policy'] = takeover.Policy('forced_down')
        self.cloud.set('b', up=False, forced_down=True)
        self.cloud.placed['i1'] = dataclasses.replace(
            self.cloud.placed['i1'], task_state='deleting')
        self.decide()
        self.assertNotIn(self.used, self.to_move())

    def test_nodes_with_servers_that_came_with_them(self):
        """However they came: taken over just now, or before it ended."""
        self.options['policy'] = takeover.Policy('forced_down')
        self.cloud.set('b', up=False, forced_down=True)
        settings = audit_state.Settings('a', points=32, **self.options)
        for reason in Reason.TAKEN_OVER, Reason.INSTANCE_HERE:
            self.auditors['a'].audit_hosts(
                settings, ['b'], lambda audit, mine: None)
            self.cloud.asked.clear()
            self.assertIs(
                reason, self.auditors['a'].last.reasons[self.used])
            self.assertEqual([*self.theirs, self.used], self.to_move())
            self.assertEqual(['i1'], self.asked('instance_state'))

    def test_node_whose_server_is_another_hosts_or_gone(self):
        self.options['policy'] = takeover.Policy('forced_down')
        self.cloud.set('b', up=False, forced_down=True)
        self.decide()
        for state in (cloud.instance('c', self.used),
                      InstanceState('a', deleted=True)):
            self.cloud.placed['i1'] = state
            self.assertEqual(self.theirs, self.to_move())
        del self.cloud.placed['i1']
        self.assertEqual(self.theirs, self.to_move())

    def test_node_with_a_server_that_a_live_host_has_got(self):
        """The tracker takes it, if it is to be had."""
        self.options['policy'] = takeover.Policy('forced_down')
        self.cloud.set('b', up=False, forced_down=True)
        self.decide()
        self.cloud.set('c')
        self.cloud.owners[self.used] = 'c'
        self.assertEqual(self.theirs, self.to_move())

    def test_node_that_has_to_change_its_aggregates(self):
        self.cloud.host_aggregates = (
            peers.Aggregate.of('rack', ['a', 'b']),)
        self.decide()
        self.assertEqual(self.theirs, self.to_move())
        self.cloud.host_aggregates += (
            peers.Aggregate.of('fast', ['b']),)
        self.decide()
        self.assertEqual([], self.to_move())

    def test_record_that_names_another_partition(self):
        """Others learn from it which partition this host serves."""
        self.assertEqual([], self.to_move(label='shard=s1'))

    def test_before_the_first_audit(self):
        self.auditors['a'].last = None
        self.assertEqual([], self.to_move())

    def test_one_that_was_moved_and_is_pulled_back(self):
        offers = self.offers('a', *self.theirs)
        self.cloud.owners[self.theirs[0]] = 'a'
        self.assertIs(Offer.AS_IRONIC_SAYS, offers.of(self.theirs[0]))
        self.cloud.set('b')
        self.cloud.owners[self.theirs[0]] = 'b'
        self.assertIs(Offer.REFUSED, offers.of(self.theirs[0]))
