# SPDX-License-Identifier: Apache-2.0


"""What a server is in the middle of, in words."""

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules import takeover


def words(seen: cloud_state.CloudState,
          instance: cloud_state.CloudServer) -> str:
    """Return what a server is in the middle of, '' for nothing.

    The mark of a take-over has but a number of who takes the server over,
    which is looked for among the compute services that nova has.
    """
    doing = instance.task_state
    if not takeover.is_mark(doing):
        return doing or ''
    hosts = [service.host for service in seen.services
             if not takeover.is_anothers(doing, service.key)]
    before = takeover.marked(doing)
    return (f'taken over by {hosts[0] if hosts else "somebody"}'
            + (f', was {before}' if before else ''))
