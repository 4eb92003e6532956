# SPDX-License-Identifier: Apache-2.0

"""What hosts see of each other."""

from nova_ironic_multihost.rules import peers


def view(up, dead=(), fenced=(), disabled=(), host='me', **more):
    """Return what a host sees of others that are in these states."""
    services = [peers.ComputeService(name, up=True) for name in up]
    services += [peers.ComputeService(name, up=False) for name in dead]
    services += [peers.ComputeService(name, up=False, forced_down=True)
                 for name in fenced]
    services += [peers.ComputeService(name, up=True, disabled=True)
                 for name in disabled]
    return peers.view(
        services, more.pop('partition', peers.Partition()), host, **more)
