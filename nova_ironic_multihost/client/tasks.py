# SPDX-License-Identifier: Apache-2.0

"""The task state of a server, in words."""

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules import takeover


def words(seen: cloud_state.CloudState,
          instance: cloud_state.CloudServer) -> str:
    """Return the task state of a server in words, '' for none.

    A takeover mark has only a hash of its host; it is compared with the
    hosts of nova's compute services.
    """
    doing = instance.task_state
    if not takeover.is_mark(doing):
        return doing or ''
    hosts = [service.host for service in seen.services
             if not takeover.is_anothers(doing, service.key)]
    before = takeover.before_mark(doing)
    return (f'taken over by {hosts[0] if hosts else "somebody"}'
            + (f', was {before}' if before else ''))
