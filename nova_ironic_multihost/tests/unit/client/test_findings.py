# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.client import services
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests import views


class ObservationTestCase(base.BaseTestCase):

    def test_owned_nodes_whatever_the_case_of_the_host(self):
        seen = views.changed(views.consistent(), 'records', 0,
                             host='COMPUTE-1')
        self.assertEqual(['node-0', 'node-3'], seen.owned_by('Compute-1'))

    def test_free_nodes_are_those_without_instance(self):
        self.assertEqual(['node-3'], views.consistent().free_of('compute-1'))

    def test_up_hosts(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False)
        self.assertEqual({'compute-1', 'compute-3'}, seen.up_hosts)

    def test_machine_of_a_deleted_server_is_leaked(self):
        seen = views.changed(views.consistent(), 'instances', 0,
                             deleted=True)
        self.assertEqual(['node-0'], [n.uuid for n in seen.leaked()])
        self.assertEqual([], views.consistent().leaked())


class InconsistenciesTestCase(base.BaseTestCase):

    def kinds(self, seen, now=views.NOW):
        return [f.kind for f in findings.inconsistencies(seen, now)]

    def test_consistent_view_has_no_findings(self):
        self.assertEqual([], self.kinds(views.consistent()))

    def test_node_without_record(self):
        seen = views.without(views.consistent(), 'records', 1)
        [found] = findings.inconsistencies(seen, views.NOW)
        self.assertEqual(('node-without-record', 'node-1'),
                         (found.kind, found.subject))
        self.assertIn('node-1', found.sentence)
        # nova's API leaves out what a host owns that is not mapped.
        self.assertIn('nova-manage cell_v2 discover_hosts --by-service',
                      found.sentence)

    def test_node_with_two_records(self):
        seen = views.with_more(views.consistent(), 'records',
                               model.Record('node-1', 'compute-3'))
        self.assertIn('node-with-many-records', self.kinds(seen))

    def test_second_record_of_a_node(self):
        seen = views.with_more(
            views.consistent(), 'second',
            model.Record('node-1', 'compute-3', second='row'))
        [found] = findings.inconsistencies(seen, views.NOW)
        self.assertEqual(('second-record', 'node-1'),
                         (found.kind, found.subject))
        self.assertIn('compute-3 has a second record of node node-1',
                      found.sentence)
        self.assertIn("uuid = 'row'", found.sentence)

    def dead(self, seen, now=views.NOW):
        """{kind: sentence} of what is on dead hosts; each kind once."""
        found = findings.inconsistencies(seen, now)
        kinds = {one.kind: one.sentence for one in found}
        self.assertEqual(len(kinds), len(found))
        return kinds

    def test_free_nodes_of_a_host_that_is_down(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False,
                             seen=None)
        self.assertEqual(
            {'record-on-dead-host': '2 free nodes are on compute-2, down: '
             'others take them at their next audit'}, self.dead(seen))

    def test_servers_of_a_host_that_is_down(self):
        seen = views.changed(views.consistent(), 'services', 0, up=False)
        self.assertEqual(
            {findings.ON_DEAD_HOST: '1 server is on compute-1, down since '
             '1970-01-01 00:16 UTC: start it, or power it off and run '
             "'nova-ironic-multihost fence compute-1 --wait 600'",
             'record-on-dead-host': '1 free node is on compute-1, down since '
             '1970-01-01 00:16 UTC: others take them at their next audit'},
            self.dead(seen))
        self.assertEqual(
            {'compute-1'},
            {one.subject for one in findings.inconsistencies(seen, 1000)})

    def test_servers_of_a_host_that_is_fenced(self):
        seen = views.changed(views.consistent(), 'services', 0, up=False,
                             forced_down=True)
        self.assertEqual(
            '1 server is on compute-1, which is fenced: others take them '
            "over. To see what waits, run 'nova-ironic-multihost fence "
            "compute-1 --wait 600'", self.dead(seen)[findings.ON_DEAD_HOST])

    def test_servers_of_a_host_that_nova_does_not_have(self):
        seen = views.without(views.consistent(), 'services', 0)
        self.assertIn('1 server is on compute-1, of which nova has no compute '
                      'service: others take them over',
                      self.dead(seen)[findings.ON_DEAD_HOST])

    def test_node_of_a_build_stays_with_a_host_that_is_down(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False)
        seen = views.with_more(seen, 'instances', cloud_state.CloudServer(
            uuid='new', host='compute-2', node='node-4', vm_state='building',
            task_state='spawning', updated=views.NOW))
        seen = views.with_more(seen, 'allocations',
                               cloud_state.Allocation('new', 'node-4'))
        self.assertEqual({'record-on-dead-host', findings.ON_DEAD_HOST},
                         set(self.dead(seen)))

    def test_record_on_a_host_without_service(self):
        seen = views.changed(views.consistent(), 'records', 1, host='gone')
        self.assertEqual(['record-on-dead-host'], self.kinds(seen))

    def test_dead_host_without_nodes_is_no_finding(self):
        seen = views.with_more(
            views.consistent(), 'services',
            cloud_state.Service('compute-4', up=False, mapped=False))
        self.assertEqual([], self.kinds(seen))

    def test_record_of_a_node_that_ironic_lacks(self):
        seen = views.with_more(
            views.consistent(),
            'records',
            model.Record('stranger', 'compute-1'),
        )
        self.assertEqual(['record-without-node'], self.kinds(seen))

    def test_expected_computes(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False)
        seen = views.with_more(seen, 'services', cloud_state.Service(
            'fenced', up=False, forced_down=True))

        def expect(*hosts):
            return [(f.kind, f.subject, f.sentence) for f
                    in findings.inconsistencies(seen, views.NOW, hosts)
                    if f.kind.startswith('compute-')]

        self.assertEqual([], expect('COMPUTE-1'))
        [(kind, subject, _)] = expect('compute-9', 'compute-1')
        self.assertEqual(('compute-missing', 'compute-9'), (kind, subject))
        [(kind, subject, sentence)] = expect('compute-2')
        self.assertEqual(('compute-not-up', 'compute-2'), (kind, subject))
        self.assertIn('heartbeat', sentence)
        self.assertIn('forced down', expect('fenced')[0][2])

    def test_node_without_provider(self):
        seen = views.without(views.consistent(), 'providers', 2)
        self.assertEqual(['node-without-provider'], self.kinds(seen))

    def test_provider_without_node(self):
        seen = views.with_more(views.consistent(), 'providers',
                               cloud_state.Provider('stranger'))
        self.assertEqual(['provider-without-node'], self.kinds(seen))

    def test_free_node_of_an_enabled_host_marked_disabled(self):
        barred = views.changed(views.consistent(), 'providers', 1,
                               traits=frozenset({cloud_state.DISABLED_TRAIT}))
        self.assertEqual(['free-node-barred'], self.kinds(barred))
        drained = views.changed(barred, 'services', 1, disabled=True)
        self.assertEqual([], self.kinds(drained))

    def test_allocation_without_instance(self):
        seen = views.with_more(views.consistent(), 'allocations',
                               cloud_state.Allocation('ghost', 'node-1'))
        [found] = findings.inconsistencies(seen, views.NOW)
        self.assertEqual('allocation-without-instance:ghost', found.name)
        self.assertIn(f'repair {found.name}"', found.sentence)

    def test_instance_without_allocation(self):
        seen = views.without(views.consistent(), 'allocations', 0)
        [found] = findings.inconsistencies(seen, views.NOW)
        self.assertEqual('instance-without-allocation:server-0', found.name)
        self.assertIn(f'repair {found.name}"', found.sentence)

    def test_provider_with_the_name_of_a_node(self):
        seen = views.with_more(
            views.consistent(), 'providers',
            cloud_state.Provider('other', name='node-1'))
        [found] = findings.inconsistencies(seen, views.NOW)
        self.assertEqual('second-provider:other', found.name)
        self.assertIn('has the name of node node-1', found.sentence)

    def test_allocations_that_were_not_read_are_not_judged(self):
        seen = dataclasses.replace(views.consistent(), allocations=None)
        self.assertEqual([], self.kinds(seen))

    def test_server_that_was_offloaded_needs_no_machine(self):
        seen = views.with_more(
            views.consistent(), 'instances',
            cloud_state.CloudServer(uuid='away', vm_state='shelved_offloaded'))
        self.assertEqual([], self.kinds(seen))

    def test_server_that_waits_for_a_host_needs_no_allocation(self):
        seen = views.with_more(
            views.consistent(), 'instances',
            cloud_state.CloudServer(
                uuid='new', vm_state='building', task_state='scheduling',
                updated=views.NOW))
        self.assertEqual([], self.kinds(seen))

    def test_machine_of_a_deleted_server(self):
        seen = views.changed(views.consistent(), 'instances', 0,
                             deleted=True)
        self.assertEqual(['allocation-without-instance', 'leaked-machine'],
                         self.kinds(seen))

    def test_machine_of_a_server_nobody_knows(self):
        seen = views.changed(views.consistent(), 'nodes', 4,
                             instance_uuid='ghost')
        self.assertEqual(['leaked-machine'], self.kinds(seen))

    def test_active_node_without_any_server(self):
        seen = views.changed(views.consistent(), 'nodes', 4,
                             provision_state='active')
        self.assertEqual(['leaked-machine'], self.kinds(seen))

    def test_active_server_without_machine(self):
        seen = views.changed(views.consistent(), 'nodes', 0,
                             instance_uuid=None,
                             provision_state='available')
        self.assertEqual(['instance-without-machine'], self.kinds(seen))

    def test_record_elsewhere_than_its_server(self):
        seen = views.changed(views.consistent(), 'records', 0,
                             host='compute-2')
        self.assertEqual(['record-elsewhere'], self.kinds(seen))

    def test_record_of_a_server_that_has_no_host_yet_is_nowhere_else(self):
        seen = views.changed(views.consistent(), 'instances', 0, host=None,
                             vm_state='building', task_state='scheduling',
                             updated=views.NOW)
        self.assertEqual([], self.kinds(seen))

    def test_stuck_only_after_a_while(self):
        seen = views.changed(views.consistent(), 'instances', 0,
                             task_state='rebooting', updated=views.NOW)
        self.assertEqual([], self.kinds(seen, views.NOW + 5))
        self.assertEqual(['stuck'],
                         self.kinds(seen, views.NOW + seen.task_limit + 1))

    def test_stuck_in_a_take_over(self):
        seen = views.changed(
            views.consistent(), 'instances', 0, updated=views.NOW,
            task_state=takeover.taken('deleting', host_key('compute-3')))
        [found] = findings.inconsistencies(
            seen, views.NOW + seen.task_limit + 1)
        self.assertEqual('stuck', found.kind)
        self.assertIn(': taken over by compute-3, was deleting',
                      found.sentence)


class StoppingTestCase(base.BaseTestCase):

    MOMENT = datetime.datetime(2026, 5, 4, tzinfo=datetime.UTC)

    def found(self, after, **state):
        """Return the findings so many seconds after a compute was stopped."""
        seen = views.changed(
            views.consistent(), 'services', 1,
            stop_marker=liveness.stop_marker_text(self.MOMENT), **state)
        return [one for one in findings.inconsistencies(
            seen, self.MOMENT.timestamp() + after)
            if one.kind == 'still-stopping']

    def test_compute_that_was_stopped_and_runs(self):
        self.assertEqual([], self.found(600, disabled=True))
        [found] = self.found(601, disabled=True)
        self.assertEqual('compute-2', found.subject)
        self.assertIn('2026-05-04 00:00 UTC', found.sentence)
        self.assertIn('--enable compute-2', found.sentence)
        [found] = self.found(601)
        self.assertNotIn('disabled', found.sentence)

    def test_compute_that_was_stopped_and_is_down(self):
        self.assertEqual([], self.found(6000, disabled=True, up=False))


class WaitTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = views.NOW
        self.broken = views.without(views.consistent(), 'records', 1)

    def wait(self, seen, seconds, hosts=(), takes=0):
        """Wait with the given views, the last one for ever.

        :param takes: seconds that a look takes
        :returns: findings
        """
        self.looks = 0

        def read():
            self.now += takes
            self.looks += 1
            return seen.pop(0) if len(seen) > 1 else seen[0]

        def sleep(seconds):
            self.now += seconds

        self.last, found = findings.wait(
            read, seconds, hosts, clock=lambda: self.now, sleep=sleep)
        return found

    def test_looks_once_without_time(self):
        found = self.wait([self.broken, views.consistent()], 0)
        self.assertEqual(['node-without-record'], [f.kind for f in found])

    def test_goes_by_the_time_of_the_cloud(self):
        seen = views.changed(
            views.consistent(), 'instances', 0, task_state='deleting')
        self.now += 7200
        self.assertEqual([], self.wait([seen], 0))

    def test_ends_when_consistent(self):
        good = views.consistent()
        self.assertEqual([], self.wait([self.broken, good], 60))
        self.assertIs(good, self.last)
        self.assertEqual(views.NOW + services.PAUSE, self.now)

    def test_gives_servers_in_progress_time_to_finish(self):
        busy = views.changed(views.consistent(), 'instances', 0,
                             task_state='deleting', updated=views.NOW)
        self.assertEqual([], self.wait([busy, views.consistent()], 60))
        self.assertEqual(views.NOW + services.PAUSE, self.now)

    def test_ends_with_findings_when_the_time_is_over(self):
        found = self.wait([self.broken], 5)
        self.assertEqual(['node-without-record'], [f.kind for f in found])
        self.assertEqual(views.NOW + 5, self.now)

    def test_waits_for_a_compute_that_is_to_be_up(self):
        late = views.without(views.consistent(), 'services', 2)
        late = views.without(views.without(late, 'records', 5), 'records', 2)
        late = views.without(views.without(late, 'nodes', 5), 'nodes', 2)
        late = views.without(
            views.without(late, 'providers', 5), 'providers', 2)
        self.assertEqual([], self.wait([late], 60))
        [found] = self.wait([late], 60, ['compute-3'])
        self.assertEqual('compute-missing', found.kind)
        self.assertEqual(
            [], self.wait([late, views.consistent()], 60, ['compute-3']))

    def test_asks_a_slow_cloud_less_often(self):
        self.wait([self.broken], 60, takes=10)
        self.assertEqual(4, self.looks)
