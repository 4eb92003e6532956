# SPDX-License-Identifier: Apache-2.0

"""What has to be on the machine: Debian's daemons and a venv.

Each part is checked first and done only when it is missing, so that an
install that was cut off is taken up again. Standard library only.
"""

import contextlib
import importlib.util
import os
import pathlib
import shutil

from lab import errors
from lab import lock
from lab import venvs

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
        self._log = settings.logs / 'install.log'
        self._venv = venvs.Venv(settings.venv, settings.requirements,
                                settings.constraints, self._log)

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
        return self._venv.done() and self._driver_done()

    def _build(self):
        if not self._venv.done():
            self._venv.build(self._progress,
                             f'OpenStack {self._settings.release}')
        if not self._driver_done():
            with self._progress.step('install the driver into it'):
                self._venv.pip('--no-deps', '--no-build-isolation', '-e',
                               str(self._settings.repository),
                               **self._version())
            self._venv.stamp('driver', self._driver_expected())

    def _driver_done(self):
        return self._venv.stamped('driver') == self._driver_expected()

    def _driver_expected(self):
        # An editable install follows the code, but not these.
        top = self._settings.repository
        made_of = venvs.digest(top / 'pyproject.toml', top / 'setup.cfg')
        return f'{made_of} {top}'

    def _version(self):
        """Variables that tell pbr which version the driver has."""
        # It comes from git, which mistrusts checkouts of other users.
        trusted = {'GIT_CONFIG_COUNT': '1',
                   'GIT_CONFIG_KEY_0': 'safe.directory',
                   'GIT_CONFIG_VALUE_0': '*'}
        if (self._settings.repository / '.git').exists():
            return trusted
        # An export has no git at all.
        return trusted | {'PBR_VERSION': '0.0.0'}

    def _missing_packages(self):
        missing = [package for package, program in _DAEMONS.items()
                   if not _program(program)]
        if (not self._venv.done()
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
        with self._progress.step('apt-get update'):
            self._apt_get('update')
        with self._progress.step(f'apt-get install {" ".join(packages)}'):
            with _daemons_stay_off():
                self._apt_get(*install[1:])

    def _apt_get(self, *arguments):
        venvs.call(self._log, 'apt-get', *arguments, RUNLEVEL='1',
                   DEBIAN_FRONTEND='noninteractive')


def _program(name):
    path = os.environ.get('PATH', os.defpath) + ':/usr/sbin:/sbin'
    return shutil.which(name, path=path)


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
