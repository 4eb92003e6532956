# SPDX-License-Identifier: Apache-2.0

"""What is in etc/fencing."""

from importlib import machinery
from importlib import util
import pathlib

FENCING = pathlib.Path(__file__).resolve().parents[3] / 'etc' / 'fencing'


def load(path):
    """Import a program that lies there."""
    name = path.stem.replace('-', '_')
    spec = util.spec_from_loader(
        name, machinery.SourceFileLoader(name, str(path)))
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
