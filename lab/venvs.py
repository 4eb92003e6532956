# SPDX-License-Identifier: Apache-2.0

"""Python environments with what requirements files say.

An environment is built anew when those files change, or when a build was cut
off. Standard library only.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

from lab import errors


class Venv:
    """One environment.

    :param path: where it is
    :param requirements: its requirements files
    :param constraints: file that says of which version all the rest is
    :param log: file that gets what the installers print
    """

    def __init__(self, path, requirements, constraints, log):
        self._path = pathlib.Path(path)
        self._requirements = requirements
        self._constraints = constraints
        self._log = log

    def done(self):
        """Whether it is complete."""
        # The interpreter is a link, to one that may be gone by now.
        return (pathlib.Path(self._python).exists()
                and self.stamped('venv') == self._expected())

    def build(self, progress, what):
        """Make it, also in place of one that is there.

        :param progress: :class:`lab.progress.Progress`
        :param what: what goes into it, for people
        :raises LabError: when that fails
        """
        with progress.step('create a Python environment'):
            call(self._log, sys.executable, '-m', 'venv', '--clear',
                 str(self._path))
        with progress.step(f'install {what} into it'):
            self.pip('-c', str(self._constraints), *(
                part for path in self._requirements
                for part in ('-r', str(path))))
        self.stamp('venv', self._expected())

    def pip(self, *arguments, **environment):
        """Install into it with pip, or with LAB_UV.

        :param arguments: of "pip install"
        :param environment: variables beside those of this process
        :raises LabError: when that fails
        """
        if uv := os.environ.get('LAB_UV'):
            if not shutil.which(uv):
                raise errors.LabError(
                    f'LAB_UV={uv} cannot be run; correct it, or unset it to '
                    'install with pip.')
            call(self._log, uv, 'pip', 'install', '--python', self._python,
                 *arguments, **environment)
        else:
            call(self._log, self._python, '-m', 'pip', 'install',
                 '--disable-pip-version-check', *arguments, **environment)

    def stamp(self, part, text):
        """Write down what a part of it was made of."""
        self._stamp(part).write_text(text)

    def stamped(self, part):
        """What a part of it was made of, None if it is not there."""
        try:
            return self._stamp(part).read_text()
        except OSError:
            return None

    @property
    def _python(self):
        return str(self._path / 'bin' / 'python')

    def _stamp(self, part):
        return self._path / f'lab-{part}-stamp'

    def _expected(self):
        return digest(self._constraints, *self._requirements)


def call(log, *argv, **environment):
    """Run a program to its end.

    :param log: file that gets what it prints
    :param environment: variables beside those of this process
    :raises LabError: when it fails; the message has the end of its output
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, 'ab') as output:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=os.environ | environment)
    if done.returncode:
        lines = log.read_text(errors='replace').splitlines()[-15:]
        raise errors.LabError(
            f'"{" ".join(argv[:4])} ..." failed; the same command again '
            'takes it up here. The end of {}:\n{}'.format(
                log, '\n'.join(lines)))


def digest(*paths):
    """One number for the content of files."""
    content = hashlib.sha256()
    for path in paths:
        content.update(path.read_bytes())
    return content.hexdigest()
