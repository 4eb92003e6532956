# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from lab import ledger

BEFORE = ledger.Ledger(
    {'server-0': ledger.Server('one', 'compute-1', 'active')},
    {'node-0': ledger.Machine('server-0', 'active', 'power on', 100)},
    (ledger.Deed('server-0', 'create', 'compute-1', 1.0, 'Success'),))


def after(server=None, machine=None, deeds=()):
    """What there is later, with some things changed."""
    return ledger.Ledger(
        {'server-0': dataclasses.replace(
            BEFORE.servers['server-0'], **server or {})},
        {'node-0': dataclasses.replace(
            BEFORE.machines['node-0'], **machine or {})},
        BEFORE.deeds + tuple(deeds))


class DifferencesTestCase(base.BaseTestCase):

    def test_none(self):
        self.assertEqual([], ledger.differences(BEFORE, after()))

    def test_of_a_server(self):
        for field, value in (('host', 'compute-2'), ('vm_state', 'stopped'),
                             ('task_state', 'rebooting'), ('power', 4),
                             ('deleted', True)):
            with self.subTest(field):
                [sentence] = ledger.differences(
                    BEFORE, after(server={field: value}))
                self.assertIn('one', sentence)
                self.assertIn(f'is {value}', sentence)

    def test_of_a_machine(self):
        for field, value in (('instance_uuid', None),
                             ('provision_state', 'available'),
                             ('power_state', 'power off')):
            [sentence] = ledger.differences(
                BEFORE, after(machine={field: value}))
            self.assertIn('node-0', sentence)

    def test_a_machine_that_was_restarted_only_shows_when(self):
        late = after(machine={'changed': 101})
        self.assertEqual([], ledger.differences(BEFORE, late))
        self.assertEqual({'node-0'}, ledger.touched(BEFORE, late))
        self.assertEqual(set(), ledger.touched(BEFORE, after()))


class DeedsTestCase(base.BaseTestCase):

    def test_only_new_ones_of_that_host(self):
        late = after(deeds=[
            ledger.Deed('server-0', 'stop', 'compute-2', 2.0, 'Success'),
            ledger.Deed('server-0', 'reboot', 'Compute-1', 3.0, 'Error'),
            ledger.Deed('server-0', 'reboot', 'compute-1', 4.0, 'Error'),
            ledger.Deed('server-0', 'start', 'compute-1', 5.0)])
        self.assertEqual(
            {'reboot: Error': 2, 'start: not ended': 1},
            ledger.deeds_of(BEFORE, late, 'compute-1'))


class LostTestCase(base.BaseTestCase):

    def test_a_server_has_its_machine(self):
        self.assertEqual([], ledger.lost(BEFORE))

    def test_held_for_nobody_or_not_deployed(self):
        self.assertEqual(['one'], ledger.lost(
            after(machine={'instance_uuid': None})))
        self.assertEqual(['one'], ledger.lost(
            after(machine={'provision_state': 'deleting'})))

    def test_who_has_a_right_to_none(self):
        for server in ({'deleted': True}, {'vm_state': 'error'},
                       {'vm_state': 'building'}):
            self.assertEqual([], ledger.lost(
                after(server=server, machine={'instance_uuid': None})))
