# SPDX-License-Identifier: Apache-2.0

"""What may import what: cli, runner, experiments, bench, in this order."""

import ast
import pathlib
import subprocess
import sys

from oslotest import base

import lab
from lab import experiments

ROOT = pathlib.Path(lab.__file__).resolve().parents[1]
MAIN = ('lab.cli', 'lab.runner')

# Before anything is installed there is no more than this.
BARE = """
import sys
sys.path.insert(0, sys.argv[1])
from lab import cli
cli.parser().parse_args(['run', 'churn', '--cycles', '3'])
"""


def imported(path):
    """Names that a file imports anywhere, of modules and of what is in them.

    :param path: below :data:`ROOT`
    """
    names = set()
    for statement in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(statement, ast.Import):
            names |= {name.name for name in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names |= {f'{statement.module}.{name.name}'
                      for name in statement.names}
    return names


def files(folder):
    return [path.relative_to(ROOT) for path in (ROOT / folder).rglob('*.py')]


class ImportsTestCase(base.BaseTestCase):

    def refuse(self, paths, *prefixes):
        """No file imports a module whose name begins like this."""
        self.assertNotEqual([], list(paths))
        for path in paths:
            self.assertEqual(set(), {
                name for name in imported(path)
                if f'{name}.'.startswith(tuple(f'{p}.' for p in prefixes))},
                str(path))

    def test_what_experiments_share_knows_none(self):
        self.refuse(files('lab/bench'), 'lab.experiments', *MAIN)

    def test_an_experiment_knows_no_other_one(self):
        for name in experiments.NAMES:
            module = experiments.load(name)
            own = pathlib.Path(module.__file__).relative_to(ROOT)
            paths = files(own.parent) if own.stem == '__init__' else [own]
            others = [f'lab.experiments.{n.replace("-", "_")}'
                      for n in experiments.NAMES if n != name]
            self.refuse(paths, *others, *MAIN)

    def test_each_experiment_is_listed(self):
        found = {path.relative_to('lab/experiments').parts[0].removesuffix(
            '.py') for path in files('lab/experiments')} - {'__init__'}
        self.assertEqual(
            found, {name.replace('-', '_') for name in experiments.NAMES})

    def test_nothing_of_the_lab_knows_its_command_line(self):
        top = [path for path in files('lab')
               if path.parts[1] not in ('cli.py', 'tests')]
        self.refuse(top, 'lab.cli', 'lab.tests')

    def test_the_package_does_not_know_the_lab(self):
        self.refuse(files('nova_ironic_multihost'), 'lab')

    def test_the_command_line_needs_nothing_installed(self):
        subprocess.run([sys.executable, '-I', '-S', '-c', BARE, str(ROOT)],
                       check=True, timeout=60)
