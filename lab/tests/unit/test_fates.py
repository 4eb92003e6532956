# SPDX-License-Identifier: Apache-2.0

"""How far builds have come, and what is told of them."""

from oslotest import base

from lab.bench import fates
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.tests import views


def server(**changes):
    """What is seen of a server on a node; active unless changed."""
    return views.changed(views.consistent(), 'instances', 0, **changes)


def deploying(seen):
    return views.changed(seen, 'nodes', 0, provision_state='deploying')


def two(**changes):
    """A server whose machine deploys, and one that is just allocated."""
    seen = deploying(server(vm_state='building', task_state='spawning'))
    seen = views.with_more(seen, 'allocations', cloud_state.Allocation(
        'server-1', 'node-1'))
    return views.with_more(seen, 'instances', cloud_state.CloudServer(
        **{'uuid': 'server-1', 'vm_state': 'building',
           'task_state': 'scheduling'} | changes))


def described(status='ACTIVE', host='compute-1', fault=None):
    found = {'status': status, 'OS-EXT-SRV-ATTR:host': host}
    return found | ({'fault': {'message': fault}} if fault else {})


class StageTestCase(base.BaseTestCase):

    def stage(self, seen):
        return fates.stage(seen, 'server-0')

    def test_from_the_request_to_the_end(self):
        self.assertEqual('unclaimed', self.stage(cloud_state.CloudState()))
        self.assertEqual('unclaimed', self.stage(server(
            host=None, node=None, vm_state='building')))
        claimed = server(vm_state='building')
        self.assertEqual('claimed', self.stage(views.changed(
            claimed, 'nodes', 0, provision_state='available')))
        self.assertEqual('deploying', self.stage(deploying(claimed)))
        self.assertEqual('built', self.stage(server()))

    def test_begun_is_what_ironic_was_told(self):
        both = ('server-0', 'server-1')
        self.assertTrue(fates.begun(two(), both[:1]))
        self.assertFalse(fates.begun(two(), both))
        self.assertTrue(fates.begun(two(
            host='compute-1', node='node-1', vm_state='active'), both))

    def test_half_begun(self):
        both = ('server-0', 'server-1')
        self.assertTrue(fates.half_begun(two(), both))
        # About to be told, or over, or not sent.
        third = views.with_more(
            views.with_more(two(), 'allocations', cloud_state.Allocation(
                'server-2', 'node-3')),
            'instances', cloud_state.CloudServer(
                uuid='server-2', host='compute-1', node='node-3',
                vm_state='building'))
        self.assertFalse(fates.half_begun(
            third, (*both, 'server-2')))
        self.assertFalse(fates.half_begun(views.changed(
            two(), 'instances', 0, vm_state='active'), both))
        self.assertFalse(fates.half_begun(
            views.without(two(), 'allocations', 1), both))


class RestTestCase(base.BaseTestCase):

    def at_rest(self, seen):
        return fates.at_rest(seen, ['server-0'])

    def test_built_failed_or_gone(self):
        for seen in (server(), server(vm_state='error'),
                     server(deleted=True, task_state='deleting'),
                     cloud_state.CloudState()):
            self.assertTrue(self.at_rest(seen))

    def test_something_goes_on(self):
        # nova's build has no task for a moment.
        self.assertFalse(self.at_rest(server(vm_state='building')))
        self.assertFalse(self.at_rest(server(task_state='spawning')))


class MachineTestCase(base.BaseTestCase):

    def one(self, seen):
        return fates.on_one_machine(seen, 'server-0')

    def test_one_that_all_agree_on(self):
        self.assertTrue(self.one(views.consistent()))

    def test_none_or_another_one_or_two(self):
        seen = views.consistent()
        for other in (
                deploying(seen),
                views.changed(seen, 'nodes', 0, instance_uuid=None),
                views.changed(seen, 'nodes', 1, instance_uuid='server-0',
                              provision_state='active'),
                views.changed(seen, 'instances', 0, node='node-1'),
                views.without(seen, 'allocations', 0),
                views.with_more(seen, 'allocations', cloud_state.Allocation(
                    'server-0', 'node-1')),
                views.changed(seen, 'records', 0, host='compute-2'),
                cloud_state.CloudState()):
            self.assertFalse(self.one(other))


class TallyTestCase(base.BaseTestCase):

    def test_what_became_of_builds_and_what_they_were(self):
        uuid = 'c45f2db3-4d5a-4e10-af25-6b38d7d42dd2'
        figures = fates.tally(
            views.consistent(),
            {'server-0': 'deploying', 'b': 'unclaimed', 'c': 'unclaimed',
             'd': 'claimed', 'e': 'unclaimed'},
            {'server-0': described(),
             'b': described('ERROR', None, f'{uuid} is lost'),
             'c': described('BUILD', None), 'd': described('ERROR'),
             'of somebody else': described('ERROR')})
        self.assertEqual((1, 2, 1, 1), tuple(figures[name] for name in (
            'active', 'error', 'building', 'gone')))
        self.assertEqual({'unclaimed': 3, 'claimed': 1}, figures['lost'])
        self.assertEqual({'UUID is lost': 1, 'ERROR without a message': 1},
                         figures['faults'])
        self.assertEqual({'compute-1': 2, 'none': 2}, figures['hosts'])
        self.assertEqual((0, 0), (figures['left_on_dead'],
                                  figures['not_on_one_machine']))

    def test_left_on_the_dead(self):
        self.assertEqual(1, fates.tally(
            views.consistent(), {'server-0': 'built'},
            {'server-0': described()}, 'Compute-1')['left_on_dead'])

    def test_active_without_a_machine(self):
        self.assertEqual(1, fates.tally(
            deploying(views.consistent()), {'server-0': 'built'},
            {'server-0': described()})['not_on_one_machine'])
