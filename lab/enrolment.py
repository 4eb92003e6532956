# SPDX-License-Identifier: Apache-2.0

"""Fake nodes for an Ironic, from nothing up to 'available'."""

import concurrent.futures
import time

from lab import errors

_THREADS = 8
# One that touches neither a machine nor a network.
_INTERFACES = {'boot_interface': 'fake', 'deploy_interface': 'fake',
               'network_interface': 'noop', 'storage_interface': 'noop'}


def enrol(ironic, names, resource_class='baremetal', patience=120):
    """Enrol nodes, each stage for all of them at once.

    :param ironic: python-ironicclient v1 client whose account may do that
    :param names: of the nodes
    :param patience: seconds for each stage
    :raises LabError: when a stage takes too long
    """
    node = ironic.node

    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        # On its own: keystone reads its policy at the first request, and
        # refuses others that it gets in the meantime.
        node.list(limit=1)
        nodes = set(pool.map(
            lambda name: create(ironic, name, resource_class), names))
        # A fake node has no power state until it is told one, and nova takes
        # a node without one for a node that is in use.
        for change, is_done in (
                (lambda n: node.set_provision_state(n, 'manage'),
                 lambda n: n.provision_state == 'manageable'),
                (lambda n: node.set_power_state(n, 'on'),
                 lambda n: n.power_state == 'power on'),
                (lambda n: node.set_provision_state(n, 'provide'),
                 lambda n: n.provision_state == 'available')):
            list(pool.map(change, nodes))
            _wait(node, nodes, is_done, patience)


def create(ironic, name, resource_class='baremetal'):
    """Make a fake node, which is then in the state 'enroll'.

    :returns: its uuid
    """
    return ironic.node.create(
        driver='fake-hardware', name=name, resource_class=resource_class,
        properties={'cpu_arch': 'x86_64', 'cpus': 1, 'memory_mb': 1024,
                    'local_gb': 10}, **_INTERFACES).uuid


def _wait(node, nodes, is_done, patience):
    deadline = time.monotonic() + patience
    while not all(is_done(one) for one in node.list(
            limit=0, fields=['uuid', 'provision_state', 'power_state'])
            if one.uuid in nodes):
        if time.monotonic() > deadline:
            raise errors.LabError('Ironic does not get its nodes ready after '
                                  f'{patience} s.')
        time.sleep(0.3)
