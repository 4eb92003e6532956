# SPDX-License-Identifier: Apache-2.0

"""tools/nova-contract, on a small tree and on the novas here."""

import pathlib
import types

import fixtures
from oslotest import base

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.adapters.patches import table
from nova_ironic_multihost.tests.unit import tools

AUDIT = 'nova.compute.manager:ComputeManager.audit'


class ContractTestCase(base.BaseTestCase):

    MANAGER = '''
class ComputeManager:
    """Manages."""

    def audit(self, context, node):
        """Audit a node."""
        # It may be gone.
        return self.rt.audit(node)

    def start(self):
        self._rt = None
'''

    def setUp(self):
        super().setUp()
        self.script = tools.load('nova-contract')
        self.row = types.SimpleNamespace(
            name='audit', purpose='nodes are audited',
            parameters='context node',
            places=('nova.compute.manager:ComputeManager',),
            full=lambda: f'ComputeManager.{self.row.name}')

    def tree(self, text):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'nova' / 'compute').mkdir(parents=True)
        (root / 'nova' / 'compute' / 'manager.py').write_text(text)
        return self.script.Tree(root)

    def differences(self, text, *functions, **row):
        vars(self.row).update(row)
        known = {function: [self.script.fingerprint(
            self.tree(self.MANAGER).text(function))]
            for function in functions}
        return [*self.script.differences(
            [self.row], self.tree(text), known)]

    def test_nova_that_is_known(self):
        self.assertEqual([], self.differences(self.MANAGER, AUDIT))

    def test_comments_and_docstrings_do_not_count(self):
        self.assertEqual([], self.differences(self.MANAGER.replace(
            '# It may be gone.', '# It is there.').replace(
                'Audit a node.', 'Audit it.'), AUDIT))

    def test_function_that_has_another_text(self):
        self.assertEqual(
            [('changed', AUDIT, 'read it')],
            self.differences(self.MANAGER.replace('return ', ''), AUDIT))

    def test_parameter_that_is_no_more(self):
        [found] = self.differences(
            self.MANAGER.replace('context, node', 'context, name'))
        self.assertEqual(('parameters', 'ComputeManager.audit', 'node'), found)

    def test_method_that_is_no_more(self):
        found = self.differences(
            self.MANAGER.replace('def audit', 'def look'), AUDIT)
        self.assertEqual(['gone', 'gone'], [kind for kind, _, _ in found])
        self.assertEqual('nodes are audited', found[0][2])

    def test_attribute_that_a_class_sets(self):
        row = {'name': '_rt', 'parameters': None}
        self.assertEqual([], self.differences(self.MANAGER, **row))
        [(kind, what, _)] = self.differences(
            self.MANAGER.replace('_rt', 'rt'), **row)
        self.assertEqual(('gone', 'ComputeManager._rt'), (kind, what))

    def test_package_that_the_tree_has_not(self):
        self.assertEqual([], self.differences(
            self.MANAGER, places=('oslo_messaging.transport:Transport',)))

    def test_function_of_a_module_that_is_followed(self):
        followed = 'nova.compute.manager:.reverts'
        for text, expected in (
                ('pass', []), ('raise', [('changed', followed, 'read it')])):
            self.MANAGER = 'def reverts():\n    pass\n'
            self.assertEqual(expected, self.differences(
                self.MANAGER.replace('pass', text), followed,
                name='reverts', parameters='',
                places=('nova.compute.manager:',)))

    def test_release_of_a_tree(self):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.assertIsNone(self.script.release_of(root))
        (root / 'PKG-INFO').write_text('Name: nova\nVersion: 33.0.2\n')
        self.assertEqual(33, self.script.release_of(root))
        (root / 'nova-34.0.0.dist-info').mkdir()
        self.assertEqual(34, self.script.release_of(root))

    def test_novas_here_are_as_the_table_says(self):
        """Also attributes, for which nova-compute does not look."""
        self.script.MANY['mutations'] = operations.mutations(
            names.IronicDriver)
        known = self.script.read()
        for tree in self.script.installed():
            self.assertEqual([], [*self.script.differences(
                table.rows(self.script.release_of(tree.path)), tree, known)])
