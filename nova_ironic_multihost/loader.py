# SPDX-License-Identifier: Apache-2.0

"""How nova finds the driver.

nova imports its driver only as ``nova.virt.<compute_driver>``
(``nova.virt.driver.load_compute_driver``), and no other distribution may
write into the package ``nova.virt``. So a finder, the last one on
``sys.meta_path``, answers for ``nova.virt.ironic_multihost`` and for no other
name.

:mod:`nova_ironic_multihost.vif` registers the finder in a stock nova-compute,
:mod:`nova_ironic_multihost.compute` where that is not possible. This module
uses the standard library only, as nova chooses its threading mode later.
"""

import importlib.abc
import importlib.util
import pathlib
import sys

#: The module of ``compute_driver = ironic_multihost.IronicMultiHostDriver``.
DRIVER_MODULE = 'nova.virt.ironic_multihost'


class DriverFinder(importlib.abc.MetaPathFinder):
    """Answers for :data:`DRIVER_MODULE` and for no other name."""

    def find_spec(self, fullname, path, target=None):
        """Return where the module is, or None if the name is not ours.

        nova itself imports the module then, and logs the error if that fails.
        """
        if fullname != DRIVER_MODULE:
            return None
        return importlib.util.spec_from_file_location(
            fullname, pathlib.Path(__file__).with_name('_nova_virt.py'))


def register(meta_path=None):
    """Append the finder to ``sys.meta_path``, or to another list, once."""
    finders = sys.meta_path if meta_path is None else meta_path
    if not any(isinstance(finder, DriverFinder) for finder in finders):
        finders.append(DriverFinder())
