# SPDX-License-Identifier: Apache-2.0

"""The page "How the engine works" names code that exists."""

import ast
import pathlib
import re

from oslotest import base

ROOT = pathlib.Path(__file__).resolve().parents[4]
PAGE = ROOT / 'doc' / 'source' / 'contributor' / 'engine.rst'
PACKAGE = ROOT / 'nova_ironic_multihost'


class EngineTestCase(base.BaseTestCase):

    def test_each_file_exists(self):
        for name in re.findall(r'``([a-z_/]+\.py)``', PAGE.read_text()):
            self.assertTrue((PACKAGE / name).is_file(), name)

    def test_each_rule_stands_where_the_page_says(self):
        found = re.findall(
            r'``(\w+)``\s+in\s+``([a-z_/]+\.py)``', PAGE.read_text())
        self.assertTrue(found)
        for name, path in found:
            tree = ast.parse((PACKAGE / path).read_text())
            self.assertIn(name, {
                node.name for node in ast.walk(tree)
                if isinstance(node, (ast.ClassDef, ast.FunctionDef))}, path)
