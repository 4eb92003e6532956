# SPDX-License-Identifier: Apache-2.0

import pathlib
import re

from oslotest import base

from nova_ironic_multihost.tests.unit import tools

ROOT = pathlib.Path(__file__).resolve().parents[4]
DOCS = ROOT / 'doc' / 'source'

#: A row of two cells: a promise and its tests.
ROW = re.compile(r'^   \* - (.+)\n     - ((?:.+\n(?:       .+\n)*))',
                 re.MULTILINE)
GUARANTEE = re.compile(r'\*\*(G\d [^*]+?)\.\*\*')
PROMISE = re.compile(r'^\* \*?([A-Z][^*\n]+)', re.MULTILINE)

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
        page = (DOCS / 'contributor' / 'lanes.rst').read_text()
        _, *self.rows = ROW.findall(
            page.partition('Promises and their tests in the gate\n')[2])

    def test_all_that_is_promised(self):
        wanted = GUARANTEE.findall(
            (DOCS / 'reference' / 'guarantees.rst').read_text())
        wanted += promises('overview.rst') + promises('outages.rst')
        self.assertEqual(len(wanted), len(self.rows))
        for whole, (row, _) in zip(wanted, self.rows):
            self.assertTrue(' '.join(whole.split()).startswith(row),
                            (row, whole))

    def test_it_is_in_the_gate(self):
        guard = {job.env: job.arguments
                 for job in self.test.choose([], self.test.NOVAS)}
        for promise, cell in self.rows:
            for test in re.findall(r'the simulation|``(.+?)``', cell):
                path = pathlib.Path(test)
                env = ENVIRONMENTS.get(
                    path.parts[2 if test.startswith('lab') else 1]
                    if test else 'the simulation')
                env = env or path.parts[1]
                self.assertIn(env, guard, promise)
                if test:
                    self.assertTrue(self.runs(path, guard[env]), test)

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
