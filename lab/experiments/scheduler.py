# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Every mechanism of nova's scheduler, with nodes that have just moved.

The free nodes of one compute get a resource class of their own and
properties, traits and so on for each mechanism to choose by. That compute
is killed, its nodes move, and from then on all servers are asked for on
nodes of that class: every server lands on a node that has moved, or
nowhere. For each mechanism servers that must find a node and servers that
must not are asked for. At the end the nodes move once more, from a compute
that is disabled.

Figures: mechanisms, for each of them "pass" or what went wrong, and
moved_nodes. Verdict: all pass.
"""

import contextlib
import dataclasses
import json
import time

from lab import errors
from lab import experiments
from lab import timeline
from nova_ironic_multihost.check import observation as consistency

FILTERS = (
    'ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
    'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter',
    'AggregateInstanceExtraSpecsFilter', 'IsolatedHostsFilter', 'JsonFilter')
# Images get their id before there is a lab, for nova's configuration.
ISOLATED_IMAGE = '5d3c8a4e-2f0b-4c39-9a51-6f4c9f5f6a01'
ISOLATED_HOST = 'compute-3'
NEEDS = experiments.Wanted(computes=3, options=(
    f'filter_scheduler.enabled_filters={",".join(FILTERS)}',
    f'filter_scheduler.isolated_hosts={ISOLATED_HOST}',
    f'filter_scheduler.isolated_images={ISOLATED_IMAGE}',
    # Otherwise no other image could be used there, in all other trials.
    'filter_scheduler.restrict_isolated_hosts_to_isolated_images=false',
    'scheduler.limit_tenants_to_placement_aggregate=true',
    'scheduler.enable_isolated_aggregate_filtering=true'))

CLASS = 'moved'
RESOURCE = 'CUSTOM_MOVED'
TRAIT_ALL = 'CUSTOM_LAB_MOVED'
TRAIT_MOST = 'CUSTOM_LAB_OLD'
TRAIT_ONE = 'CUSTOM_LAB_GPU'
TRAIT_NONE = 'CUSTOM_LAB_NEVER'
NO_VALID_HOST = 'No valid host was found'

# Patience; an audit or two is all it takes where nothing else runs.
MIRRORED = 60.0
MARKED = 90.0
DRAINED = 90.0
BUILD_TIMEOUT = 120.0


def failures(figures):
    """What the figures should not be, in sentences."""
    return [f'{name}: {result}' for name, result
            in figures['mechanisms'].items() if result != 'pass']


def run(bench):
    """Set the stage, move nodes, try each mechanism; the figures."""
    with contextlib.ExitStack() as undo:
        stage = _Stage(bench, undo)
        stage.prepare()
        stage.kill()
        results = {}
        for name, mechanism in MECHANISMS.items():
            bench.note(name)
            trial = Trial(bench, stage)
            mechanism(trial, stage)
            results[name] = trial.result()
            bench.say(f'{name}: {results[name]}')
        return {'mechanisms': results, 'moved_nodes': len(stage.nodes)}


@dataclasses.dataclass(frozen=True)
class Wish:
    """Servers asked for at once, and where they may land.

    :ivar what: what was asked for, in words
    :ivar nodes: uuids of the right nodes; none when there must be none
    """

    what: str
    servers: tuple
    nodes: frozenset

    def problem(self, found):
        """What is wrong with what came of it, in words, or ''.

        :param found: {server: its description by nova}
        """
        for server in self.servers:
            status = found[server]['status']
            node = found[server]['OS-EXT-SRV-ATTR:hypervisor_hostname']
            fault = found[server].get('fault', {}).get('message', '')
            if status not in ('ACTIVE', 'ERROR'):
                return f'{self.what}: still {status}'
            if self.nodes and status == 'ERROR':
                return f'{self.what}: {fault or status}'
            if self.nodes and node not in self.nodes:
                return (f'{self.what}: landed on a wrong node of '
                        f'{found[server]["OS-EXT-SRV-ATTR:host"]}')
            if not self.nodes and status == 'ACTIVE':
                return (f'{self.what}: found a node of '
                        f'{found[server]["OS-EXT-SRV-ATTR:host"]} where '
                        'there is none')
            if not self.nodes and not fault.startswith(NO_VALID_HOST):
                return f'{self.what}: {fault or status}'
        return ''


class Trial:
    """Servers asked for to try one mechanism.

    Ask with :meth:`lands` and :meth:`nowhere`, then :meth:`settle`; as often
    as it takes.
    """

    def __init__(self, bench, stage):
        self._bench = bench
        self._stage = stage
        self._wishes = []
        self._problems = []
        self._servers = []

    def lands(self, what, nodes, count=1, hints=None, **request):
        """Ask for servers that must land on these nodes, one on each."""
        if not nodes:
            # What could be a right node there has not moved there.
            self._problems.append(f'{what}: there is no such node')
            return
        self._ask(what, frozenset(nodes), count, hints, request)

    def nowhere(self, what, hints=None, **request):
        """Ask for a server for which there must be no node."""
        self._ask(what, frozenset(), 1, hints, request)

    def settle(self):
        """Wait for the servers; nodes of those that landed where they may.

        :returns: list of node uuids, in the order of asking
        """
        wanted = {s for wish in self._wishes for s in wish.servers}
        deadline = time.monotonic() + BUILD_TIMEOUT
        while True:
            found = {s['id']: s for s in self._bench.cloud.servers()
                     if s['id'] in wanted}
            if (all(s['status'] in ('ACTIVE', 'ERROR')
                    for s in found.values())
                    or time.monotonic() > deadline):
                break
            time.sleep(0.5)
        problems = [wish.problem(found) for wish in self._wishes]
        self._problems += filter(None, problems)
        landed = [
            found[server]['OS-EXT-SRV-ATTR:hypervisor_hostname']
            for wish, problem in zip(self._wishes, problems, strict=True)
            if wish.nodes and not problem for server in wish.servers]
        self._wishes = []
        return landed

    def clear(self):
        """Delete the servers and wait until all nodes can be had again."""
        self._bench.cloud.delete(self._servers)
        self._servers = []
        try:
            self._stage.await_free()
        except errors.LabError as error:
            self.miss(str(error))

    def miss(self, sentence):
        """Note that something else than a boot went wrong."""
        self._problems.append(sentence)

    def result(self):
        """'pass', or what went wrong; the servers are deleted."""
        self.clear()
        return '; '.join(self._problems) or 'pass'

    def _ask(self, what, nodes, count, hints, request):
        prefix = f'scheduler-{len(self._servers) + 1}'
        cloud = self._bench.cloud
        more = {'flavorRef': self._stage.flavor()} | request
        if count > 1:
            more |= {'min_count': count, 'max_count': count}
        before = {s['id'] for s in cloud.servers()}
        first = cloud.create(prefix, hints, **more)
        servers = (first,) if count == 1 else tuple(
            s['id'] for s in cloud.servers() if s['id'] not in before)
        self._servers += servers
        self._wishes.append(Wish(what, servers, nodes))


class _Stage:
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
            consistency.DISABLED_TRAIT in seen.provider_of[node].traits
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
            f'&required=!{consistency.DISABLED_TRAIT}')
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


def _zones(trial, stage):
    """Each node of a host is in the zone of the host, and no other one."""
    zones = {'lab-left': stage.of(stage.left),
             'lab-right': stage.of(stage.right)}
    for zone, nodes in zones.items():
        trial.lands(f'{len(nodes)} servers in {zone}', nodes, len(nodes),
                    availability_zone=zone)
    trial.settle()
    for zone in zones:
        trial.nowhere(f'one more in {zone}', availability_zone=zone)
    trial.settle()


def _capabilities(trial, stage):
    trial.lands('rack r1', [stage.rack],
                flavorRef=stage.flavor(capabilities__lab_rack='r1'))
    trial.nowhere('rack r9',
                  flavorRef=stage.flavor(capabilities__lab_rack='r9'))
    trial.settle()


def _traits(trial, stage):
    def flavor(trait, what):
        return stage.flavor(**{f'trait:{trait}': what})

    trial.lands('a trait that one node has', [stage.gpu],
                flavorRef=flavor(TRAIT_ONE, 'required'))
    trial.lands('not a trait that all but one have', [stage.new],
                flavorRef=flavor(TRAIT_MOST, 'forbidden'))
    trial.nowhere('a trait that none has',
                  flavorRef=flavor(TRAIT_NONE, 'required'))
    trial.nowhere('not a trait that all have',
                  flavorRef=flavor(TRAIT_ALL, 'forbidden'))
    trial.settle()


def _aggregate_specs(trial, stage):
    stage.metadata('lab-left', lab_ssd='true')

    def flavor(value):
        return stage.flavor(aggregate_instance_extra_specs__lab_ssd=value)

    trial.lands('an aggregate with ssd', stage.of(stage.left),
                flavorRef=flavor('true'))
    trial.nowhere('an aggregate with tape', flavorRef=flavor('tape'))
    trial.settle()
    stage.metadata('lab-left', lab_ssd=None)


def _tenants(trial, stage):
    stage.metadata('lab-left', filter_tenant_id=stage.project)
    nodes = stage.of(stage.left)
    trial.lands(f'{len(nodes)} servers of the tenant of lab-left', nodes,
                len(nodes))
    trial.nowhere('the tenant of lab-left in lab-right',
                  availability_zone='lab-right')
    trial.settle()
    trial.nowhere('one more of the tenant of lab-left')
    trial.settle()
    stage.metadata('lab-left', filter_tenant_id=None)


def _isolated_aggregates(trial, stage):
    required = {f'trait:{TRAIT_ONE}': 'required'}
    stage.metadata('lab-left', **required)
    nodes = stage.of(stage.right)
    trial.lands(f'{len(nodes)} servers beside an isolated aggregate', nodes,
                len(nodes))
    trial.settle()
    trial.nowhere('one more beside an isolated aggregate')
    trial.settle()
    trial.clear()
    stage.metadata('lab-right', **required)
    trial.lands('a server for isolated aggregates', [stage.gpu],
                flavorRef=stage.flavor(**required))
    trial.nowhere('any other server where all is isolated')
    trial.settle()
    for name in ('lab-left', 'lab-right'):
        stage.metadata(name, **dict.fromkeys(required))


def _image_properties(trial, stage):
    trial.lands('an image for aarch64', [stage.arm],
                imageRef=stage.image('arm', hw_architecture='aarch64'))
    trial.nowhere('an image for ppc64le',
                  imageRef=stage.image('power', hw_architecture='ppc64le'))
    trial.settle()


def _isolated_hosts(trial, stage):
    image = stage.image('isolated', id=ISOLATED_IMAGE)
    trial.lands('an isolated image', stage.of(stage.right), imageRef=image)
    trial.nowhere('an isolated image elsewhere', imageRef=image,
                  availability_zone='lab-left')
    trial.settle()


def _anti_affinity(trial, stage):
    hints = stage.group('anti-affinity')
    trial.lands('the first of a group', stage.nodes, hints=hints)
    for node in trial.settle():
        other = stage.right if node in stage.of(stage.left) else stage.left
        trial.lands('the second on the other host', stage.of(other),
                    hints=hints)
        trial.settle()
        trial.nowhere('the third with two hosts', hints=hints)
        trial.settle()


def _affinity(trial, stage):
    hints = stage.group('affinity')
    trial.lands('the first of a group', stage.of(stage.left), hints=hints,
                availability_zone='lab-left')
    trial.settle()
    trial.nowhere('the second on another host', hints=hints,
                  availability_zone='lab-right')
    trial.settle()
    if len(stage.of(stage.left)) > 1:
        trial.lands('the second', stage.of(stage.left), hints=hints)
        trial.settle()


def _json(trial, stage):
    def query(node):
        return {'query': json.dumps(['=', '$hypervisor_hostname', node])}

    trial.lands('one node by name', [stage.new], hints=query(stage.new))
    trial.nowhere('a node that does not exist',
                  hints=query(ISOLATED_IMAGE))
    trial.settle()


def _disabled(trial, stage):
    """Nodes of a disabled compute can be used again once they have moved."""
    # Nodes do not move from one zone to another.
    stage.disband()
    with stage.disabled(stage.left):
        if not stage.await_leave(stage.left):
            trial.miss(f'nodes stay on {stage.left}, which is disabled')
        # A node that was pulled is offered again by the next audit.
        trial.clear()
        nodes = stage.of(stage.right)
        trial.lands(f'{len(stage.nodes)} servers with one compute disabled',
                    nodes, len(stage.nodes))
        trial.settle()
        trial.clear()
        with stage.disabled(stage.right):
            if not stage.await_barred():
                trial.miss('nodes of disabled computes without the trait')
            trial.nowhere('a server with all computes disabled')
            trial.settle()
    trial.clear()
    trial.lands('a server with all computes enabled', stage.nodes)
    trial.settle()


MECHANISMS = {
    'availability zones': _zones,
    'ComputeCapabilitiesFilter': _capabilities,
    'traits required and forbidden': _traits,
    'AggregateInstanceExtraSpecsFilter': _aggregate_specs,
    'aggregates of tenants': _tenants,
    'isolated aggregates': _isolated_aggregates,
    'ImagePropertiesFilter': _image_properties,
    'IsolatedHostsFilter': _isolated_hosts,
    'server group anti-affinity': _anti_affinity,
    'server group affinity': _affinity,
    'JsonFilter': _json,
    'COMPUTE_STATUS_DISABLED': _disabled,
}
