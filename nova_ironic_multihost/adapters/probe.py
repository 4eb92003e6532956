# SPDX-License-Identifier: Apache-2.0

"""The probe: load the driver as nova-compute does and print the result.

The argument is ``[ironic_multihost]base_driver``. The last line is JSON:
``error`` (why the driver cannot be loaded), ``lacking`` (names that this
package replaces, and that this nova does not have) and ``shadowed`` (methods
of the base driver that are not called, or not always).
"""

import importlib
from importlib import metadata
import json
import sys

DRIVER = 'nova.virt.ironic_multihost'
PLUG_IN = 'ironic_multihost'


def find(base=None):
    """Return the result as a dict."""
    found = {'error': None, 'lacking': [], 'shadowed': []}
    try:
        # Must be the first import: it chooses the threading backend.
        importlib.import_module('nova.cmd.compute')
        importlib.import_module('os_vif').initialize()
        _load()
        table = importlib.import_module(
            'nova_ironic_multihost.adapters.patches.table')
        found['lacking'] = table.lacking()
        if base:
            found['shadowed'] = _shadowed(base)
    # Any error would end nova-compute.
    except Exception as error:  # noqa: BLE001
        found['error'] = f'{type(error).__name__}: {error}'
    return found


def _load():
    try:
        importlib.import_module(DRIVER)
    except ModuleNotFoundError:
        # os-vif only logs the error of a plug-in: raise it here.
        for plug_in in metadata.entry_points(group='os_vif', name=PLUG_IN):
            plug_in.load()
        raise


def _shadowed(base):
    """Return the methods of a base that are not called, or raise."""
    importlib.import_module('nova_ironic_multihost._nova_virt').over(base)
    bases = importlib.import_module(
        'nova_ironic_multihost.adapters.base_driver')
    return bases.shadowed(bases.load(base))


if __name__ == '__main__':
    print('\n' + json.dumps(find(*sys.argv[1:])))
