# SPDX-License-Identifier: Apache-2.0

"""The nodes that move, and what the mechanisms choose them by."""

import contextlib
import time

from lab import errors
from lab import timeline
from nova_ironic_multihost.client import cloud_state

# Images get their id before there is a lab, for nova's configuration.
ISOLATED_IMAGE = '5d3c8a4e-2f0b-4c39-9a51-6f4c9f5f6a01'
ISOLATED_HOST = 'compute-3'

CLASS = 'moved'
RESOURCE = 'CUSTOM_MOVED'
TRAIT_ALL = 'CUSTOM_LAB_MOVED'
TRAIT_MOST = 'CUSTOM_LAB_OLD'
TRAIT_ONE = 'CUSTOM_LAB_GPU'
TRAIT_NONE = 'CUSTOM_LAB_NEVER'

# Patience; an audit or two is all it takes where nothing else runs.
MIRRORED = 60.0
MARKED = 90.0
DRAINED = 90.0


class Stage:
    """The nodes that move, and what the mechanisms choose them by.

    :ivar nodes: uuids of the nodes that move; all servers get one of them
    :ivar left: name of the compute that survives, in zone lab-left
    :ivar right: the one that is isolated, in zone lab-right
    """

    def __init__(self, bench, undo):
        self._bench = bench
        self._cloud = bench.cloud
        self._undo = undo
        self._flavors = {}
        self._aggregates = {}
        self._victim, self.left = self._roles()
        self.right = ISOLATED_HOST
        self._hosts = {'lab-left': self.left, 'lab-right': self.right}
        self.nodes = bench.recorder.view.free_of(self._victim)
        if len(self.nodes) < 4:
            raise errors.LabError(
                f'{self._victim} has only {len(self.nodes)} free nodes; four '
                'are needed. Take more: --nodes 24')

    def _roles(self):
        """Which compute is killed, which one survives.

        The one whose nodes will be split more evenly is killed: each
        survivor needs some.
        """
        seen = self._bench.recorder.view
        names = frozenset(n.lower() for n in self._bench.computes.names())

        def fewest(victim):
            left = names - {victim.lower()}
            owners = [self._bench.prefer(left, node)
                      for node in seen.free_of(victim)]
            return min(owners.count(name) for name in left)

        victim, other = sorted(
            (n for n in self._bench.computes.names() if n != ISOLATED_HOST),
            key=fewest, reverse=True)
        if not fewest(victim):
            raise errors.LabError(
                f'The free nodes of {victim} will not be shared by both '
                'survivors. Take more nodes: --nodes 24')
        return victim, other

    @property
    def project(self):
        """Id of the project that all servers belong to."""
        return self._cloud.session.get_project_id()

    @property
    def rack(self):
        """The node with a capability of its own."""
        return self.nodes[0]

    @property
    def gpu(self):
        """The node with TRAIT_ONE."""
        return self.nodes[1]

    @property
    def arm(self):
        """The node of another architecture."""
        return self.nodes[2]

    @property
    def new(self):
        """The only node without TRAIT_MOST."""
        return self.nodes[3]

    def of(self, host):
        """Those of the nodes that a compute owns now, as a set."""
        return frozenset(self.nodes).intersection(
            self._bench.recorder.view.owned_by(host))

    def prepare(self):
        """Nodes get what they are chosen by; hosts their aggregates."""
        self._bench.note(f'mark {len(self.nodes)} nodes of {self._victim}')
        for trait in (TRAIT_ALL, TRAIT_MOST, TRAIT_ONE, TRAIT_NONE):
            self._cloud.placement('PUT', f'/traits/{trait}')
        # nova would make it with the first audit; it is asked for before.
        self._cloud.placement('PUT', f'/resource_classes/{RESOURCE}')
        for node in self.nodes:
            self._mark(node)
        self._undo.callback(self.disband)
        for name, host in self._hosts.items():
            self._aggregates[name] = self._aggregate(name, host)
            self.metadata(name, availability_zone=name)
        self._poll(self._offered, MARKED,
                   f'The new resource class of nodes of {self._victim}')

    def kill(self):
        """The compute dies; its nodes get new owners."""
        bench = self._bench
        bench.kill(self._victim)
        self._undo.callback(bench.start, self._victim)
        bench.await_down(self._victim)
        bench.await_arrival(self._victim, self.nodes)
        # What follows an audit later is for the trials to judge.
        with contextlib.suppress(errors.LabError):
            self._poll(self._mirrored, MIRRORED, 'Aggregates in placement')

    def await_free(self):
        """Wait until all nodes can be had again."""
        self._poll(self._offered, MARKED, 'All nodes being free again')

    def await_leave(self, host):
        """Wait until a compute owns none of the nodes; whether it came."""
        return self._seen(lambda seen: not self.of(host), DRAINED)

    def await_barred(self):
        """Wait until placement calls all nodes disabled; whether it came."""
        return self._seen(lambda seen: all(
            cloud_state.DISABLED_TRAIT in seen.provider_of[node].traits
            for node in self.nodes), MIRRORED)

    def _seen(self, condition, timeout):
        try:
            self._bench.recorder.wait_for(condition, timeout, 'that')
        except timeline.NeverHappened:
            return False
        return True

    def flavor(self, **specs):
        """Id of a flavor for these nodes.

        :param specs: its extra specs beside that; __ stands for a colon
        """
        key = tuple(sorted(specs.items()))
        if key not in self._flavors:
            name = f'lab-scheduler-{len(self._flavors)}'
            flavor = self._cloud.nova('POST', '/flavors', {'flavor': {
                'name': name, 'vcpus': 1, 'ram': 1024, 'disk': 10,
            }})['flavor']['id']
            self._undo.callback(
                self._cloud.nova, 'DELETE', f'/flavors/{flavor}')
            # Newer ones refuse capabilities that nova does not know.
            self._cloud.nova(
                'POST', f'/flavors/{flavor}/os-extra_specs',
                {'extra_specs': {
                    f'resources:{RESOURCE}': '1', 'resources:VCPU': '0',
                    'resources:MEMORY_MB': '0', 'resources:DISK_GB': '0',
                    **{name.replace('__', ':'): value
                       for name, value in specs.items()}}}, '2.85')
            self._flavors[key] = flavor
        return self._flavors[key]

    def image(self, name, **properties):
        """Id of a new image."""
        images = self._cloud.sdk.image
        image = images.create_image(
            f'lab-{name}', data=b'\0' * 1024, disk_format='raw',
            container_format='bare', wait=True, **properties)
        self._undo.callback(images.delete_image, image.id)
        return image.id

    def group(self, policy):
        """Scheduler hints that put a server into a new server group."""
        group = self._cloud.nova('POST', '/os-server-groups', {
            'server_group': {'name': f'lab-{policy}', 'policy': policy},
        })['server_group']['id']
        self._undo.callback(
            self._cloud.nova, 'DELETE', f'/os-server-groups/{group}')
        return {'group': group}

    def metadata(self, aggregate, **values):
        """Set metadata of an aggregate; None takes an entry away.

        :param values: __ in a name stands for a colon
        """
        self._cloud.nova(
            'POST', f'/os-aggregates/{self._aggregates[aggregate]}/action',
            {'set_metadata': {'metadata': {
                name.replace('__', ':'): value
                for name, value in values.items()}}})

    def disband(self):
        """Delete the aggregates; an availability zone goes with its own."""
        while self._aggregates:
            name, aggregate = self._aggregates.popitem()
            path = f'/os-aggregates/{aggregate}'
            self._cloud.nova('POST', f'{path}/action', {
                'remove_host': {'host': self._hosts[name]}})
            self._cloud.nova('DELETE', path)

    @contextlib.contextmanager
    def disabled(self, host):
        """A compute is disabled within."""
        self._bench.note(f'disable {host}')
        self._bench.computes.disable(host)
        try:
            yield
        finally:
            self._bench.note(f'enable {host}')
            self._bench.computes.enable(host)

    def _mark(self, node):
        """Give a node what the mechanisms choose it by, until the end."""
        before = self._cloud.ironic.node.get(node)
        changes = {'/resource_class': CLASS}
        if node == self.rack:
            changes['/properties/capabilities'] = 'lab_rack:r1'
        if node == self.arm:
            changes['/properties/cpu_arch'] = 'aarch64'
        traits = [TRAIT_ALL]
        traits += [TRAIT_MOST] if node != self.new else []
        traits += [TRAIT_ONE] if node == self.gpu else []
        self._change(node, changes, traits)
        self._undo.callback(self._change, node, {
            '/resource_class': before.resource_class,
            '/properties': before.properties}, before.traits)

    def _change(self, node, changes, traits):
        self._cloud.ironic.node.update(node, [
            {'op': 'add', 'path': path, 'value': value}
            for path, value in changes.items()])
        self._cloud.ironic.node.set_traits(node, traits)

    def _aggregate(self, name, host):
        """Id of a new host aggregate with one host."""
        aggregate = self._cloud.nova('POST', '/os-aggregates', {
            'aggregate': {'name': name}})['aggregate']['id']
        self._cloud.nova('POST', f'/os-aggregates/{aggregate}/action',
                         {'add_host': {'host': host}})
        return aggregate

    def _offered(self):
        """Whether placement would give away all of the nodes."""
        found = self._cloud.placement(
            'GET', f'/resource_providers?resources={RESOURCE}:1'
            f'&required=!{cloud_state.DISABLED_TRAIT}')
        return {p['uuid'] for p in found['resource_providers']}.issuperset(
            self.nodes)

    def _mirrored(self):
        """Whether all nodes are in the aggregate of their host."""
        uuids = {str(a['id']): a['uuid'] for a in self._cloud.nova(
            'GET', '/os-aggregates')['aggregates']}
        for name, host in self._hosts.items():
            member_of = uuids[str(self._aggregates[name])]
            found = self._cloud.placement(
                'GET', f'/resource_providers?member_of={member_of}')
            if not self.of(host) <= {
                    p['uuid'] for p in found['resource_providers']}:
                return False
        return True

    @staticmethod
    def _poll(condition, timeout, what):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise errors.LabError(
                    f'{what} did not come within {timeout:.0f} s')
            time.sleep(0.5)
