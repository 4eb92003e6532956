# SPDX-License-Identifier: Apache-2.0

"""Pictures of the documentation can be read in the dark and without eyes."""

import pathlib
import re
import xml.etree.ElementTree as etree

from oslotest import base

SOURCE = pathlib.Path(__file__).resolve().parents[4] / 'doc' / 'source'

IMAGE = re.compile(r'^\.\. image:: (\S+)\n((?:   .*\n)*)', re.MULTILINE)


class PicturesTestCase(base.BaseTestCase):

    def test_svg(self):
        for path in sorted((SOURCE / '_static').glob('*.svg')):
            # Ours, from this checkout.
            root = etree.parse(path).getroot()
            names = {node.tag.rpartition('}')[2]: node.text or ''
                     for node in root}
            self.assertTrue(names.get('title'), path)
            self.assertIn('prefers-color-scheme: dark', names['style'], path)

    def test_each_is_shown_and_said(self):
        images = [(name, options) for page in SOURCE.rglob('*.rst')
                  for name, options in IMAGE.findall(page.read_text())]
        self.assertEqual([], [name for name, options in images
                              if ':alt:' not in options])
        self.assertEqual(
            {f'/_static/{path.name}' for path in (SOURCE / '_static').iterdir()
             if path.suffix in ('.svg', '.png')},
            {name for name, options in images})
