# SPDX-License-Identifier: Apache-2.0

"""Which nodes a compute service shares, by its nova.conf."""

from oslo_config import cfg

from nova_ironic_multihost.rules import peers


def read(conf: cfg.ConfigOpts) -> peers.Partition:
    """Return the partition.

    :param conf: with nova's options for Ironic.
    """
    group = conf.ironic.conductor_group
    return peers.Partition(
        conductor_group=group if group is None else group.lower(),
        shard=conf.ironic.shard,
        peer_list=tuple(conf.ironic.peer_list))
