# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import shlex

from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.client.commands import base

FORMATS = pathlib.Path(__file__).parent / 'formats'
EXAMPLES = pathlib.Path(__file__).parents[5] / 'doc/source/user/command'


#: Commands that print for programs -> their arguments.
COMMANDS = {
    'check': ('check',),
    'leaks': ('leaks',),
    'list': ('list', '--long'),
    'list-nova': ('list', '--nova'),
    'node-list': ('node', 'list', '--long'),
    'node-show': ('node', 'show', 'n-6'),
    'plan': ('plan', '--remove', 'compute-1'),
}


class ExamplesTestCase(base.ShellTestCase):
    """The documentation shows what the commands print for people.

    What they print for programs is promised. Set WRITE_EXAMPLES to write down
    what they print instead.
    """

    CLOUD = clouds.TroubledCloud

    def test_examples(self):
        examples = sorted(EXAMPLES.glob('*.txt'))
        self.assertEqual(
            ['check', 'leaks', 'list', 'node-list', 'node-show', 'plan',
             'repair'], sorted(path.stem for path in examples))
        for path in examples:
            prompt, *_ = path.read_text().splitlines()
            _, _, *argv = shlex.split(prompt)
            _, out, err = self.shell(*argv)
            shown = f'{prompt}\n{err}{out}'
            if 'WRITE_EXAMPLES' in os.environ:
                path.write_text(shown)
            self.assertEqual(path.read_text(), shown)

    def test_formats(self):
        for name, argv in COMMANDS.items():
            last = 'shell' if name == 'node-show' else 'csv'
            shown = ''.join(
                f'# -f {layout}\n{self.shell(*argv, "-f", layout)[1]}'
                for layout in ('json', 'yaml', 'value', last))
            path = FORMATS / f'{name}.txt'
            if 'WRITE_EXAMPLES' in os.environ:
                path.write_text(shown)
            self.assertEqual(path.read_text(), shown)
