# SPDX-License-Identifier: Apache-2.0

"""What a node is to nova: free, in use, or held for nobody."""

import enum

from nova_ironic_multihost.client import cloud_state


class Usage(enum.Enum):
    """What there is on a node; the value is for people to read.

    :cvar FREE: nothing.
    :cvar USED: a server of nova, or one that is being built.
    :cvar LEAKED: it is held for a server that nova has deleted.
    :cvar UNKNOWN: it is held for a server that nova does not know.
    :cvar NO_SERVER: it is active, and held for no server.
    """

    FREE = 'free'
    USED = 'used'
    LEAKED = 'leaked'
    UNKNOWN = 'unknown server'
    NO_SERVER = 'no server'

    @property
    def stray(self) -> bool:
        """Whether a machine runs that no server has."""
        return self not in (Usage.FREE, Usage.USED)


def of(node: cloud_state.Node, seen: cloud_state.CloudState) -> Usage:
    """Return what there is on a node."""
    if node.instance_uuid is None:
        return (Usage.NO_SERVER if node.provision_state == 'active'
                else Usage.FREE)
    instance = seen.instance_of.get(node.instance_uuid)
    if instance is None:
        return Usage.UNKNOWN
    return Usage.LEAKED if instance.deleted else Usage.USED
