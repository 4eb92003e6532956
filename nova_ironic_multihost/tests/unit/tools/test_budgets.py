# SPDX-License-Identifier: Apache-2.0

"""tools/budgets, on a small tree."""

import contextlib
import io
import pathlib

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit import tools

#: Hard to read.
SAID = f"""'''Whoever is {'very ' * 35}tired. Ask the postman.

The postmen know what is there.
'''
A = 1
"""


#: A page: 3 sentences of 16 words in all, and one in a table.
PAGE = """\
=========
What is
=========

It is what is there. The driver waits for ``nova``, see
:doc:`the page <page>`.

.. code-block:: console

   $ Whoever types this. It is no sentence.

.. list-table::
   :widths: 20 80

   * - That
     - Nothing of it. The host
       waits.

Do this::

   It is code.
"""


class BudgetsTestCase(base.BaseTestCase):

    def run_on(self, budgets, *argv, **files):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, lines in {'a': 3, 'b': 2, **files}.items():
            (root / f'{name}.py').write_text(
                lines if isinstance(lines, str) else 'x\n' * lines)
        (root / '__init__.py').write_text('x\n' * 50)
        (root / 'tests').mkdir()
        (root / 'tests' / 'c.py').write_text('x\n' * 50)
        (root / 'tools').mkdir()
        (root / 'tools' / 'budgets.toml').write_text(budgets)
        script = tools.load('budgets')
        script.ROOT = root
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return script.main(argv), out.getvalue()

    def test_what_is_within_its_budget(self):
        self.assertEqual((0, 'all: 2 of 2 modules\nall: 5 of 6 lines\n'),
                         self.run_on('[budget.all]\nfiles = ["**/*.py"]\n'
                                     'modules = 2\nlines = 6\n'))

    def test_what_has_grown(self):
        status, out = self.run_on(
            '[budget.all]\nfiles = ["*.py"]\nlines = 4\nlongest = 2\n')
        self.assertEqual(1, status)
        self.assertIn('all: 5 lines, 4 may be: make it smaller', out)
        self.assertIn('all: 3 longest, 2 may be: make it smaller', out)

    def test_what_is_hard_to_read(self):
        status, out = self.run_on(
            '[private]\n"postm[ae]n" = "queue forwarder"\n'
            '[budget.all]\nfiles = ["said.py"]\nriddles = 1\nlong = 0\n'
            'prose = 10\nprivate = 1\n', said=SAID)
        self.assertEqual(1, status)
        for what in ('2 riddles, 1 may be', '1 long, 0 may be',
                     '400 prose, 10 may be', '2 private, 1 may be'):
            self.assertIn(what, out)

    def test_where_that_is(self):
        _, out = self.run_on(
            '[budget.all]\nfiles = ["said.py"]\n', '--where', 'all',
            said=SAID)
        self.assertIn('said.py:1: riddle: Whoever', out)
        self.assertIn('said.py:1: long: Whoever', out)

    def test_files_that_are_no_more(self):
        self.assertRaises(SystemExit, self.run_on,
                          '[budget.all]\nfiles = ["gone.py"]\nlines = 4\n')

    def page(self, limits, *argv, text=PAGE):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'README.rst').write_text(text)
        script = tools.load('budgets')
        script.ROOT = root
        (root / 'tools').mkdir()
        (root / 'tools' / 'budgets.toml').write_text(
            f'{limits}\n[budget.all]\nfiles = ["README.rst"]\n')
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return script.main(argv), out.getvalue()

    def test_sentences_of_a_page(self):
        self.assertEqual((0, ''), self.page(
            '[page]\naverage = 4.2\nlong = 0\nriddles = 3\npronouns = 40\n'
            'verbless = 1\n'))
        for limit, found in {'average = 4.1': '4.2 average, 4.1 may be',
                             'riddles = 2': '3 riddles, 2 may be',
                             'pronouns = 10': '20 pronouns, 10 may be',
                             'verbless = 0': '1 verbless, 0 may be'}.items():
            status, out = self.page(f'[page]\n{limit}\n')
            self.assertEqual(1, status)
            self.assertIn(f'README.rst: {found} (tools/budgets --where', out)

    def test_a_sentence_of_a_page_that_is_too_long(self):
        status, out = self.page('[page]\nlong = 0\n',
                                text='A ' + 'very ' * 35 + 'long one.\n')
        self.assertEqual(1, status)
        self.assertIn('README.rst: 1 long, 0 may be', out)

    def test_a_page_with_limits_of_its_own(self):
        self.assertEqual((0, ''), self.page(
            '[page]\nriddles = 0\n[pages."README.rst"]\nriddles = 3\n'))
        status, out = self.page(
            '[page]\nriddles = 9\n[pages."gone.rst"]\nriddles = 3\n')
        self.assertEqual(1, status)
        self.assertIn('gone.rst: no such page', out)

    def test_where_the_sentences_of_a_page_are(self):
        status, out = self.page('', '--where', 'README.rst')
        self.assertEqual(0, status)
        self.assertIn('README.rst:5: pronouns: It is what is there.', out)
        self.assertIn('README.rst:16: verbless: Nothing of it.', out)
        self.assertNotIn('code', out)
        self.assertNotIn('types', out.replace('riddles', ''))
