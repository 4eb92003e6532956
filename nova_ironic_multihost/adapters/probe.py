# SPDX-License-Identifier: Apache-2.0

"""Load the driver as nova-compute does, and tell what came of it.

Run as a script by the interpreter of nova-compute, which need not have this
package. Its argument, if it has one, is ``[ironic_multihost]base_driver``. The
last line of what it prints is a JSON object with the fields of
:class:`nova_ironic_multihost.client.upgrade.driver_load.Probe`, but for
``python``.
"""

import importlib
from importlib import metadata
import json
import sys

DRIVER = 'nova.virt.ironic_multihost'
PLUG_IN = 'ironic_multihost'


def look(base=None):
    """Return what was found, as a dict.

    :param base: MODULE.CLASS of the driver that ours is to extend, None for
        nova's own.
    """
    found = {'nova': _version(), 'registered': False, 'error': None,
             'lacking': [], 'shadowed': []}
    plug_ins = metadata.entry_points(group='os_vif', name=PLUG_IN)
    found['registered'] = bool(plug_ins)
    try:
        # It chooses how threads work before anything else is imported.
        importlib.import_module('nova.cmd.compute')
        importlib.import_module('os_vif').initialize()
        _load(plug_ins)
        table = importlib.import_module(
            'nova_ironic_multihost.adapters.patches.table'
        )
        found['lacking'] = table.lacking()
        if base:
            found['shadowed'] = _over(base)
    # Whatever it is, it would be what nova-compute ends with.
    except Exception as error:  # noqa: BLE001
        found['error'] = f'{type(error).__name__}: {error}'
    return found


def _version():
    try:
        return metadata.version('nova')
    except metadata.PackageNotFoundError:
        return None


def _load(plug_ins):
    try:
        importlib.import_module(DRIVER)
    except ModuleNotFoundError:
        # os-vif has logged why it has not loaded the plug-in, and gone on.
        for plug_in in plug_ins:
            plug_in.load()
        raise


def _over(base):
    """Return what of a base is not called; fails if it cannot be one."""
    importlib.import_module('nova_ironic_multihost._nova_virt').over(base)
    bases = importlib.import_module(
        'nova_ironic_multihost.adapters.base_driver'
    )
    return bases.shadowed(bases.load(base))


if __name__ == '__main__':
    print('\n' + json.dumps(look(*sys.argv[1:])))
