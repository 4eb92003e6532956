# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import shlex

from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.client.commands import base

EXAMPLES = pathlib.Path(__file__).parents[5] / 'doc/source/user/command'


class ExamplesTestCase(base.ShellTestCase):
    """The documentation shows what the commands print.

    Set WRITE_EXAMPLES to write down what they print instead.
    """

    CLOUD = clouds.TroubledCloud

    def test_examples(self):
        examples = sorted(EXAMPLES.glob('*.txt'))
        self.assertEqual(
            ['check', 'leaks', 'list', 'node-list', 'node-show', 'plan',
             'plan-nodes', 'repair'], sorted(path.stem for path in examples))
        for path in examples:
            prompt, *_ = path.read_text().splitlines()
            _, _, *argv = shlex.split(prompt)
            _, out, err = self.shell(*argv)
            shown = f'{prompt}\n{err}{out}'
            if 'WRITE_EXAMPLES' in os.environ:
                path.write_text(shown)
            self.assertEqual(path.read_text(), shown)
