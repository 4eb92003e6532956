# SPDX-License-Identifier: Apache-2.0

"""Shows tox all Pythons of pyenv; its shims hide all but one."""

import os
import pathlib
import re
import sys

from tox.plugin import impl

#: A release of CPython; pyenv keeps others there, and virtual environments.
RELEASE = re.compile(r'3\.(\d+)\.(\d+)')
OLDEST = 11


def interpreters():
    """Return the Pythons of pyenv that may run our tests, latest first."""
    root = pathlib.Path(
        os.environ.get('PYENV_ROOT') or pathlib.Path.home() / '.pyenv')
    releases = [
        (int(match[1]), int(match[2]), path) for path
        in root.glob('versions/*/bin/python')
        if (match := RELEASE.fullmatch(path.parts[-3]))
        and int(match[1]) >= OLDEST]
    return [str(path) for *_, path in sorted(releases, reverse=True)]


@impl
def tox_add_core_config(core_conf, state):
    """Have tox look at them after the one that it runs with."""
    # hasattr: not every command of tox makes environments.
    if hasattr(state.conf.options, 'discover'):
        state.conf.options.discover += [sys.executable, *interpreters()]
