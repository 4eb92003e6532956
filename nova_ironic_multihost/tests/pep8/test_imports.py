# SPDX-License-Identifier: Apache-2.0

"""lint-imports fails when a rule of pyproject.toml is broken.

A hook of pre-commit runs this, because import-linter is installed in the
environment of the hooks only.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = 'nova_ironic_multihost'

#: (contract, module, what it is made to import, what the linter names).
BREACHES = (
    (
        'layers',
        'rules/ring.py',
        f'from {PACKAGE}.engine.nodes import peer_poll',
        f'{PACKAGE}.engine',
    ),
    (
        'layers',
        'adapters/db.py',
        f'from {PACKAGE} import driver',
        f'{PACKAGE}.driver',
    ),
    (
        'layers',
        'engine/nodes/peer_poll.py',
        f'from {PACKAGE} import adapters',
        f'{PACKAGE}.adapters',
    ),
    (
        'layers',
        'conf.py',
        f'from {PACKAGE}.engine import audit',
        f'{PACKAGE}.engine',
    ),
    ('layers', 'nowhere.py', 'import time', f'{PACKAGE}.nowhere'),
    (
        'layers',
        'vif.py',
        f'from {PACKAGE} import _nova_virt',
        f'{PACKAGE}._nova_virt',
    ),
    ('nova', 'driver.py', 'import nova.conf', 'nova'),
    (
        'nova',
        'engine/builds/guard.py',
        'def late():\n    from nova import objects',
        'nova',
    ),
    ('rules', 'rules/peers.py', 'from oslo_config import cfg', 'oslo_config'),
    ('rules', 'rules/peers.py', 'from tooz import hashring', 'tooz'),
    ('rules', 'rules/ring.py', 'import nova', 'nova'),
    (
        'engine',
        'engine/nodes/peer_poll.py',
        'from oslo_utils import timeutils',
        'oslo_utils',
    ),
    (
        'engine',
        'engine/nodes/peer_poll.py',
        f'from {PACKAGE} import conf',
        f'{PACKAGE}.conf',
    ),
    ('client', 'client/cloud_state.py', 'import openstack', 'openstack'),
    (
        'client',
        'client/cloud_client.py',
        f'from {PACKAGE}.rules import ownership',
        f'{PACKAGE}.rules.ownership',
    ),
    ('client', 'client/cloud_client.py', 'import nova', 'nova'),
    (
        'client',
        'client/upgrade/units.py',
        'from oslo_config import cfg',
        'oslo_config',
    ),
    (
        'telemetry',
        'telemetry/status_server.py',
        f'from {PACKAGE}.engine.nodes import peer_poll',
        f'{PACKAGE}.engine',
    ),
    ('loader', 'loader.py', 'from oslo_log import log', 'oslo_log'),
    ('vif', 'vif.py', 'import nova', 'nova'),
    ('checkout', 'client/commands/exporter.py', 'from lab import settings',
     'lab'),
)


class ImportsTestCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory()))
        for name in 'pyproject.toml', 'tools/import_rules.py':
            (cls.root / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, cls.root / name)
        shutil.copytree(ROOT / PACKAGE, cls.root / PACKAGE,
                        ignore=shutil.ignore_patterns('__pycache__'))

    def lint(self, contract):
        return subprocess.run(
            [pathlib.Path(sys.executable).parent / 'lint-imports',
             '--no-cache', '--no-logo', '--contract', contract],
            cwd=self.root, env={**os.environ, 'COLUMNS': '200'},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60)

    def test_breaches(self):
        for contract, module, statement, named in BREACHES:
            with self.subTest(f'{module}: {statement}'):
                path = self.root / PACKAGE / module
                before = path.read_text() if path.exists() else None
                path.write_text(f'{before or ""}\n{statement}\n')
                try:
                    done = self.lint(contract)
                finally:
                    if before is None:
                        path.unlink()
                    else:
                        path.write_text(before)
                self.assertEqual(1, done.returncode, done.stdout)
                self.assertIn('1 broken', done.stdout)
                self.assertRegex(
                    done.stdout, rf'(->|must not import|-) {named}\b')

    def test_every_contract_has_a_breach(self):
        contracts = tomllib.loads((ROOT / 'pyproject.toml').read_text())[
            'tool']['importlinter']['contracts']
        self.assertEqual({contract['id'] for contract in contracts},
                         {breach[0] for breach in BREACHES})


if __name__ == '__main__':
    unittest.main()
