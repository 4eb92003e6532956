# SPDX-License-Identifier: Apache-2.0

"""How nova finds the driver.

nova imports its driver only as ``nova.virt.<compute_driver>``
(``nova.virt.driver.load_compute_driver``), and no other distribution may
write into the package ``nova.virt``. So a finder, the last one on
``sys.meta_path``, answers for ``nova.virt.ironic_multihost`` and for no other
name.

:mod:`nova_ironic_multihost.vif` registers the finder in a stock nova-compute.
``nova-compute-ironic-multihost`` (:func:`main`) is for a frozen or repackaged
nova-compute that finds no os-vif plug-ins. ``python -m
nova_ironic_multihost.loader`` needs no script, but health checks that look for
nova-compute do not find it. The import of this module needs the standard
library only, as nova chooses its threading mode later.
"""

import importlib
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


def register():
    """Append the finder to ``sys.meta_path``, once."""
    if not any(isinstance(finder, DriverFinder) for finder in sys.meta_path):
        sys.meta_path.append(DriverFinder())


def main():
    """Run nova-compute, with its own arguments, until the service ends."""
    register()
    # oslo.config names the default configuration files and the log after it.
    sys.argv[0] = 'nova-compute'
    # Not earlier: nova patches its threading at this import.
    try:
        from nova.cmd import compute
    except ModuleNotFoundError as error:
        if error.name != 'nova':
            raise
        sys.exit(
            'nova-compute-ironic-multihost needs nova, which '
            f'{sys.executable} does not have: install the wheel of this '
            'package into the environment of nova-compute.')
    compute.main()


if __name__ == '__main__':
    # Not this copy of the module: vif would register a second finder.
    importlib.import_module('nova_ironic_multihost.loader').main()
