# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.tests.unit.client.upgrade import base

URL = 'mysql+pymysql://placement:secret@db/placement'
LEVELS = ('init_command=SET+SESSION+TRANSACTION+ISOLATION+LEVEL'
          '+READ+COMMITTED',
          'init_command=set%20session%20transaction%20isolation'
          '%20level%20read%20committed',
          "init_command=SET+transaction_isolation='READ-COMMITTED'")
VIRTUAL = frozenset({'kvm-1', 'kvm-2'})


class PlacementTestCase(base.JudgeTestCase):

    def judge(self, retries=10, connection=URL, parameters='',
              others=frozenset()):
        return conf_settings.judge_placement(
            conf_settings.PlacementFacts('p.conf', retries, connection,
                                      parameters), others)

    def test_as_it_comes(self):
        for url in (URL, 'mariadb://db/placement', None):
            self.assert_complains(
                self.judge(connection=url), 'With p.conf',
                'allocation_conflict_retry_count = 1 (')
            self.assert_complains(
                self.judge(connection=url, others=VIRTUAL),
                f'set {conf_settings.READ_COMMITTED} (')
            self.assert_complains(
                self.judge(connection=url, others=None),
                'allocation_conflict_retry_count = 1, or '
                '[placement_database]')

    def test_it_tries_once(self):
        self.assert_silent(self.judge(retries=1))
        self.assert_silent(self.judge(retries=1, others=None))

    def test_it_tries_once_beside_virtual_machines(self):
        self.assert_complains(
            self.judge(retries=1, others=VIRTUAL), 'p.conf has',
            'kvm-1, kvm-2', f'set {conf_settings.READ_COMMITTED}')

    def test_it_reads_what_is_committed(self):
        for level in LEVELS:
            for others in frozenset(), VIRTUAL, None:
                self.assert_silent(self.judge(
                    connection=f'{URL}?{level}', others=others))
                self.assert_silent(self.judge(
                    connection=None, parameters=level, others=others))

    def test_the_option_that_is_advised_is_enough(self):
        _, _, value = conf_settings.READ_COMMITTED.partition(' = ')
        self.assert_silent(self.judge(parameters=value))

    def test_another_database(self):
        self.assert_silent(self.judge(connection='postgresql://db/placement'))
        self.assert_silent(self.judge(connection='sqlite:///placement'))

    def test_the_password_is_not_told(self):
        self.assertNotIn('secret', self.judge().__next__().sentence)
        self.assertNotIn('secret', repr(conf_settings.PlacementFacts(
            'p.conf', 10, URL, 'password=secret')))


class SchedulersTestCase(base.JudgeTestCase):

    def judge(self, *sizes, others=VIRTUAL):
        return conf_settings.judge_subset(
            [base.of_host(f'c-{size}', host_subset_size=size)
             for size in sizes], others)

    def test_weighers_count(self):
        self.assert_silent(self.judge())
        self.assert_silent(self.judge(1, conf_settings.MOST))

    def test_bare_metal_only(self):
        self.assert_silent(self.judge(999, others=frozenset()))

    def test_weighers_hardly_count(self):
        self.assert_complains(
            self.judge(1, 999), 'c-999.conf has '
            '[filter_scheduler]host_subset_size = 999', 'kvm-1, kvm-2',
            'remove the option')
