# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client.upgrade import double_allocation
from nova_ironic_multihost.tests.unit.client.upgrade import base

URL = 'mysql+pymysql://placement:secret@db/placement'


class JudgeTestCase(base.JudgeTestCase):

    def judge(self, retries=10, connection=URL):
        return double_allocation.judge(
            double_allocation.PlacementFacts('p.conf', retries, connection))

    def test_as_it_comes(self):
        for url in (URL, 'mariadb://db/placement', None):
            self.assert_complains(
                self.judge(connection=url), 'With p.conf',
                'allocation_conflict_retry_count = 1', 'READ COMMITTED')

    def test_it_tries_once(self):
        self.assert_silent(self.judge(retries=1))

    def test_it_reads_what_is_committed(self):
        for how in ('init_command=SET+SESSION+TRANSACTION+ISOLATION+LEVEL'
                    '+READ+COMMITTED',
                    'init_command=set%20session%20transaction%20isolation'
                    '%20level%20read%20committed',
                    "init_command=SET+transaction_isolation='READ-COMMITTED'"):
            self.assert_silent(self.judge(connection=f'{URL}?{how}'))

    def test_another_database(self):
        self.assert_silent(self.judge(connection='postgresql://db/placement'))
        self.assert_silent(self.judge(connection='sqlite:///placement'))

    def test_the_password_is_not_told(self):
        self.assertNotIn('secret', self.judge().__next__().sentence)
        self.assertNotIn(
            'secret', repr(double_allocation.PlacementFacts('p.conf', 10, URL))
        )
