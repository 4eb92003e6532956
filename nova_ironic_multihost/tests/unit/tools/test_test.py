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

import contextlib
import io

from oslotest import base

from nova_ironic_multihost.tests.unit import tools

STESTR = """\
======
Totals
======
Ran: 5 tests in 3.5706 sec.
 - Passed: 3
 - Skipped: 0
 - Expected Fail: 0
 - Unexpected Success: 1
 - Failed: 1
""".splitlines()

HOOKS = """\
ruff.....................................................................Passed
codespell................................................................Failed
reno.................................................(no files to check)Skipped
""".splitlines()


class CountTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')

    def test_stestr(self):
        self.assertEqual((3, 2), self.test.count(STESTR, 1))

    def test_several_runs_add_up(self):
        self.assertEqual((6, 4), self.test.count(STESTR + STESTR, 1))

    def test_hooks(self):
        self.assertEqual((1, 1), self.test.count(HOOKS, 1))

    def test_comparison(self):
        self.assertEqual((17, 3), self.test.count(
            ["17 of 20 failures are stock's and not ours."], 1))

    def test_a_crash_without_a_failed_test_counts_as_one(self):
        self.assertEqual((0, 1), self.test.count(['Segmentation fault'], 139))

    def test_nothing_ran(self):
        self.assertEqual((0, 0), self.test.count([], 0))


class PlanTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')

    def test_each_nova_is_installed_once(self):
        places = [job.place for job in self.test.plan(
            ('unit', 'loading'), ('34', '31'))]
        self.assertEqual(['nova34', 'nova34', 'nova31', 'nova31'], places)

    def test_the_comparison_runs_where_the_functional_tests_run(self):
        functional, compare = self.test.plan(('functional', 'compare'), ())
        self.assertEqual(functional.place, compare.place)

    def test_functional_tests_run_with_each_nova(self):
        envs = [job.env for job in self.test.plan(
            ('functional',), ('34', '31'))]
        self.assertEqual(['functional', 'functional-nova31'], envs)

    def test_the_lab_is_last(self):
        jobs = self.test.plan(self.test.PARTS, self.test.NOVAS)
        self.assertEqual('lab', jobs[-1].part)
        self.assertEqual(set(self.test.PARTS), {job.part for job in jobs})


class ReportTestCase(base.BaseTestCase):

    def report(self, *counts):
        test = tools.load('test')
        job = test.Job('unit', 'py3-nova34', 'nova34')
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = test.report(
                [test.Outcome(job, passed, failed, 1.0)
                 for passed, failed in counts], 2.0)
        return status, out.getvalue().splitlines()[-1]

    def test_the_last_line_sums_up(self):
        self.assertEqual((0, '7 passed, 0 failed'),
                         self.report((3, 0), (4, 0)))
        self.assertEqual((1, '7 passed, 1 failed'),
                         self.report((3, 1), (4, 0)))
