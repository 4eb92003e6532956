# SPDX-License-Identifier: Apache-2.0

import pathlib
import re

from oslotest import base

PACKAGE = pathlib.Path(__file__).parents[3]
PAGE = PACKAGE.parent / 'doc/source/contributor/glossary.rst'

#: A term, in its line, and the modules that define it, in brackets.
ENTRY = re.compile(
    r'^   (\w[^\n]*)\n((?:      [^\n]*\n)+)', re.MULTILINE)
MODULES = re.compile(r'\[``([^\]]+)``\]')


class GlossaryTestCase(base.BaseTestCase):

    def entries(self):
        """Yield (term, paths of its modules)."""
        for term, text in ENTRY.findall(PAGE.read_text()):
            named = MODULES.search(re.sub(r'\s+', ' ', text))
            self.assertIsNotNone(named, f'{term} names no module')
            yield term, [PACKAGE / path
                         for path in re.findall(r'[\w/]+\.py', named[0])]

    def test_terms_are_used_where_they_are_defined(self):
        found = 0
        for term, paths in self.entries():
            text = letters(''.join(path.read_text() for path in paths))
            for word in term.split(', '):
                found += 1
                # Not assertIn: it would print the modules.
                self.assertTrue(letters(word) in text, (
                    f'{word}: not in {[path.name for path in paths]}'))
        self.assertGreater(found, 50)

    def test_each_term_stands_once(self):
        terms = [term for term, _ in self.entries()]
        self.assertEqual(sorted(set(terms)), sorted(terms))


def letters(text):
    """Return a text as CamelCase and snake_case have it in common."""
    return re.sub(r'[\W_]+', '', text).lower()
