# SPDX-License-Identifier: Apache-2.0

"""Why a node is not simply kept where it is.

The decision of the driver, made once more from what the databases say. What
only a compute knows of itself, such as how many audits it has been up for,
is not seen from here: a node that waits for that shows as one that is about
to move.
"""

import dataclasses
import warnings

SHOWN = 5

# What a compute that does not own a node is about to do, by the name of its
# reason. In its log the reason tells of what it has done.
_AHEAD = {
    'TAKEN_OVER': 'with an instance of a dead compute service, about '
                  'to be taken over',
    'CREATED': 'free, about to be recorded for the first time',
    'ADOPTED': 'free, about to be adopted from a compute service that is '
               'down',
    'PULLED': 'free, about to be pulled',
}


@dataclasses.dataclass(frozen=True)
class Explained:
    """One node.

    :ivar owner: compute that it is recorded on, '' if none, in lower case
    :ivar host: the compute that decides, in lower case
    :ivar reason: what it decides, in words
    """

    node: str
    owner: str
    host: str
    reason: str

    @property
    def sentence(self):
        """The same for people."""
        where = f'on {self.owner}' if self.owner else 'on no compute'
        who = ('' if self.host == self.owner else
               f', preferred by {self.host}' if self.host else
               ', preferred by nobody')
        return f'{where}{who}: {self.reason}'


def explain(seen, partitions, cross_zones=False, policy='forced_down'):
    """Explain every node that is not simply kept.

    :param seen: an Observation
    :param partitions: points per member on the ring
    :param cross_zones: whether nodes may change their availability zone
    :param policy: which compute services lose their instances; nobody sees
        from here for how long one has been down
    :returns: list of :class:`Explained`, by node
    """
    with warnings.catch_warnings(record=True):
        # The logging library imports eventlet, which warns about itself
        # and resets the filters to be heard.
        from nova_ironic_multihost.rules import ownership

    judge = _Judge(seen, partitions, cross_zones, policy)
    usual = {ownership.Reason.KEPT, ownership.Reason.INSTANCE_HERE}
    found = []
    for node in sorted(node.uuid for node in seen.nodes):
        owner = seen.owner_of.get(node, '')
        host = judge.preferred(node, owner)
        if owner in seen.up_hosts:
            reason = judge.reason(owner, node)
            if reason is ownership.Reason.KEPT and host not in (None, owner):
                reason = judge.reason(host, node)
            else:
                host = owner
        elif host:
            reason = judge.reason(host, node)
        else:
            found.append(Explained(node, owner, '', 'no compute may take it'))
            continue
        if reason not in usual:
            ahead = _AHEAD.get(reason.name) if host != owner else None
            found.append(
                Explained(node, owner, host, ahead or reason.value))
    listed = {node.uuid for node in seen.nodes}
    found += [
        Explained(record.node, record.owner, record.owner,
                  ownership.Reason.UNLISTED.value)
        for record in seen.records if record.node not in listed]
    return found


def members(seen):
    """Hosts in lower case that share the nodes, as an Observation has it."""
    view = _membership(seen, '')
    return frozenset(host for host in view.services if view.member(host))


def _membership(seen, host):
    """The compute services as a host sees them."""
    from nova_ironic_multihost.rules import peers

    return peers.view(
        [peers.ComputeService(
            service.host, service.up,
            service.disabled and not service.stop_marker, service.forced_down,
            stop_marker=service.stop_marker) for service in seen.services],
        peers.Partition(), host,
        over=[(service.key, service.stop_marker)
              for service in seen.services if service.over])


class _Judge:
    """What each compute of a view would decide."""

    def __init__(self, seen, partitions, cross_zones, policy):
        from nova_ironic_multihost.rules import ring
        from nova_ironic_multihost.rules import takeover

        self._seen = seen
        self._zones = seen.zones
        self._preferences = ring.Preferences(
            {host: self._zones.get(host) for host in members(seen)},
            partitions, cross_zones)
        self._policy = takeover.Policy(policy)
        self._reasons = {}

    def preferred(self, node, owner):
        return self._preferences.host_for(node, self._zones.get(owner))

    def reason(self, host, node):
        if host not in self._reasons:
            self._reasons[host] = self._decide(host)
        return self._reasons[host][node]

    def _decide(self, host):
        from nova_ironic_multihost.rules import model
        from nova_ironic_multihost.rules import ownership
        from nova_ironic_multihost.rules import takeover

        seen = self._seen
        view = _membership(seen, host)
        reasons = ownership.decide(model.Facts(
            nodes={node.uuid: node.instance_uuid for node in seen.nodes},
            my_instances=frozenset(
                instance.uuid for instance in seen.instances
                if instance.host_key == host and not instance.deleted),
            my_nodes=frozenset(seen.owned_by(host)),
            view=view,
            preferences=self._preferences,
            mapped=seen.service_of[host].mapped,
            zones=self._zones,
            instance_states=seen.instance_of,
            records={record.node: record for record in seen.records
                     if record.owner != host},
            eligible=takeover.eligible(self._policy, view, {})))
        used = {allocation.provider for allocation in seen.allocations}
        return ownership.confirmed(
            reasons, {node: node in used for node in reasons}, reasons, ())


def summary(explained):
    """The same in few lines: what is said of several nodes is said once.

    :param explained: what :func:`explain` returned
    """
    counts = {}
    for one in explained:
        counts[one.sentence] = counts.get(one.sentence, 0) + 1
    lines = [f'{count} node{"s" if count > 1 else ""} {sentence}'
             for sentence, count in sorted(counts.items())]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f'and {len(lines) - SHOWN} more: tools/lab status '
                         '--nodes']
    return lines
