# SPDX-License-Identifier: Apache-2.0

import pathlib
import subprocess

from oslotest import base

SHARE = pathlib.Path(__file__).parents[4] / 'share'

BASH = SHARE / 'bash-completion/completions/nova-ironic-multihost'

SCRIPT = """
source "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_nova_ironic_multihost
echo "${COMPREPLY[*]}"
"""


class BashTestCase(base.BaseTestCase):

    def completed(self, *words):
        done = subprocess.run(
            ['bash', '-c', SCRIPT, str(BASH), 'nova-ironic-multihost', *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=True)
        self.assertEqual('', done.stderr)
        return done.stdout.split()

    def test_commands(self):
        self.assertEqual(['drain'], self.completed('dr'))
        self.assertIn('node', self.completed(''))
        self.assertEqual(['--os-cloud'], self.completed('--os-c'))

    def test_commands_of_two_words(self):
        self.assertEqual(['list', 'show'], self.completed('node', ''))
        self.assertEqual(
            ['--moving'], self.completed('node', 'list', '--movi'))

    def test_options_after_arguments(self):
        self.assertEqual(
            ['--reason', '--retry'],
            self.completed('--os-cloud', 'a', 'fence', 'compute-1', '--re'))

    def test_none(self):
        self.assertEqual([], self.completed('drain', 'compute-'))
