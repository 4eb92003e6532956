# SPDX-License-Identifier: Apache-2.0

import argparse
import contextlib
import io
import json
from unittest import mock

import fixtures
from oslotest import base

from lab import check
from lab import errors
from lab import settings
from lab import state
from lab import view
from nova_ironic_multihost.tests import views


class CommandTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.settings = settings.load(
            self.useFixture(fixtures.TempDir()).path, 20000)
        self.state = state.State(self.settings)
        self.state.write('up')

    def run_check(self, seen, *argv):
        parser = argparse.ArgumentParser()
        check.register(parser.add_subparsers())
        args = parser.parse_args(['check', *argv])
        out = io.StringIO()
        with mock.patch.object(view, 'read', return_value=seen), \
                contextlib.redirect_stdout(out):
            return args.func(args, self.settings), out.getvalue()

    def test_lab_that_is_down_is_not_judged(self):
        # What answers at its ports then is another lab.
        self.state.write('down')
        error = self.assertRaises(
            errors.LabError, self.run_check, views.consistent())
        self.assertIn('tools/lab up', str(error))

    def test_consistent(self):
        self.assertEqual((0, 'consistent\n'),
                         self.run_check(views.consistent()))

    def test_one_line_for_each_finding(self):
        seen = views.without(views.changed(
            views.consistent(), 'services', 1, up=False), 'records', 0)
        status, printed = self.run_check(seen)
        self.assertEqual(1, status)
        self.assertEqual(2, len(printed.splitlines()))

    def test_json(self):
        seen = views.without(views.consistent(), 'records', 1)
        status, printed = self.run_check(seen, '--json')
        self.assertEqual(1, status)
        told = json.loads(printed)
        self.assertFalse(told['consistent'])
        self.assertEqual('node-without-record', told['findings'][0]['kind'])
