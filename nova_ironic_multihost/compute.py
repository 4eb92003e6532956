# SPDX-License-Identifier: Apache-2.0

"""nova-compute, with its own arguments, but with the driver registered first.

``nova-compute-ironic-multihost`` is for a frozen or repackaged nova-compute
that finds no os-vif plug-ins. ``python -m nova_ironic_multihost.compute``
needs no script, but health checks that look for nova-compute do not find it.
"""

import sys

from nova_ironic_multihost import loader


def main():
    """Run nova-compute; does not return before the service ends."""
    loader.register()
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
            f'{sys.executable} does not have: pip install '
            "'nova-ironic-multihost[nova]' in the environment of "
            'nova-compute.')
    compute.main()


if __name__ == '__main__':
    main()
