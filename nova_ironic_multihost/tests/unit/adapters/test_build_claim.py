# SPDX-License-Identifier: Apache-2.0

import functools
import types
from unittest import mock

from nova import exception
from nova import objects
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel

from nova_ironic_multihost.adapters import build_claim
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base


class Left(BaseException):
    """The guard ends the build."""


class SavingTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.instance(uuidsentinel.instance, 'mine')
        row = self.read()
        row.vm_state = 'building'
        row.save()
        self.build = self.read()
        self.guard = mock.Mock(
            building=True, persist=lambda name, instance, act, again: act())
        self.guard.leave.side_effect = Left
        self.build.save = build_claim.GuardedSave(
            self.guard, 'build', self.build)
        self.save('networking', expected_task_state=[None])

    def read(self):
        return objects.Instance.get_by_uuid(
            self.context, uuidsentinel.instance)

    def save(self, task_state, **conditions):
        self.build.task_state = task_state
        self.build.save(**conditions)

    def write(self, task_state):
        """Somebody else writes a task state."""
        other = self.read()
        other.task_state = task_state
        other.save()

    def test_build_that_nobody_disturbs_goes_on(self):
        self.save('block_device_mapping')
        self.save('spawning', expected_task_state='block_device_mapping')
        self.build.vm_state = 'active'
        self.save(None, expected_task_state='spawning')
        self.assertEqual(('active', None), (
            self.read().vm_state, self.read().task_state))

    def test_mark_of_who_takes_it_over_stays(self):
        mark = takeover.taken('networking', 'other')
        self.write(mark)
        self.assertRaises(exception.UnexpectedTaskStateError,
                          self.save, 'block_device_mapping')
        # What nova writes when it gives the claim back.
        self.build.host = None
        self.build.save()
        self.assertEqual((mark, None),
                         (self.read().task_state, self.read().host))

    def test_mark_that_the_object_has_by_now_stays(self):
        """What is saved brings along what others have written."""
        mark = takeover.taken('networking', 'other')
        self.write(mark)
        self.build.system_metadata['network_allocated'] = 'True'
        self.build.save()
        self.assertEqual(mark, self.build.task_state)
        self.assertRaises(exception.UnexpectedTaskStateError,
                          self.save, 'block_device_mapping')
        self.assertEqual(mark, self.read().task_state)

    def test_administrator_who_gives_it_up_is_heard(self):
        other = self.read()
        other.update({'vm_state': 'error', 'task_state': None})
        other.save()
        self.build.vm_state = 'building'
        self.assertRaises(exception.UnexpectedTaskStateError,
                          self.save, 'block_device_mapping')
        self.build.host = None
        self.build.save()
        self.assertEqual(('error', None), (
            self.read().vm_state, self.read().task_state))

    def test_user_who_deletes_it_is_heard(self):
        self.write('deleting')
        self.assertRaises(exception.UnexpectedDeletingTaskStateError,
                          self.save, 'block_device_mapping')
        self.assertEqual('deleting', self.read().task_state)

    def test_answer_that_was_lost_is_novas_matter(self):
        """It gives the claim back and writes that the build has failed."""
        real = objects.Instance.get_by_uuid(
            self.context, uuidsentinel.instance)
        real.task_state = 'spawning'
        real.save()
        self.build.host = None
        self.build.save()
        self.build.vm_state = 'error'
        self.save(None)
        self.assertEqual(('error', None), (
            self.read().vm_state, self.read().task_state))

    def be_built_elsewhere(self):
        other = self.read()
        other.update({'host': 'other', 'vm_state': 'active',
                      'task_state': None})
        other.save()

    def test_server_that_another_has_built_is_left_alone(self):
        for changes in ({'host': None}, {'task_state': 'scheduling'},
                        {'host': None, 'task_state': 'scheduling'},
                        {'vm_state': 'error', 'task_state': None}):
            self.be_built_elsewhere()
            self.build.update(changes)
            self.assertRaises(Left, self.build.save)
            found = self.read()
            self.assertEqual(('other', 'active', None), (
                found.host, found.vm_state, found.task_state))

    def test_server_that_another_has_built_is_not_begun(self):
        """nova takes what has no task state for what is to be built."""
        for new, expected in ((None, ('scheduling', None)),
                              ('networking', [None])):
            self.be_built_elsewhere()
            again = self.read()
            again.save = build_claim.GuardedSave(self.guard, 'build', again)
            again.vm_state, again.task_state = 'building', new
            self.assertRaises(Left, functools.partial(
                again.save, expected_task_state=expected))
            self.assertEqual('active', self.read().vm_state)

    def test_it_is_noted_that_it_is_scheduled_anew(self):
        self.assertFalse(self.guard.note_scheduled.called)
        self.save('scheduling')
        self.guard.note_scheduled.assert_called_once_with()

    def test_what_is_written_already_may_be_written_again(self):
        """Its answer was lost."""
        def persist(name, instance, act, again):
            other = self.read()
            changes = {field: getattr(instance, field)
                       for field in ('task_state', 'vm_state')}
            act()
            instance.update(changes)
            instance._changed_fields.update(changes)
            again()
            other.refresh()
            self.assertEqual(changes, {
                field: getattr(other, field) for field in changes})

        self.guard.persist = persist
        self.save('block_device_mapping')
        self.save('spawning', expected_task_state='block_device_mapping')
        self.build.vm_state = 'active'
        self.save(None, expected_task_state='spawning')
        self.write('deleting')
        self.build.vm_state = 'active'
        self.assertRaises(exception.UnexpectedDeletingTaskStateError,
                          self.save, None, expected_task_state='spawning')

    def test_under_the_lock_of_the_tracker_nothing_waits(self):
        """Whatever else was not saved before."""
        persist, self.guard.persist = self.guard.persist, None
        self.guard.give_back = self.guard.claim = (
            lambda name, instance, act: act())
        self.build.task_state = 'networking'
        for host, layer in (
            (None, build_claim.abort),
            ('mine', build_claim.claim),
        ):
            self.build.host = host
            base.around(layer, self.build, lambda: self.build.save(),
                        guard=self.guard)
            self.assertEqual(host, self.read().host)
        # And afterwards something waits again.
        self.guard.persist = mock.Mock(side_effect=persist)
        self.save('block_device_mapping')
        self.assertTrue(self.guard.persist.called)

    def test_what_is_no_build_gives_back_as_nova_does(self):
        given = []
        guard = mock.Mock(give_back=lambda name, instance, act: act())
        base.around(build_claim.abort, self.read(), lambda: given.append(1),
                    guard=guard)
        self.assertEqual([1], given)

    def test_server_that_runs_is_left_when_that_cannot_be_written(self):
        for vm_state, error in (('active', Left),
                                ('building', messaging.MessagingTimeout)):
            self.guard.persist = mock.Mock(
                side_effect=messaging.MessagingTimeout)
            self.build.vm_state = vm_state
            self.assertRaises(error, self.save, None,
                              expected_task_state='networking')

    def test_server_that_a_user_is_at_already_is_left(self):
        """It was written that it runs, and the answer was lost."""
        other = self.read()
        other.update({'vm_state': 'active', 'task_state': 'powering-off'})
        other.save()
        self.build.vm_state = 'active'
        self.assertRaises(Left, self.save, None,
                          expected_task_state='networking')
        self.assertEqual('powering-off', self.read().task_state)

    def test_what_is_no_build_any_more_writes_as_nova_does(self):
        self.guard.building = False
        self.be_built_elsewhere()
        self.build.vm_state = 'error'
        self.build.save()
        self.assertEqual('error', self.read().vm_state)

    def test_what_is_no_task_state_is_written_whatever_is_there(self):
        self.write('deleting')
        self.build.system_metadata['network_allocated'] = 'True'
        self.build.save()
        self.assertEqual(
            'True', self.read().system_metadata['network_allocated'])


class ClaimTestCase(base.DatabaseTestCase):

    has_node = True

    def claim(self, building, act=lambda instance: 'claimed', uuid=None):
        instance = self.instance(uuid or uuidsentinel.instance, None)
        instance.vm_state = 'building'
        instance.save()
        guard = types.SimpleNamespace(
            claim=lambda name, instance, act: act(), building=building,
            has_node=lambda: self.has_node,
            persist=lambda name, instance, act, again: act(),
            leave=mock.Mock(side_effect=Left))
        instance.save = build_claim.GuardedSave(guard, 'build', instance)
        self.assertEqual('claimed', base.around(
            build_claim.claim, instance, lambda: act(instance), guard=guard))
        instance.task_state = 'networking'
        instance.save()
        other = objects.Instance.get_by_uuid(self.context, instance.uuid)
        other.task_state = 'deleting'
        other.save()
        instance.task_state = 'block_device_mapping'
        return instance

    def test_build_writes_over_its_own_from_then_on(self):
        self.assertRaises(exception.UnexpectedDeletingTaskStateError,
                          self.claim(building=True).save)

    def test_nothing_is_claimed_over_what_another_has_written(self):
        def claim(instance, **changes):
            other = objects.Instance.get_by_uuid(self.context, instance.uuid)
            other.update({'host': 'other', **changes})
            other.save()
            instance.host = 'mine'
            try:
                instance.save()
            finally:
                self.host = objects.Instance.get_by_uuid(
                    self.context, instance.uuid).host

        for number, (changes, error) in enumerate((
                ({'vm_state': 'active'}, Left),
                ({'task_state': 'networking'},
                 exception.UnexpectedTaskStateError),
                ({'task_state': 'deleting'},
                 exception.UnexpectedDeletingTaskStateError))):
            self.assertRaises(error, self.claim, True, functools.partial(
                claim, **changes), getattr(uuidsentinel, f'i{number}'))
            self.assertEqual('other', self.host)

    def test_nothing_is_claimed_on_a_node_of_another_host(self):
        self.has_node = False
        self.assertRaises(exception.ComputeResourcesUnavailable, self.claim,
                          True, self.fail)

    def test_what_is_no_build_writes_as_nova_does(self):
        self.claim(building=False).save()

    def test_what_may_not_be_claimed_is_not(self):
        instance = mock.Mock(spec=['uuid'])
        guard = mock.Mock(building=True)
        guard.claim.side_effect = KeyError
        self.assertRaises(KeyError, base.around, build_claim.claim, instance,
                          self.fail, guard=guard)
