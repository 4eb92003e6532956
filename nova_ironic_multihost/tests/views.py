# SPDX-License-Identifier: Apache-2.0

"""Hand-made observations for the tests of what looks at them."""

import dataclasses

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules import model

NOW = 1000.0
HOSTS = ('compute-1', 'compute-2', 'compute-3')


def consistent():
    """Three live hosts, six nodes of two each, one server on compute-1."""
    nodes = [cloud_state.Node(f'node-{i}') for i in range(6)]
    nodes[0] = dataclasses.replace(
        nodes[0], instance_uuid='server-0', provision_state='active')
    return cloud_state.CloudState(
        at=NOW,
        services=tuple(cloud_state.Service(host, seen=NOW - 1)
                       for host in HOSTS),
        records=tuple(model.Record(f'node-{i}', HOSTS[i % 3], row=i)
                      for i in range(6)),
        nodes=tuple(nodes),
        providers=tuple(
            cloud_state.Provider(f'node-{i}', used=int(i == 0), id=i)
            for i in range(6)),
        allocations=(cloud_state.Allocation('server-0', 'node-0'),),
        instances=(cloud_state.CloudServer(
            'compute-1', node='node-0', uuid='server-0', name='one',
            updated=NOW - 500),))


def offered():
    """The same, and placement offers all nodes."""
    seen = consistent()
    for index in range(len(seen.providers)):
        seen = changed(seen, 'providers', index, total=1, reserved=0)
    return seen


def changed(seen, field, index, /, **changes):
    """The observation with one entry of a field changed."""
    entries = list(getattr(seen, field))
    entries[index] = dataclasses.replace(entries[index], **changes)
    return dataclasses.replace(seen, **{field: tuple(entries)})


def without(seen, field, index):
    """The observation with one entry of a field gone."""
    entries = list(getattr(seen, field))
    del entries[index]
    return dataclasses.replace(seen, **{field: tuple(entries)})


def with_more(seen, field, entry):
    """The observation with one entry more in a field."""
    return dataclasses.replace(
        seen, **{field: getattr(seen, field) + (entry,)})
