# SPDX-License-Identifier: Apache-2.0

"""How nova finds the driver.

nova imports its driver as ``nova.virt.<compute_driver>`` and from nowhere
else (``nova.virt.driver.load_compute_driver``), and ``nova.virt`` is a
package that another distribution must not write into. So the name
``nova.virt.ironic_multihost`` is answered by a finder on ``sys.meta_path``:
for this one name, and after every finder that was there before, so nothing
else that Python imports is looked at or changed.

:mod:`nova_ironic_multihost.vif` registers the finder in a stock nova-compute,
:mod:`nova_ironic_multihost.compute` where that way is closed. This module
uses the standard library only: it is imported before nova has chosen its
threading mode and must not choose for it.
"""

import importlib.abc
import importlib.util
import pathlib
import sys

#: The module that ``compute_driver = ironic_multihost.IronicMultiHostDriver``
#: makes nova import.
DRIVER_MODULE = 'nova.virt.ironic_multihost'


class DriverFinder(importlib.abc.MetaPathFinder):
    """Answers for :data:`DRIVER_MODULE` and for no other name."""

    def find_spec(self, fullname, path, target=None):
        """Return where the module is, or None if the name is not ours.

        The module's own imports run when nova imports it, so what is wrong
        with our installation reaches nova's log as the ImportError it is.
        """
        if fullname != DRIVER_MODULE:
            return None
        return importlib.util.spec_from_file_location(
            fullname, pathlib.Path(__file__).with_name('_nova_virt.py'))


def register(meta_path=None):
    """Make nova able to import the driver; again does nothing.

    :param meta_path: list of finders to append to; ``sys.meta_path`` if None.
    """
    finders = sys.meta_path if meta_path is None else meta_path
    if not any(isinstance(finder, DriverFinder) for finder in finders):
        finders.append(DriverFinder())
