# SPDX-License-Identifier: Apache-2.0

import pathlib

import fixtures
from oslotest import base

from lab.bench import logs

UUID = '0d2c1f6e-5c2b-4a52-9d3e-7d0e9a5d0c11'
TEXT = (
    '2026 1 INFO nova no ERRORS\n'
    f'2026 1 ERROR nova.compute [req-{UUID} - - - -] Node {UUID} failed 3 '
    'times\n'
    '2026 1 ERROR nova.compute [None req-1 - - - -] Node '
    f'{UUID.replace("0", "1")} failed 4 times\n'
    '2026 1 ERROR nova.compute Traceback (most recent call last):\n'
    '2026 1 WARNING nova.virt An ERROR happened\n')


class LogsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def names(self):
        return ['a', 'b']

    def log(self, name):
        return self.directory / name

    def test_what_was_written_since(self):
        for name in self.names():
            self.log(name).write_text('before\n')
        since = logs.Logs(self)
        self.assertEqual('', since.text())
        for name in self.names():
            with open(self.log(name), 'a') as log:
                log.write(f'{name} after\n')
        self.assertEqual('a after\nb after\n', since.text())


class TextTestCase(base.BaseTestCase):

    def test_counts_lines(self):
        self.assertEqual({'ERROR': 3, 'Traceback': 1},
                         logs.error_lines(TEXT))

    def test_messages_that_differ_in_details_are_one(self):
        self.assertEqual(
            {'nova.compute Node UUID failed N times': 2,
             'nova.compute Traceback (most recent call last):': 1},
            logs.messages(TEXT, 'ERROR'))
        self.assertEqual({'nova.virt An ERROR happened': 1},
                         logs.messages(TEXT, 'WARNING'))
