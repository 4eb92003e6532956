# SPDX-License-Identifier: Apache-2.0

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
