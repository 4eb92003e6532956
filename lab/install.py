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

"""What has to be on the machine: Debian's daemons and a venv.

Each part is checked first and done only when it is missing, so that an
install that was cut off is taken up again. Standard library only.
"""

import contextlib
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

from lab import errors
from lab import lock

# package: a file or a program that it brings
_DAEMONS = {
    'mariadb-server': 'mariadbd',
    'memcached': 'memcached',
    'rabbitmq-server': '/usr/lib/rabbitmq/bin/rabbitmq-server',
}
_POLICY = pathlib.Path('/usr/sbin/policy-rc.d')
_POLICY_TEXT = '#!/bin/sh\n# of tools/lab, for one run of apt-get\nexit 101\n'


class Install:
    """Makes the machine able to run a lab.

    :param settings: :class:`lab.settings.Settings`
    :param progress: :class:`lab.progress.Progress`
    """

    def __init__(self, settings, progress):
        self._settings = settings
        self._progress = progress

    def ensure(self):
        """Install what is missing.

        :raises LabError: when that needs root, or fails
        """
        missing = self._missing_packages()
        if missing:
            self._apt(missing)
        if not self.done():
            with lock.hold(self._settings.venv.with_suffix('.lock'),
                           'install'):
                self._build()

    def done(self):
        """Whether the venv is complete and of this very checkout."""
        return self._venv_done() and self._driver_done()

    def _build(self):
        self._settings.logs.mkdir(parents=True, exist_ok=True)
        if not self._venv_done():
            venv = str(self._settings.venv)
            with self._progress.step('create a Python environment'):
                self._call(sys.executable, '-m', 'venv', '--clear', venv)
            with self._progress.step(
                    f'install OpenStack {self._settings.release} into it'):
                self._pip('-c', str(self._settings.constraints), *(
                    part for path in self._settings.requirements
                    for part in ('-r', str(path))))
            self._stamp('venv').write_text(self._venv_expected())
        if not self._driver_done():
            with self._progress.step('install the driver into it'):
                self._pip('--no-deps', '--no-build-isolation',
                          '-e', str(self._settings.repository))
            self._stamp('driver').write_text(self._driver_expected())

    def _venv_done(self):
        # The interpreter is a link, to one that may be gone by now.
        return (pathlib.Path(self._settings.program('python')).exists()
                and self._stamped('venv') == self._venv_expected())

    def _driver_done(self):
        return self._stamped('driver') == self._driver_expected()

    def _venv_expected(self):
        return _digest(self._settings.constraints,
                       *self._settings.requirements)

    def _driver_expected(self):
        # An editable install follows the code, but not these.
        top = self._settings.repository
        return (f'{_digest(top / "pyproject.toml", top / "setup.cfg")} {top}')

    def _stamp(self, part):
        return self._settings.venv / f'lab-{part}-stamp'

    def _stamped(self, part):
        try:
            return self._stamp(part).read_text()
        except OSError:
            return None

    def _pip(self, *arguments):
        python = self._settings.program('python')
        if uv := os.environ.get('LAB_UV'):
            if not shutil.which(uv):
                raise errors.LabError(
                    f'LAB_UV={uv} cannot be run; correct it, or unset it to '
                    'install with pip.')
            self._call(uv, 'pip', 'install', '--python', python, *arguments)
        else:
            self._call(python, '-m', 'pip', 'install',
                       '--disable-pip-version-check', *arguments)

    def _missing_packages(self):
        missing = [package for package, program in _DAEMONS.items()
                   if not _program(program)]
        if (not self._venv_done()
                and importlib.util.find_spec('ensurepip') is None):
            missing.append('python3-venv')
        return missing

    def _apt(self, packages):
        install = ['apt-get', 'install', '--yes', '--no-install-recommends',
                   *packages]
        if os.geteuid() != 0 or not _program('apt-get'):
            raise errors.LabError(
                'These programs are missing, and only root can install them. '
                'Run this once: sudo apt-get update && sudo '
                + ' '.join(install))
        self._settings.logs.mkdir(parents=True, exist_ok=True)
        with self._progress.step('apt-get update'):
            self._call('apt-get', 'update')
        with self._progress.step(f'apt-get install {" ".join(packages)}'):
            with _daemons_stay_off():
                self._call(*install)

    def _call(self, *argv):
        """Run a program; its output goes to the log of the install."""
        log = self._settings.logs / 'install.log'
        environment = os.environ | {
            'DEBIAN_FRONTEND': 'noninteractive',
            'RUNLEVEL': '1',
            # The driver's version comes from git, which mistrusts checkouts
            # of other users, and an export has no git at all.
            'GIT_CONFIG_COUNT': '1',
            'GIT_CONFIG_KEY_0': 'safe.directory',
            'GIT_CONFIG_VALUE_0': '*',
        }
        if not (self._settings.repository / '.git').exists():
            environment['PBR_VERSION'] = '0.0.0'
        with open(log, 'ab') as output:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment)
        if done.returncode:
            lines = log.read_text(errors='replace').splitlines()[-15:]
            raise errors.LabError(
                f'"{" ".join(argv[:4])} ..." failed; the same command again '
                'takes it up here. The end of {}:\n{}'.format(
                    log, '\n'.join(lines)))


def _program(name):
    path = os.environ.get('PATH', os.defpath) + ':/usr/sbin:/sbin'
    return shutil.which(name, path=path)


def _digest(*paths):
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _daemons_stay_off():
    """Let packages not start their services: the lab has its own."""
    ours = (not _POLICY.exists()
            or _POLICY.read_text(errors='replace') == _POLICY_TEXT)
    if ours:
        _POLICY.write_text(_POLICY_TEXT)
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink()
