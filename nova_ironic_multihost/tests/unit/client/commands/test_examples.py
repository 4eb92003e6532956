# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
             'plan-nodes'], sorted(path.stem for path in examples))
        for path in examples:
            prompt, *_ = path.read_text().splitlines()
            _, _, *argv = shlex.split(prompt)
            _, out, err = self.shell(*argv)
            shown = f'{prompt}\n{err}{out}'
            if 'WRITE_EXAMPLES' in os.environ:
                path.write_text(shown)
            self.assertEqual(path.read_text(), shown)
