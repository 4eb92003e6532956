# SPDX-License-Identifier: Apache-2.0

"""Is a node free, in use, or held without a server?"""

import enum

from nova_ironic_multihost.client import cloud_state


class Usage(enum.Enum):
    """The use of a node; the value is for people.

    :cvar USED: by a server, which may still be in a build.
    :cvar LEAKED: held for a server that nova has deleted.
    :cvar UNKNOWN: held for a server that nova does not know.
    :cvar NO_SERVER: active, but held for no server.
    """

    FREE = 'free'
    USED = 'used'
    LEAKED = 'leaked'
    UNKNOWN = 'unknown server'
    NO_SERVER = 'no server'

    @property
    def stray(self) -> bool:
        """Whether the node is in use without a server."""
        return self not in (Usage.FREE, Usage.USED)


def of(node: cloud_state.Node, seen: cloud_state.CloudState) -> Usage:
    """Return the use of a node."""
    if node.instance_uuid is None:
        return (Usage.NO_SERVER if node.provision_state == 'active'
                else Usage.FREE)
    instance = seen.instance_of.get(node.instance_uuid)
    if instance is None:
        return Usage.UNKNOWN
    return Usage.LEAKED if instance.deleted else Usage.USED
