# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

import argparse
import contextlib
import io
import json
from unittest import mock

import fixtures
from oslotest import base

from lab import check
from lab import errors
from lab import settings
from lab import state
from lab import view
from nova_ironic_multihost.tests.unit.lab import views


class InconsistenciesTestCase(base.BaseTestCase):

    def kinds(self, seen, now=views.NOW):
        return [f.kind for f in check.inconsistencies(seen, now)]

    def test_consistent_view_has_no_findings(self):
        self.assertEqual([], self.kinds(views.consistent()))

    def test_node_without_record(self):
        seen = views.without(views.consistent(), 'records', 1)
        [found] = check.inconsistencies(seen, views.NOW)
        self.assertEqual(('node-without-record', 'node-1'),
                         (found.kind, found.subject))
        self.assertIn('node-1', found.sentence)

    def test_node_with_two_records(self):
        seen = views.with_more(views.consistent(), 'records',
                               view.Record('node-1', 'compute-3'))
        self.assertIn('node-with-many-records', self.kinds(seen))

    def test_record_on_a_host_that_is_down(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False)
        self.assertEqual(['record-on-dead-host'] * 2, self.kinds(seen))

    def test_record_on_a_host_without_service(self):
        seen = views.changed(views.consistent(), 'records', 1, host='gone')
        self.assertEqual(['record-on-dead-host'], self.kinds(seen))

    def test_dead_host_without_nodes_is_no_finding(self):
        seen = views.with_more(
            views.consistent(), 'services',
            view.Service('compute-4', up=False, mapped=False))
        self.assertEqual([], self.kinds(seen))

    def test_record_of_a_node_that_ironic_lacks(self):
        seen = views.with_more(views.consistent(), 'records',
                               view.Record('stranger', 'compute-1'))
        self.assertEqual(['record-without-node'], self.kinds(seen))

    def test_host_not_mapped(self):
        seen = views.changed(views.consistent(), 'services', 2, mapped=False)
        self.assertEqual(['host-not-mapped'], self.kinds(seen))

    def test_node_without_provider(self):
        seen = views.without(views.consistent(), 'providers', 2)
        self.assertEqual(['node-without-provider'], self.kinds(seen))

    def test_provider_without_node(self):
        seen = views.with_more(views.consistent(), 'providers',
                               view.Provider('stranger'))
        self.assertEqual(['provider-without-node'], self.kinds(seen))

    def test_free_node_of_an_enabled_host_marked_disabled(self):
        barred = views.changed(views.consistent(), 'providers', 1,
                               traits=frozenset({view.DISABLED_TRAIT}))
        self.assertEqual(['free-node-barred'], self.kinds(barred))
        drained = views.changed(barred, 'services', 1, disabled=True)
        self.assertEqual([], self.kinds(drained))

    def test_allocation_without_instance(self):
        seen = views.with_more(views.consistent(), 'allocations',
                               view.Allocation('ghost', 'node-1'))
        self.assertEqual(['allocation-without-instance'], self.kinds(seen))

    def test_instance_without_allocation(self):
        seen = views.without(views.consistent(), 'allocations', 0)
        self.assertEqual(['instance-without-allocation'], self.kinds(seen))

    def test_server_that_waits_for_a_host_needs_no_allocation(self):
        seen = views.with_more(
            views.consistent(), 'instances',
            view.Instance('new', vm_state='building',
                          task_state='scheduling', updated=views.NOW))
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

    def test_stuck_only_after_a_while(self):
        seen = views.changed(views.consistent(), 'instances', 0,
                             task_state='rebooting', updated=views.NOW)
        self.assertEqual([], self.kinds(seen, views.NOW + 5))
        self.assertEqual(['stuck'],
                         self.kinds(seen, views.NOW + check.STUCK_AFTER + 1))


class WaitTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = views.NOW
        self.broken = views.without(views.consistent(), 'records', 1)

    def wait(self, seen, seconds):
        """Wait with the given views, the last one for ever."""
        def read():
            return seen.pop(0) if len(seen) > 1 else seen[0]

        def sleep(seconds):
            self.now += seconds

        return check.wait(read, seconds, clock=lambda: self.now, sleep=sleep)

    def test_looks_once_without_time(self):
        found = self.wait([self.broken, views.consistent()], 0)
        self.assertEqual(['node-without-record'], [f.kind for f in found])

    def test_ends_when_consistent(self):
        self.assertEqual(
            [], self.wait([self.broken, views.consistent()], 60))
        self.assertEqual(views.NOW + 1, self.now)

    def test_gives_servers_in_progress_time_to_finish(self):
        busy = views.changed(views.consistent(), 'instances', 0,
                             task_state='deleting', updated=views.NOW)
        self.assertEqual([], self.wait([busy, views.consistent()], 60))
        self.assertEqual(views.NOW + 1, self.now)

    def test_ends_with_findings_when_the_time_is_over(self):
        found = self.wait([self.broken], 5)
        self.assertEqual(['node-without-record'], [f.kind for f in found])
        self.assertEqual(views.NOW + 5, self.now)


class CommandTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.settings = settings.load(
            self.useFixture(fixtures.TempDir()).path, 20000)
        self.state = state.State(self.settings)
        self.state.write('up')

    def run_check(self, seen, *argv):
        parser = argparse.ArgumentParser()
        check.register(parser.add_subparsers())
        args = parser.parse_args(['check', *argv])
        out = io.StringIO()
        with mock.patch.object(view, 'read', return_value=seen), \
                contextlib.redirect_stdout(out):
            return args.func(args, self.settings), out.getvalue()

    def test_lab_that_is_down_is_not_judged(self):
        # What answers at its ports then is another lab.
        self.state.write('down')
        error = self.assertRaises(
            errors.LabError, self.run_check, views.consistent())
        self.assertIn('tools/lab up', str(error))

    def test_consistent(self):
        self.assertEqual((0, 'consistent\n'),
                         self.run_check(views.consistent()))

    def test_one_line_for_each_finding(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False)
        status, printed = self.run_check(seen)
        self.assertEqual(1, status)
        self.assertEqual(2, len(printed.splitlines()))

    def test_json(self):
        seen = views.without(views.consistent(), 'records', 1)
        status, printed = self.run_check(seen, '--json')
        self.assertEqual(1, status)
        told = json.loads(printed)
        self.assertFalse(told['consistent'])
        self.assertEqual('node-without-record', told['findings'][0]['kind'])
