# SPDX-License-Identifier: Apache-2.0

import ast
import contextlib
import io
import pathlib
import sys
import types
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit import tools

#: A package, its unit tests and its simulation: path -> text.
TREE = {
    'toy/core/count.py': '''
"""Counting."""


def last(numbers: list[int] | None) -> int | None:
    """Return the last one."""
    number = 0
    while number < len(numbers):
        number += 1
    return number or None


def bigger(one, other):
    return one > other


def spare(one):
    return one + 1
''',
    'toy/__init__.py': '',
    'toy/core/__init__.py': '',
    'toy/tests/__init__.py': '',
    'toy/tests/unit/__init__.py': '',
    'toy/tests/unit/core/__init__.py': '',
    'toy/tests/unit/core/test_count.py': """
import unittest
from toy.core import count

class CountTestCase(unittest.TestCase):
    def test_last(self):
        self.assertEqual(3, count.last('abc'))
    def test_none(self):
        self.assertIsNone(count.last(''))
""",
    'toy/tests/unit/core/test_other.py': """
import unittest
from toy.core.count import bigger

class OtherTestCase(unittest.TestCase):
    def test_bigger(self):
        self.assertTrue(bigger(2, 1))
""",
    'toy/tests/simulation/__init__.py': '',
    'toy/tests/simulation/test_all.py': """
import unittest
from toy.core import count

class AllTestCase(unittest.TestCase):
    def test_equal(self):
        self.assertFalse(count.bigger(1, 1))
""",
}


class MutateTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.mutate = tools.load('mutate')

    def found(self, source):
        """Return the faults of a source: statements before and after."""
        tree = ast.parse(source)
        found = [(before, after) for _, _, _, before, after
                 in self.mutate.mutations(tree)]
        self.assertEqual(ast.unparse(ast.parse(source)), ast.unparse(tree))
        return found

    def after(self, source):
        return [after for _, after in self.found(source)]


class FaultsTestCase(MutateTestCase):

    def test_each_kind(self):
        for source, expected in {
                'x = a < b': ['x = a <= b', 'x = a >= b'],
                'x = a <= b < c': ['x = a < b < c', 'x = a > b < c',
                                   'x = a <= b <= c', 'x = a <= b >= c'],
                'x = a not in b': ['x = a in b'],
                'x = a is None': ['x = a is not None'],
                'x = a and b and c': ['x = a or b or c'],
                'x = not a': ['x = a'],
                'x = True': ['x = False'],
                'x = 2': ['x = 3', 'x = 1'],
                'x = a + b': ['x = a - b'],
                'x = a | b': ['x = a & b'],
                'x += y': ['x -= y', 'pass'],
                'x.y = z': ['pass'],
                'f(x)': ['pass'],
                'f(x, y, *z)': ['pass', 'f(y, x, *z)'],
                'raise E': ['pass'],
                'if x: pass': ['if not x:'],
                'if x:\n  pass\nelse:\n  y = 0': [
                    'if not x:', 'y = 1', 'y = -1'],
                'x = [y for y in z if y]': ['x = [y for y in z if not y]'],
                'for x in y:\n  break': ['pass'],
                'for x in y:\n  continue': ['pass'],
                'def f(x=True):\n  return x': [
                    'def f(x=False):', 'return None'],
                'def f():\n  return False': ['return True']}.items():
            self.assertEqual(expected, self.after(source), source)

    def test_what_is_no_fault(self):
        for source in (
                'import x', '"""Why."""', 'x = y', 'x = None', 'y = f(*x)',
                'return_ = max(x, y)', 'x = "a" + "b"', 'x = "%s" % y',
                'x = f"{a + 1}"', 'LOG.debug("x", y)',
                'def f(x: A | B) -> A | B: ...', '@d(frozen=True)\ndef f(): ..'
                '.', 'class P(Protocol):\n  def f(self):\n    f(1)',
                'if TYPE_CHECKING:\n  x = 1'):
            self.assertEqual([], self.after(source), source)

    def test_scope(self):
        tree = ast.parse('class C:\n  def f(self):\n    return 1')
        self.assertEqual(
            {('C.f', 3)}, {(scope, line) for scope, line, *_
                           in self.mutate.mutations(tree)})


class DrawTestCase(MutateTestCase):

    def test_without_a_room(self):
        drawn = self.mutate.draw(self.mutate.ROOMS, 100, 0)
        self.assertEqual({'engine', 'rules'}, {one.room for one in drawn})


class ToyTestCase(MutateTestCase):
    """A small package."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, text in TREE.items():
            self.write(name, text)
        for name, value in (('ROOT', self.root), ('PACKAGE', 'toy'),
                            ('CPU_MORE', 1)):
            self.useFixture(fixtures.MockPatchObject(
                self.mutate, name, value))
        self.useFixture(fixtures.MonkeyPatch(
            'sys.path', [str(self.root), *sys.path]))
        self.out = self.root / 'out'

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def draw(self, number=99, seed=0):
        return self.mutate.draw(['core'], number, seed)

    def mutant(self, scope, after):
        path = self.root / 'toy' / 'core' / 'count.py'
        return next(
            mutant for mutant, _, _ in self.mutate.mutants_of(path)
            if (mutant.scope, mutant.after) == (scope, after))

    def run_them(self, *mutants, **options):
        """Run mutants; return the results, read from their file."""
        results = self.mutate.Results(self.out)
        for mutant in mutants:
            results.add(mutant)
        with contextlib.redirect_stdout(io.StringIO()):
            self.mutate.work(results, types.SimpleNamespace(**{
                'again': False, 'stages': self.mutate.STAGES, 'jobs': 2,
                'every': False, **options}))
        return self.mutate.Results(self.out)

    def outcomes(self, results):
        return {mutant.after: [
            (one['outcome'], one['stage'], one['test']) for one in entries]
            for mutant, entries in results.of.items()}

    def test_draw(self):
        drawn = self.draw()
        # One of each line that can have a fault.
        self.assertEqual(6, len(drawn))
        self.assertEqual(drawn[:3], self.draw(3))
        self.assertNotEqual(drawn, self.draw(seed=1))

    def test_stages(self):
        self.assertEqual(
            {'own': ['toy.tests.unit.core.test_count'],
             'room': ['toy.tests.unit.core.test_other'],
             'simulation': ['toy.tests.simulation.test_all']},
            self.mutate.stages(self.mutant('spare', 'return one - 1'),
                               self.mutate.STAGES))

    def test_run(self):
        endless = self.mutant('last', 'pass')
        results = self.run_them(
            endless,
            self.mutant('last', 'while number <= len(numbers):'),
            self.mutant('bigger', 'return None'),
            self.mutant('bigger', 'return one >= other'),
            self.mutant('spare', 'return one - 1'))
        count = 'unit.core.test_count.CountTestCase.test_'
        self.assertEqual({
            'pass': [('killed', 'own',
                      'unit.core.test_count took too long')],
            'while number <= len(numbers):': [
                ('killed', 'own', f'{count}last')],
            'return None': [('killed', 'room', 'unit.core.test_other.'
                             'OtherTestCase.test_bigger')],
            'return one >= other': [('killed', 'simulation', 'simulation.'
                                     'test_all.AllTestCase.test_equal')],
            'return one - 1': [('survived', None, None)],
        }, self.outcomes(results))
        self.assertEqual([], results.todo(again=False))
        self.assertEqual(
            ['return one - 1'],
            [mutant.after for mutant in results.todo(again=True)])
        report = results.report()
        self.assertIn('80.0 %', report)
        self.assertIn('-  return one + 1\n+  return one - 1', report)
        self.assertNotIn('first', report)

    def test_again(self):
        """After a test was written, and a line has gone."""
        self.run_them(self.mutant('bigger', 'return one >= other'),
                      self.mutant('spare', 'return one - 1'),
                      stages=['own'])
        path = 'toy/core/count.py'
        self.write(path, TREE[path].partition('def spare')[0])
        results = self.run_them(again=True)
        self.assertEqual(
            [['survived', 'killed'], ['survived', 'gone']],
            [[one['outcome'] for one in entries]
             for entries in results.of.values()])
        self.assertIn('At first:', results.report())
        self.assertIn('100.0 %', results.report())

    def test_every(self):
        """The simulation does not run if tests that are needed are red."""
        path = 'toy/tests/simulation/test_all.py'
        ran = self.root / 'ran'
        self.write(path, f'{TREE[path]}        open({str(ran)!r}, "a")'
                   '.write("x")\n')
        results = self.run_them(
            self.mutant('bigger', 'return one <= other'),
            self.mutant('last', 'return number and None'),
            self.mutant('last', 'return None'), every=True, jobs=1)
        count = 'unit.core.test_count.CountTestCase.test_'
        bigger = 'unit.core.test_other.OtherTestCase.test_bigger'
        self.assertEqual(({bigger: 1, f'{count}last': 2, f'{count}none': 1},
                          {f'{count}last', f'{count}none'}),
                         results.unit_tests())
        with (mock.patch('sys.argv', ['mutate', 'core', '--report', '--every',
                                      '--out', str(self.out)]),
              contextlib.redirect_stdout(io.StringIO()) as printed):
            self.assertEqual(0, self.mutate.main())
        self.assertTrue(printed.getvalue().endswith(
            f'others may replace:\n    1 {bigger}\n'))
        # Without a fault, and in the second mutant; red in the first.
        self.assertEqual('xx', ran.read_text())

    def test_red_without_a_fault(self):
        self.write('toy/tests/unit/core/test_other.py',
                   'import nothing_of_this_name')
        self.assertRaises(SystemExit, self.run_them,
                          self.mutant('bigger', 'return None'))

    def test_list(self):
        with (mock.patch('sys.argv', ['mutate', 'core', '--list', '--out',
                                      str(self.out)]),
              contextlib.redirect_stdout(io.StringIO()) as printed):
            self.assertEqual(0, self.mutate.main())
        self.assertEqual(6, printed.getvalue().count('\n+  '))

    def test_room_that_does_not_exist(self):
        with (mock.patch('sys.argv', ['mutate', 'nowhere', '--out',
                                      str(self.out)]),
              contextlib.redirect_stderr(io.StringIO()) as printed):
            self.assertRaises(SystemExit, self.mutate.main)
        self.assertIn('toy/nowhere is no directory', printed.getvalue())
