# SPDX-License-Identifier: Apache-2.0

"""nova-compute with the driver registered first.

``nova-compute-ironic-multihost`` takes nova-compute's own arguments and does
what nova-compute does. It is for installations whose os-vif plug-ins are not
found (a frozen or repackaged nova-compute); everyone else runs plain
``nova-compute``. Where scripts are not installed
``python -m nova_ironic_multihost.compute`` is the same. Health checks that
look for a process nova-compute find the script and not the module.
"""

import sys

from nova_ironic_multihost import loader


def main():
    """Run nova-compute; does not return before the service ends."""
    loader.register()
    # oslo.config derives the names of the default configuration files
    # (nova.conf, nova-compute.conf) and of the log from the program's name.
    sys.argv[0] = 'nova-compute'
    # Imported here: nova patches its threading at this import and wants the
    # process as its own console script leaves it.
    from nova.cmd import compute
    compute.main()


if __name__ == '__main__':
    main()
