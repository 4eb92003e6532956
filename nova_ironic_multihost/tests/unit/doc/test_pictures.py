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
