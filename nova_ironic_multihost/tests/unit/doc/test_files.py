# SPDX-License-Identifier: Apache-2.0

"""The documentation names files that exist, and every room of the house."""

import pathlib
import re

from oslotest import base

PACKAGE = pathlib.Path(__file__).resolve().parents[3]
ROOT = PACKAGE.parent
SOURCE = ROOT / 'doc' / 'source'

#: Where a path in the documentation may begin.
BASES = (ROOT, PACKAGE, PACKAGE / 'tests' / 'simulation')

PATH = re.compile(r'(?<!:doc:)`{1,2}([\w./-]*\w/|[\w./-]+\.py)`{1,2}')


class FilesTestCase(base.BaseTestCase):

    def test_files_exist(self):
        missing = [
            f'{page.relative_to(SOURCE)}: {name}'
            for folder in ('contributor', 'reference')
            for page in sorted((SOURCE / folder).glob('*.rst'))
            for name in PATH.findall(page.read_text())
            if not any((parent / name).exists() for parent in BASES)]
        self.assertEqual([], missing)

    def test_rooms(self):
        text = (SOURCE / 'contributor' / 'house.rst').read_text()
        rooms = {path.name + '/' if path.is_dir() else path.name
                 for path in PACKAGE.iterdir()
                 if path.name != 'tests' and (
                     path.suffix == '.py' or (path / '__init__.py').exists())}
        self.assertEqual([], sorted(
            room for room in rooms - {'__init__.py'}
            if f'``{room}``' not in text))
