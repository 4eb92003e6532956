# SPDX-License-Identifier: Apache-2.0

"""The plug-in and its finder touch nothing but one name."""

import json
import sys
import unittest

from nova_ironic_multihost.tests.loading import installation

IMPORT_PLUG_IN = """
import json
import sys
from os_vif import exception, objects, plugin
modules = set(sys.modules)
finders = list(sys.meta_path)
import nova_ironic_multihost.vif
print(json.dumps({
    'modules': sorted(set(sys.modules) - modules),
    'finders': [type(finder).__qualname__ for finder in sys.meta_path
                if finder not in finders],
    'last': type(sys.meta_path[-1]).__qualname__,
}))
"""

ASK_FINDER = """
import json
from nova_ironic_multihost import loader
names = ['nova', 'nova.virt', 'nova.virt.ironic', 'nova.virt.ironic.driver',
         'nova.virt.ironic_multihost', 'nova.virt.ironic_multihost.driver',
         'nova.virt.ironic_multihosts', 'ironic_multihost',
         'nova_ironic_multihost', 'os']
finder = loader.DriverFinder()
print(json.dumps([name for name in names if finder.find_spec(name, None)]))
"""


class FinderTestCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.installation = installation.Installation(editable=False)
        cls.installation.setUp()
        cls.addClassCleanup(cls.installation.cleanUp)

    def answer(self, code):
        process = self.installation.run_python(code)
        self.assertEqual(0, process.returncode, process.stderr)
        return json.loads(process.stdout)

    def test_plug_in_imports_little_more_than_os_vif(self):
        # Neither nova nor what would settle the threading mode.
        self.assertEqual(
            {'nova_ironic_multihost'},
            {name.partition('.')[0]
             for name in self.answer(IMPORT_PLUG_IN)['modules']
             } - sys.stdlib_module_names)

    def test_plug_in_adds_one_finder_at_the_end(self):
        answer = self.answer(IMPORT_PLUG_IN)
        self.assertEqual(['DriverFinder'], answer['finders'])
        self.assertEqual('DriverFinder', answer['last'])

    def test_finder_answers_for_one_name(self):
        self.assertEqual(['nova.virt.ironic_multihost'],
                         self.answer(ASK_FINDER))
