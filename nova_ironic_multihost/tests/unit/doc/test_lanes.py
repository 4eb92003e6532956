# SPDX-License-Identifier: Apache-2.0

import csv
import pathlib
import re

from oslotest import base

from nova_ironic_multihost.tests.unit import tools

ROOT = pathlib.Path(__file__).resolve().parents[4]
DOCS = ROOT / 'doc' / 'source'

GUARANTEE = re.compile(r'\*\*(?:G\d )?([^*]+?)\.\*\*')
PROMISE = re.compile(r'^\* \*?([A-Z][^*\n]+)', re.MULTILINE)

#: A guarantee that no page of the user's repeats.
ONE_COMPUTE = "A single compute behaves as nova's own driver does"

#: Directory of tests -> the environment that runs them; others have its name.
ENVIRONMENTS = {'unit': 'py3-nova34', 'upstream': 'upstream-nova34',
                'the simulation': 'simulation', 'stack': 'lab'}


def promises(page):
    """Return how each promise of a page of the user's begins."""
    text = (DOCS / 'user' / page).read_text()
    text = text.partition('What is promised\n')[2]
    # Down to the underline of the next title.
    return PROMISE.findall(re.split(r'(?m)^=+$', text)[1])


class GateTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.test = tools.load('test')
        page = (DOCS / 'reference' / 'guarantees.rst').read_text()
        # {how a promise begins: its tests in the gate}.
        self.rows = {
            ''.join(GUARANTEE.findall(promise)) or promise: tests
            for promise, tests, *_ in csv.reader(
                line.strip() for line in page.splitlines()
                if line.startswith('   "'))}

    def test_all_that_is_promised(self):
        wanted = [' '.join(promise.split()) for page in (
            'overview.rst', 'outages.rst') for promise in promises(page)]
        self.assertGreater(len(wanted), 10)
        self.assertEqual([], [
            promise for promise in wanted
            if not any(promise.startswith(row) for row in self.rows)])
        self.assertEqual({'Bounded', ONE_COMPUTE}, {
            row for row in self.rows
            if not any(promise.startswith(row) for promise in wanted)})

    def test_it_is_in_the_gate(self):
        gate = {job.env: job.arguments
                 for job in self.test.choose([], self.test.NOVAS)}
        for promise, cell in self.rows.items():
            self.assertTrue(cell, promise)
            for test in re.findall(r'the simulation|``(.+?)``', cell):
                path = pathlib.Path(test)
                env = ENVIRONMENTS.get(
                    path.parts[2 if test.startswith('lab') else 1]
                    if test else 'the simulation')
                env = env or path.parts[1]
                self.assertIn(env, gate, promise)
                if test:
                    self.assertTrue(self.runs(path, gate[env]), test)

    def runs(self, path, arguments):
        """Tell whether one of the tests in a file is among some.

        :param arguments: what chooses them; without any all of them run.
        """
        if path.parts[0] != 'lab':
            path = pathlib.Path('nova_ironic_multihost', path)
        names = re.findall(r'def (test_\w+)', (ROOT / path).read_text())
        module = '.'.join(path.with_suffix('').parts)
        return not arguments or any(
            re.search(argument, f'{module}.TestCase.{name}')
            for argument in arguments for name in names)
