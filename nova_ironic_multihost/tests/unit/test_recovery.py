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

import copy
import datetime
import threading
import types

from oslotest import base

from nova_ironic_multihost.core import takeover
from nova_ironic_multihost import recovery


NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


class Instances:
    """Instances in a dict; what nova does for them is noted."""

    def __init__(self):
        self.rows = {}
        self.done = []
        self.init_does = lambda row: None

    def have(self, vm_state, task_state, uuid='i1'):
        self.rows[uuid] = types.SimpleNamespace(
            uuid=uuid, vm_state=vm_state, task_state=task_state)

    def read(self, uuid):
        return copy.copy(self.rows.get(uuid))

    def set_states(self, instance, vm_state, task_state):
        row = self.rows.get(instance.uuid)
        if row is None or row.task_state != instance.task_state:
            return False
        row.vm_state = instance.vm_state = vm_state
        row.task_state = instance.task_state = task_state
        return True

    def began(self, uuid, action):
        return NOON if action == 'rebuild' else None

    def init(self, instance):
        self.done.append(('init', instance.task_state))
        self.init_does(self.rows[instance.uuid])

    def delete(self, instance):
        self.done.append(('delete', instance.task_state))
        del self.rows[instance.uuid]

    def restore(self, instance):
        self.done.append(('restore', instance.task_state))

    def notify(self, event, payload):
        raise OSError('no bus')

    def fail(self, instance, reason):
        self.done.append(('fail', reason))
        self.rows[instance.uuid].vm_state = 'error'
        self.rows[instance.uuid].task_state = None

    def deployed(self, instance):
        self.done.append(('deployed', instance.task_state))
        self.rows[instance.uuid].vm_state = 'active'
        self.rows[instance.uuid].task_state = None


class InstancesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.instances = Instances()
        self.machine = 'active'
        self.deployment = None
        self.redeployed = False
        self.recovery = recovery.Recovery(self.instances, self)

    def join(self):
        """Wait for all that goes on."""
        while threads := [thread for thread in threading.enumerate()
                          if thread.name == recovery.THREAD]:
            for thread in threads:
                thread.join(60)

    def bring_to_rest(self):
        self.recovery.bring_to_rest('i1')
        self.join()

    # The machines.

    def provision_state(self, instance):
        return self.machine

    def deployed_since(self, instance, moment):
        self.assertEqual(NOON, moment)
        return self.redeployed

    def wait_until_deployed(self, instance):
        if self.deployment:
            raise self.deployment

    def taken(self, vm_state, task_state, uuid='i1'):
        self.instances.have(vm_state, takeover.mark(task_state, 't'), uuid)

    def states(self, uuid='i1'):
        row = self.instances.rows[uuid]
        return row.vm_state, row.task_state


class RecoveryTestCase(InstancesTestCase):

    def test_one_that_did_nothing(self):
        self.taken('active', None)
        self.bring_to_rest()
        self.assertEqual([('init', None)], self.instances.done)
        self.assertEqual(('active', None), self.states())

    def test_nova_sees_what_it_was_doing(self):
        self.taken('active', 'powering-off')
        self.bring_to_rest()
        self.assertEqual([('init', 'powering-off')], self.instances.done)

    def test_what_is_to_be_deleted_is(self):
        for vm_state in ('active', 'building', 'error', 'soft-delete'):
            self.taken(vm_state, 'deleting')
            self.bring_to_rest()
            self.assertEqual({}, self.instances.rows)
        self.assertEqual([('delete', 'deleting')] * 4, self.instances.done)

    def test_what_is_to_be_restored_is(self):
        self.taken('soft-delete', 'restoring')
        self.bring_to_rest()
        self.assertEqual([('restore', 'restoring')], self.instances.done)
        # Nobody has taken away what keeps it from being deleted.
        self.assertEqual(('soft-delete', 'restoring'), self.states())

    def test_what_nova_does_not_end_is_ended(self):
        self.taken('active', 'rescuing')
        self.machine = 'rescue'
        self.bring_to_rest()
        self.assertEqual(('rescued', None), self.states())

    def test_what_somebody_else_began_meanwhile_goes_on(self):
        self.taken('active', 'rescuing')

        def begin(row):
            row.task_state = 'rebooting'

        self.instances.init_does = begin
        self.bring_to_rest()
        self.assertEqual(('active', 'rebooting'), self.states())

    def test_a_build_that_goes_on(self):
        self.taken('building', 'spawning')
        self.machine = 'deploying'
        self.bring_to_rest()
        self.assertEqual([('deployed', 'spawning')], self.instances.done)
        self.assertEqual(('active', None), self.states())

    def test_a_rebuild_of_which_ironic_was_told_or_not(self):
        for self.redeployed, expected in ((True, 'active'),
                                          (False, 'error')):
            self.taken('active', 'rebuild_spawning')
            self.bring_to_rest()
            self.assertEqual((expected, None), self.states())

    def test_a_build_that_fails_in_the_end(self):
        self.taken('building', 'spawning')
        self.machine = 'deploying'
        self.deployment = ValueError('no disk')
        self.bring_to_rest()
        [(what, reason)] = self.instances.done
        self.assertEqual('fail', what)
        self.assertIn('no disk', reason)

    def test_a_build_that_never_began(self):
        self.taken('building', 'spawning')
        self.machine = None
        self.bring_to_rest()
        [(what, reason)] = self.instances.done
        self.assertEqual('fail', what)
        self.assertIn('spawning', reason)

    def test_one_that_is_gone_or_not_being_taken_over(self):
        self.bring_to_rest()
        self.instances.have('active', 'rebooting')
        self.bring_to_rest()
        self.assertEqual([], self.instances.done)

    def test_one_that_another_host_has_taken_since(self):
        self.taken('active', None)
        read = self.instances.read

        def read_too_late(uuid):
            instance = read(uuid)
            self.instances.rows[uuid].task_state = takeover.mark(None, 'u')
            return instance

        self.instances.read = read_too_late
        self.bring_to_rest()
        self.assertEqual([], self.instances.done)


class WorkTestCase(InstancesTestCase):
    """In a thread."""

    def add(self, *uuids):
        self.recovery.add(uuids)
        self.join()

    def test_all_are_brought_to_rest(self):
        for uuid in ('i1', 'i2', 'i3'):
            self.taken('active', 'rescuing', uuid)
        self.add('i1', 'i2')
        self.add('i3')
        self.add()
        self.assertEqual([('active', None)] * 3,
                         [self.states(uuid) for uuid in ('i1', 'i2', 'i3')])

    def test_a_notification_that_cannot_be_sent_hurts_nobody(self):
        self.taken('active', 'rescuing')
        with self.assertLogs(recovery.__name__, 'WARNING') as logs:
            self.recovery.took_over({'i1': 'dead'})
            self.join()
        self.assertIn('no bus', logs.output[0])
        self.assertEqual(('active', None), self.states())

    def test_deployments_hold_up_nobody(self):
        self.machine = 'deploying'
        number = 2 * recovery.WORKERS
        everybody = threading.Barrier(number, timeout=60)
        self.wait_until_deployed = lambda instance: everybody.wait()
        uuids = [f'i{i}' for i in range(number)]
        for uuid in uuids:
            self.taken('building', 'spawning', uuid)
        self.add(*uuids)
        self.assertEqual({('active', None)}, set(map(self.states, uuids)))

    def test_only_so_many_at_once(self):
        running, most = [], []

        def init(row):
            running.append(row)
            most.append(len(running))
            running.remove(row)

        self.instances.init_does = init
        uuids = [f'i{i}' for i in range(5 * recovery.WORKERS)]
        for uuid in uuids:
            self.taken('active', None, uuid)
        self.add(*uuids)
        self.assertEqual(len(uuids), len(most))
        self.assertLessEqual(max(most), recovery.WORKERS)

    def test_one_that_fails_does_not_hold_up_the_others(self):
        for uuid in ('i1', 'i2'):
            self.taken('active', None, uuid)

        def fail_once(row):
            if row.uuid == 'i1':
                raise ValueError('no')

        self.instances.init_does = fail_once
        self.add('i1', 'i2')
        self.assertEqual(2, len(self.instances.done))


class StartTestCase(InstancesTestCase):

    def start(self, init):
        self.recovery.start(init, self.instances.rows['i1'])

    def test_nova_does_it(self):
        self.instances.have('active', 'powering-off')
        called = []
        self.start(lambda: called.append(True))
        self.assertEqual([True], called)

    def test_what_fails_does_not_end_the_service(self):
        self.instances.have('active', 'rebooting_hard')

        def init():
            raise ValueError('InstanceActionEventNotFound')

        self.start(init)

    def test_a_take_over_that_was_cut_off_goes_on(self):
        self.taken('active', 'rescuing')
        self.start(lambda: self.fail('nova knows no such task state'))
        self.join()
        self.assertEqual(('active', None), self.states())
