# SPDX-License-Identifier: Apache-2.0

"""An operator's own driver class, which extends nova's driver for Ironic.

This package's driver stands in front of it: a method that both override is
called on this package's class first, then on the operator's, then on nova's.
"""

from __future__ import annotations

import importlib
import inspect

from nova_ironic_multihost.adapters import names

#: Methods of nova's driver that this package's driver replaces.
ANSWERED = frozenset({
    '_node_from_cache', '_refresh_cache', '_refresh_hash_ring',
    'get_available_nodes', 'get_num_instances', 'is_node_deleted',
    'list_instance_uuids'})

#: Methods of a base that are not called, or not always.
SHADOWED = ANSWERED | {'_get_node_list', 'get_info'}


class UnsupportedDriver(ImportError):
    """A class cannot be the base of this package's driver.

    nova logs an ImportError of its driver and exits with status 1.
    """

    def __init__(self, sentences: str) -> None:
        super().__init__(f'[ironic_multihost]base_driver: {sentences}')


def load(name: str) -> type[names.IronicDriver]:
    """Import the class of ``base_driver``; may raise UnsupportedDriver."""
    module, _, attribute = name.rpartition('.')
    if not module:
        raise UnsupportedDriver('It has no module: write it as MODULE.CLASS.')
    try:
        found = getattr(importlib.import_module(module), attribute)
    # Any error in the module would end nova-compute.
    except Exception as exc:
        raise UnsupportedDriver(
            f'It cannot be imported: {type(exc).__name__}: {exc}. Check that '
            "nova-compute's Python can import it, and that its name is "
            'complete, MODULE.CLASS, also below nova.virt.') from exc
    if not (inspect.isclass(found)
            and issubclass(found, names.IronicDriver)):
        raise UnsupportedDriver(
            'It does not extend the driver of the nova that is installed: '
            f'make it a subclass of {names.IronicDriver.__module__}.'
            f'{names.IronicDriver.__name__}.')
    return found


def shadowed(base: type[names.IronicDriver]) -> list[str]:
    """Return CLASS.METHOD, sorted, of a base's methods not always called."""
    order = base.__mro__
    return sorted(
        f'{owner.__name__}.{name}'
        for owner in order[:order.index(names.IronicDriver)]
        for name in SHADOWED & vars(owner).keys())
