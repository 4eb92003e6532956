# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from lab.experiments import deadops
from lab.experiments import rbac_slip
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.tests import views


class DeadopsTestCase(base.BaseTestCase):

    def outcome(self, **changes):
        seen = views.changed(views.consistent(), 'instances', 0, **changes)
        return deadops.outcome(seen, 'server-0')

    def test_as_nova_has_it(self):
        self.assertEqual('active', self.outcome())
        self.assertEqual('active, in rebooting',
                         self.outcome(task_state='rebooting'))

    def test_gone_with_its_machine_left_behind(self):
        self.assertEqual('gone, machine leaked', self.outcome(deleted=True))

    def test_gone(self):
        self.assertEqual('gone', deadops.outcome(cloud_state.CloudState(),
                                                 'server-0'))


class RbacSlipTestCase(base.BaseTestCase):

    def test_remembers_the_worst_moment(self):
        good = views.consistent()
        health_probe = rbac_slip.Witness(good)
        health_probe.see(views.without(good, 'records', 1))
        health_probe.see(views.without(
            views.without(good, 'providers', 2), 'providers', 2))
        health_probe.see(good)
        self.assertEqual((5, 4), (health_probe.fewest_records,
                                  health_probe.fewest_providers))
        self.assertEqual({'node-1', 'node-2', 'node-3'}, health_probe.deleted)

    def test_nothing_lost(self):
        good = views.consistent()
        health_probe = rbac_slip.Witness(good)
        health_probe.see(good)
        self.assertEqual(set(), health_probe.deleted)
        self.assertEqual(set(), rbac_slip.recreated(good, good))

    def test_another_one_of_the_same_name(self):
        good = views.consistent()
        after = views.changed(good, 'records', 1, row=7)
        after = views.changed(after, 'providers', 2, id=7)
        self.assertEqual({'node-1', 'node-2'},
                         rbac_slip.recreated(good, after))

    def test_one_that_is_missing_is_not_another_one(self):
        good = views.consistent()
        self.assertEqual(set(), rbac_slip.recreated(
            good, views.without(good, 'records', 1)))
