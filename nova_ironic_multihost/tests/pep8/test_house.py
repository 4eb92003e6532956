# SPDX-License-Identifier: Apache-2.0

"""tools/house tells when the picture of the house is not true any more.

A hook of pre-commit runs this, because grimp is installed in the environment
of the hooks only.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = 'nova_ironic_multihost'


class HouseTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        (self.root / 'doc/source/_static').mkdir(parents=True)
        (self.root / 'tools').mkdir()
        for name in 'pyproject.toml', 'tools/house':
            shutil.copy(ROOT / name, self.root / name)
        shutil.copytree(
            ROOT / PACKAGE, self.root / PACKAGE,
            ignore=shutil.ignore_patterns('__pycache__', 'tests'))
        self.house()

    def house(self, *arguments, seed='0'):
        return subprocess.run(
            [sys.executable, 'tools/house', *arguments], cwd=self.root,
            env={**os.environ, 'PYTHONHASHSEED': seed,
                 'PYTHONDONTWRITEBYTECODE': '1'},
            capture_output=True, text=True, timeout=60)

    def add_import(self, module, statement):
        path = self.root / PACKAGE / module
        path.write_text(f'{path.read_text()}\n{statement}\n')

    def test_always_the_same(self):
        for seed in '1', '2':
            done = self.house('--check', seed=seed)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_new_arrow(self):
        self.add_import(
            'engine/builds/guard.py', f'from {PACKAGE}.audit import watch')
        done = self.house('--check')
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn('is not what the imports say: run tools/house.',
                      done.stdout)

    def test_arrow_of_what_does_not_ship(self):
        (self.root / 'lab').mkdir()
        (self.root / 'lab/cli.py').write_text(
            f'def late():\n    from {PACKAGE} import driver\n')
        done = self.house('--check')
        self.assertEqual(1, done.returncode, done.stdout)

    def test_upward_arrow(self):
        self.add_import('rules/ring.py', f'from {PACKAGE} import driver')
        done = self.house('--check')
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn('rules imports driver', done.stdout)
        self.assertIn('points upwards', done.stdout)
        self.assertEqual(1, self.house().returncode)

    def test_room_without_floor(self):
        self.add_import(
            'engine/builds/guard.py', f'from {PACKAGE} import attic')
        (self.root / PACKAGE / 'attic.py').write_text('')
        done = self.house('--check')
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn('attic has no floor', done.stdout)


if __name__ == '__main__':
    unittest.main()
