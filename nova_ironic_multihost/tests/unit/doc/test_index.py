# SPDX-License-Identifier: Apache-2.0

"""The front page: its figures, and the chapters of the tree."""

import pathlib
import re

from oslotest import base

SOURCE = pathlib.Path(__file__).resolve().parents[4] / 'doc' / 'source'

#: Where the figures of the front page are from.
FIGURES = ('reference/measurements',)

CHAPTERS = ('Getting started', 'Install and settings', 'Runbooks',
            'Deploy guides', 'Reference', 'How it works', 'Contribute')

#: What :doc: and toctrees name.
LINK = re.compile(r':doc:`([\w/-]+)`')
TOCTREE = re.compile(
    r'^\.\. toctree::\n   :caption: (.+)\n   :maxdepth: 1\n\n((?:   \S+\n)+)',
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

    def test_chapters(self):
        # Each is shown: there is no second list that has to follow it.
        self.assertEqual(
            CHAPTERS, tuple(name for name, _ in TOCTREE.findall(self.page)))
        self.assertEqual(len(CHAPTERS), self.page.count('.. toctree::'))

    def test_each_page_is_in_one_chapter(self):
        pages = [page for _, tree in TOCTREE.findall(self.page)
                 for page in tree.split()]
        self.assertEqual(sorted(set(pages)), sorted(pages))

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
