# SPDX-License-Identifier: Apache-2.0

"""Pages of the documentation that the product names have that title."""

import ast
import pathlib
import re

from oslotest import base

PACKAGE = pathlib.Path(__file__).resolve().parents[3]
SOURCE = PACKAGE.parent / 'doc' / 'source'

#: The first heading of a page, between two lines of its length.
TITLE = re.compile(r'^(=+)\n(.+)\n\1$', re.MULTILINE)
NAMED = re.compile(r'\bpage "([^"]+)"')


def strings(path):
    """Yield the strings of a module, in one line each."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield ' '.join(node.value.split())


class TitlesTestCase(base.BaseTestCase):

    def test_named_pages(self):
        titles = {title[2] for page in SOURCE.rglob('*.rst')
                  if (title := TITLE.search(page.read_text()))}
        named = {(path.relative_to(PACKAGE), title)
                 for path in PACKAGE.rglob('*.py')
                 if 'tests' not in path.parts
                 for text in strings(path) for title in NAMED.findall(text)}
        self.assertGreater(len(named), 5)
        self.assertEqual([], [
            f'{path}: {title}' for path, title in sorted(named)
            if title not in titles])
