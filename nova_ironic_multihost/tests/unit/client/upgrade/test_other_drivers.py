# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade import nova_compute
from nova_ironic_multihost.tests.unit.client.upgrade import base
from nova_ironic_multihost.tests import views

ALL = {f'node-{i}' for i in range(6)}


class JudgeSettingsTestCase(base.JudgeTestCase):

    def judge(self, *of):
        return nova_compute.judge_others([
            base.of_host(f'compute-{i}', compute_driver=driver)
            for i, driver in enumerate(of)])

    def test_all_have_the_same(self):
        self.assert_silent(self.judge(conf_settings.OURS, conf_settings.OURS))
        self.assert_silent(
            self.judge(conf_settings.STOCK, conf_settings.STOCK))

    def test_some_are_switched(self):
        self.assert_complains(
            self.judge(
                conf_settings.STOCK, conf_settings.OURS, conf_settings.STOCK),
            'compute-0, compute-2 is not',
            'compute-1 is',
        )

    def test_a_controller_has_none(self):
        self.assert_silent(self.judge(None, conf_settings.OURS))


class JudgeMarksTestCase(base.JudgeTestCase):

    def test_all_are_marked(self):
        self.assert_silent(nova_compute.judge_marks(views.consistent(), ALL))

    def test_nodes_of_one_are_not(self):
        self.assert_complains(
            nova_compute.judge_marks(views.consistent(),
                                ALL - {'node-1', 'node-4'}),
            '2 nodes of compute-2', 'OWNER_NOVA', 'Switch it')

    def test_nodes_of_which_it_cannot_be_said(self):
        dead = views.changed(views.consistent(), 'services', 1, up=False)
        self.assert_silent(
            nova_compute.judge_marks(dead, ALL - {'node-1', 'node-4'}))
        new = views.without(views.consistent(), 'providers', 1)
        self.assert_silent(nova_compute.judge_marks(new, ALL - {'node-1'}))


class MissingTestCase(base.JudgeTestCase):

    def missing(self, nova):
        return nova_compute.missing([base.of_host('a')], ['A', 'b'], nova)

    def test_nova_marks_nodes_itself(self):
        for nova in 34, None:
            self.assert_complains(
                self.missing(nova), 'driver b runs', '--collected')

    def test_marks_tell(self):
        self.assert_silent(self.missing(33))
