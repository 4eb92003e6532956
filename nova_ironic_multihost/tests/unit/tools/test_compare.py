# SPDX-License-Identifier: Apache-2.0

"""What tools/compare makes of what its scenarios saw."""

import contextlib
import io
import json
import pathlib
import types
from unittest import mock

from oslotest import base

from nova_ironic_multihost.tests.unit import tools

PAGE = (pathlib.Path(__file__).resolve().parents[4]
        / 'doc' / 'source' / 'reference' / 'measurements.rst')


class CatalogueTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.compare = tools.load('compare')

    def test_every_scenario_is_in_the_table(self):
        modules = {
            path.stem for path in self.compare.SCENARIOS.glob('*.py')
            if path.stem != 'base' and not path.stem.startswith('__')}
        self.assertCountEqual(
            modules, [one.name for one in self.compare.catalogue()])

    def test_every_scenario_says_what_fails(self):
        for scenario in self.compare.catalogue():
            self.assertRegex(scenario.failure, r'^[A-Z].{20,77}\.$')

    def test_the_documentation_has_the_table(self):
        # Of one paragraph per cell; sentences may be wrapped.
        page = ' '.join(PAGE.read_text().split())
        for scenario in self.compare.catalogue():
            self.assertIn(f'"``{scenario.name}``","{scenario.failure}","',
                          page)
        for word in self.compare.WORDS.values():
            self.assertNotIn(f'"{word.upper()}:', page)

    def test_list(self):
        with (mock.patch('sys.argv', ['compare', '--list', '--only',
                                      'leaked']),
              contextlib.redirect_stdout(io.StringIO()) as out):
            self.assertEqual(0, self.compare.main())
        line, = out.getvalue().splitlines()
        self.assertRegex(line, '^leaked +A server deleted while')

    def test_a_scenario_that_is_not_there(self):
        with (mock.patch('sys.argv', ['compare', '--only', 'nonsense']),
              contextlib.redirect_stderr(io.StringIO()) as err):
            exit_ = self.assertRaises(SystemExit, self.compare.main)
        self.assertEqual(2, exit_.code)
        self.assertRegex(err.getvalue(), "'nonsense'.*choose from.*leaked")


    def test_the_page_has_both_drivers(self):
        with (mock.patch('sys.argv', ['compare', '--rst', '--driver', 'ours']),
              contextlib.redirect_stderr(io.StringIO()) as err):
            exit_ = self.assertRaises(SystemExit, self.compare.main)
        self.assertEqual(2, exit_.code)
        self.assertIn('leave out --driver', err.getvalue())


class OutcomeTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.compare = tools.load('compare')
        self.scenarios = [
            self.compare.Scenario('first', 'Something breaks.'),
            self.compare.Scenario('second', 'Something else breaks.')]

    def outcomes(self, stock, ours):
        """Return outcomes: the first as expected, the second as given."""
        return {
            driver: {
                'first': self.compare.Outcome(
                    self.compare.EXPECTED[driver], f'First {driver}.', 1.5),
                'second': self.compare.Outcome(end, 'Seen.', 2.5)}
            for driver, end in (('stock', stock), ('ours', ours))}

    def report(self, stock='shown', ours='absent', drivers=None, **args):
        """Return (exit status, stdout, last line of stderr).

        :param drivers: those that were played
        """
        args = types.SimpleNamespace(**{'json': False, 'rst': False} | args)
        with (contextlib.redirect_stdout(io.StringIO()) as out,
              contextlib.redirect_stderr(io.StringIO()) as err):
            outcomes = self.outcomes(stock, ours)
            status = self.compare.report(self.scenarios, {
                driver: outcomes[driver]
                for driver in drivers or self.compare.DRIVERS}, args)
        return status, out.getvalue(), err.getvalue().splitlines()[-1]

    def test_as_it_should_be(self):
        status, table, summary = self.report()
        self.assertEqual(0, status)
        self.assertEqual("2 of 2 failures are stock's and not ours.", summary)
        self.assertRegex(
            table, r'first +Something breaks\. +First stock\. +First ours\.')

    def test_ours_fails_too(self):
        status, table, summary = self.report(ours='shown')
        self.assertEqual(1, status)
        self.assertEqual("1 of 2 failures are stock's and not ours.", summary)
        self.assertIn('FAILURE SHOWN: Seen.', table)

    def test_one_driver_alone(self):
        status, table, summary = self.report(drivers=['ours'])
        self.assertEqual((0, '2 of 2 failures are not ours.'),
                         (status, summary))
        self.assertNotIn('stock', table)
        status, _, summary = self.report(stock='absent', drivers=['stock'])
        self.assertEqual((1, "1 of 2 failures are stock's."),
                         (status, summary))

    def test_stock_does_not_fail(self):
        status, table, _ = self.report(stock='absent')
        self.assertEqual(1, status)
        self.assertIn('NO FAILURE: Seen.', table)

    def test_a_scenario_breaks(self):
        for driver in self.compare.DRIVERS:
            status, table, _ = self.report(**{driver: 'error'})
            self.assertEqual(1, status)
            self.assertIn('ERROR: Seen.', table)

    def test_lines_fit_the_terminal(self):
        table = self.compare.as_table(
            self.scenarios, self.outcomes('shown', 'absent'), 80)
        self.assertTrue(all(len(line) <= 80 for line in table.splitlines()))

    def test_json(self):
        _, document, _ = self.report(ours='shown', json=True)
        first, second = json.loads(document)
        self.assertTrue(first['passed'])
        self.assertFalse(second['passed'])
        self.assertEqual(
            {'end': 'shown', 'seen': 'First stock.', 'seconds': 1.5},
            first['stock'])

    def test_rst(self):
        _, page, _ = self.report(rst=True)
        self.assertIn(
            '   "``first``","Something breaks.","First stock."',
            page.splitlines())


class ParseTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.compare = tools.load('compare')

    def test_outcome(self):
        outcome = {'end': 'shown', 'seen': 'It broke.', 'seconds': 3.5}
        self.assertEqual(
            ('leaked', self.compare.Outcome(**outcome)),
            self.compare.parse(json.dumps({'name': 'leaked'} | outcome)))

    def test_what_others_print(self):
        self.assertEqual((None, None), self.compare.parse('INFO whatever\n'))
