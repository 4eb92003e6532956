# SPDX-License-Identifier: Apache-2.0

"""The module that nova imports as ``nova.virt.ironic_multihost``."""

import functools

from oslo_log import log as logging

from nova_ironic_multihost.adapters import base_driver
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost import conf
from nova_ironic_multihost import driver
from nova_ironic_multihost import loader


__all__ = ('IronicMultiHostDriver',)  # noqa: F822


def __getattr__(name):
    """Return the driver: nova asks for it when its options are read."""
    if name in __all__:
        return configured()
    raise AttributeError(
        f'nova-ironic-multihost has no driver {name!r}: set compute_driver = '
        f'ironic_multihost.IronicMultiHostDriver in nova.conf')


LOG = logging.getLogger(__name__)


def configured():
    """Return the class that nova.conf asks for; raises as :func:`over`."""
    conf.register_opts(names.CONF)
    name = names.CONF.ironic_multihost.base_driver
    return over(name) if name else driver.IronicMultiHostDriver


@functools.cache
def over(name):
    """Return our driver class over an operator's class.

    :param name: MODULE.CLASS of a subclass of nova's IronicDriver.
    :raises UnsupportedDriver: it cannot be used; says why.
    """
    if name.startswith(f'{loader.DRIVER_MODULE}.'):
        # Its lookup calls this function again.
        raise base_driver.UnsupportedDriver(
            "It is this package's driver: name your own class, or leave the "
            "option away for nova's.")
    base, ours = base_driver.load(name), driver.IronicMultiHostDriver
    composed = type(ours.__name__, (ours, base), {
        '__module__': ours.__module__, '__doc__': ours.__doc__})
    LOG.info('The driver extends %s.', name)
    if unused := base_driver.shadowed(base):
        LOG.warning(
            'What these do is not done, or not always, as this driver answers '
            'itself what they are asked: %s. See the documentation (page "A '
            'driver of your own").', ', '.join(unused))
    return composed
