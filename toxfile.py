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
