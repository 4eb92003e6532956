# SPDX-License-Identifier: Apache-2.0

from oslotest import base as oslo_base

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.tests.unit.client.upgrade import base


class SettingsTestCase(oslo_base.BaseTestCase):

    def test_hosts_are_compared_in_lower_case(self):
        self.assertEqual('one', base.of_host('ONE').key)

    def test_a_controller_has_no_driver(self):
        self.assertTrue(base.of_host('one').of_compute)
        self.assertFalse(base.of_host('one', compute_driver=None).of_compute)


class JudgeTestCase(base.JudgeTestCase):

    def judge(self, **more):
        return conf_settings.judge(base.of_host('one', **more))

    def test_contradictions(self):
        self.assert_complains(
            self.judge(contradictions=('Do not.',)), 'Do not.', fatal=True)

    def test_scope_of_the_account(self):
        """Said before the upgrade to the release that enforces it."""
        def judge(release, project='service'):
            return conf_settings.judge_scope(
                base.of_host('one', ironic_project=project), release)

        self.assert_complains(judge(33), 'project service', 'the role service',
                              'system_scope = all')
        for release in 34, None:
            self.assert_silent(judge(release))
        self.assert_silent(judge(33, None))

    def test_retries(self):
        """Those that end before a silent host counts as dead are well."""
        for seconds in 0, 60:
            self.assert_silent(self.judge(
                ironic_retries=(('connect_retries', seconds),)))
        self.assert_complains(
            self.judge(ironic_retries=(('connect_retries', 0),
                                       ('status_code_retries', 61))),
            'wait 61 s', 'remove [ironic]status_code_retries and '
            '[ironic]status_code_retry_delay')
