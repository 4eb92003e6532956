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

"""The scripts in tools/ that have a part worth testing."""

import importlib.machinery
import importlib.util
import pathlib

TOOLS = pathlib.Path(__file__).resolve().parents[4] / 'tools'


def load(name):
    """Import a script that has no ending.

    :param name: its name in tools/.
    :returns: a module of its own for each call.
    """
    loader = importlib.machinery.SourceFileLoader(
        f'tools_{name}', str(TOOLS / name))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
