# SPDX-License-Identifier: Apache-2.0
"""tools/nova-contract, on a small tree and on the novas here."""

import pathlib
import types

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit import tools


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
            target='manager', name='audit', why='nodes are audited',
            parameters=('node',), users=('ComputeManager.audit',))

    def differences(self, text, known=None, **row):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'nova' / 'compute').mkdir(parents=True)
        (root / 'nova' / 'compute' / 'manager.py').write_text(text)
        tree = self.script.Tree(root)
        if known is None:
            known = {user: [self.script.fingerprint(before)]
                     for user in self.row.users
                     if (before := self.original.text(user))}
        return [*self.script.differences(
            [types.SimpleNamespace(**{**vars(self.row), **row})],
            {'manager': ('nova.compute.manager:ComputeManager',),
             'bus': ('oslo_messaging.transport:Transport',)}, tree, known)]

    @property
    def original(self):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'nova' / 'compute').mkdir(parents=True)
        (root / 'nova' / 'compute' / 'manager.py').write_text(self.MANAGER)
        return self.script.Tree(root)

    def test_nova_that_is_known(self):
        self.assertEqual([], self.differences(self.MANAGER))

    def test_comments_and_docstrings_do_not_count(self):
        self.assertEqual([], self.differences(self.MANAGER.replace(
            '# It may be gone.', '# It is there.').replace(
                'Audit a node.', 'Audit it.')))

    def test_function_that_has_another_text(self):
        self.assertEqual(
            [('changed', 'ComputeManager.audit', 'read it')],
            self.differences(self.MANAGER.replace('return ', '')))

    def test_parameter_that_is_no_more(self):
        [found, _] = self.differences(
            self.MANAGER.replace('context, node', 'context, name'))
        self.assertEqual(('parameters', 'ComputeManager.audit', 'node'), found)

    def test_method_that_is_no_more(self):
        found = self.differences(self.MANAGER.replace('def audit', 'def look'))
        self.assertEqual(['gone', 'gone'], [kind for kind, _, _ in found])
        self.assertEqual('nodes are audited', found[0][2])

    def test_attribute_that_a_class_sets(self):
        row = {'name': '_rt', 'parameters': None, 'users': ()}
        self.assertEqual([], self.differences(self.MANAGER, **row))
        [(kind, what, _)] = self.differences(
            self.MANAGER.replace('_rt', 'rt'), **row)
        self.assertEqual(('gone', 'ComputeManager._rt'), (kind, what))

    def test_package_that_the_tree_has_not(self):
        self.assertEqual([], self.differences(
            self.MANAGER, target='bus', users=()))

    def test_release_of_a_tree(self):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.assertIsNone(self.script.release_of(root))
        (root / 'PKG-INFO').write_text('Name: nova\nVersion: 33.0.2\n')
        self.assertEqual(33, self.script.release_of(root))
        (root / 'nova-34.0.0.dist-info').mkdir()
        self.assertEqual(34, self.script.release_of(root))

    def test_texts_of_the_novas_here_are_known(self):
        known = self.script.read()
        for tree in self.script.installed():
            for user, prints in known.items():
                text = tree.text(user)
                if text is not None:
                    self.assertIn(self.script.fingerprint(text), prints)
