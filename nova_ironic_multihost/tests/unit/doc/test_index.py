# SPDX-License-Identifier: Apache-2.0

"""The front page: its figures, and its links to all pages."""

import pathlib
import re

from oslotest import base

SOURCE = pathlib.Path(__file__).resolve().parents[4] / 'doc' / 'source'

#: Where the figures of the front page are from.
FIGURES = ('reference/measurements',)

#: What :doc: and toctrees name.
LINK = re.compile(r':doc:`([\w/-]+)`')
TOCTREE = re.compile(r'^\.\. toctree::\n(?:   :.*\n)+\n((?:   \S+\n)+)',
                     re.MULTILINE)

#: A row of the table: both cells behind the first one.
ROW = re.compile(r'^     - (.+)\n     - (.+)\n', re.MULTILINE)
FIGURE = re.compile(r'\d[\d,.]*')


def text(page):
    return (SOURCE / f'{page}.rst').read_text()


class IndexTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.page = text('index')
        self.trees = [tree.split() for tree in TOCTREE.findall(self.page)]

    def test_each_page_of_a_group_is_explained(self):
        self.assertEqual(4, len(self.trees))
        links = set(LINK.findall(self.page))
        self.assertEqual([], [name for tree in self.trees for name in tree
                              if name not in links])

    def test_links_are_of_pages(self):
        self.assertEqual([], [name for name in LINK.findall(self.page)
                              if not (SOURCE / f'{name}.rst').exists()])

    def test_figures(self):
        rows = ROW.findall(self.page)
        measured = set(FIGURE.findall(' '.join(map(text, FIGURES))))
        found = [figure.rstrip(',.') for row in rows for cell in row
                 for figure in FIGURE.findall(cell)]
        self.assertGreater(len(found), 10)
        self.assertEqual(
            [], [figure for figure in found
                 if not {figure, f'{figure},', f'{figure}.'} & measured])
