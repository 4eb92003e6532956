# SPDX-License-Identifier: Apache-2.0

"""A small cloud in the state that each alert reports.

The runbook's commands are run against it: see :mod:`.test_runbook`.
"""

import dataclasses
import datetime

from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.telemetry import status_server
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.unit.telemetry import pictures

HOSTS = ('compute-1', 'compute-2', 'compute-3')

#: A lease, or an operation, that nobody is waiting for.
WELL = health.HealthState(True, 'This compute service is well.')

#: Seconds that each nova-compute has run.
UPTIME = 90000


class Cloud(clouds.FakeCloud):
    """Three compute services with three nodes each; two have servers."""

    def __init__(self):
        super().__init__()
        self.services = [clouds.service(host) for host in HOSTS]
        self.owners = {f'n-{index}': HOSTS[index // 3] for index in range(9)}
        self.hypervisors = [clouds.hypervisor(node, host)
                            for node, host in self.owners.items()]
        held = {'n-0': 's-0', 'n-3': 's-3', 'n-4': 's-4', 'n-6': 's-6'}
        self.nodes = [
            clouds.node(node, name=f'rack1-u{index}',
                        instance_uuid=held.get(node),
                        provision_state='active' if node in held
                        else 'available')
            for index, node in enumerate(self.owners)]
        self.servers = [
            clouds.server(server, self.owners[node], node)
            | {'name': f'db-{server[-1]}'} for node, server in held.items()]
        self.providers = [{'uuid': node, 'name': node} for node in self.owners]
        self.allocations = {node: [server] for node, server in held.items()}
        self.marked = list(self.owners)

    def service(self, host, **changes):
        """Change what nova has of a compute service."""
        [found] = [one for one in self.services if one['host'] == host]
        found.update(changes)

    def beat(self, host, **changes):
        """Let nova hear from a compute service at this moment."""
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        self.service(host, updated_at=now.isoformat(), **changes)

    def move(self, nodes, host):
        """Move nodes, and the servers on them, to a compute service."""
        for record in self.hypervisors:
            if record['id'] in nodes:
                record['service'] = {'host': host}
        for server in self.servers:
            if server['OS-EXT-SRV-ATTR:hypervisor_hostname'] in nodes:
                server['OS-EXT-SRV-ATTR:host'] = host


class Incident:
    """The state that an alert reports; here nothing is wrong.

    :param test: has the cloud, and ``after(seconds, function, *arguments)``
        for what happens while a command waits.
    """

    #: host -> its members.
    members = dict.fromkeys(HOSTS, HOSTS)
    #: Answer of ``/healthz/HOST``.
    health = WELL
    braked = False

    def __init__(self, test):
        self.test = test
        self.cloud = test.cloud
        self.turns, self.counts, self.pending = {}, {}, {}
        for work, seconds in (Work.LISTING, 0.4), (Work.AUDIT, 3.1):
            self.work(work, seconds, age=9)

    def work(self, work, seconds, age):
        """Let a kind of work have ended some seconds ago."""
        self.turns[work] = RunStats(
            seconds=seconds, succeeded=UPTIME - age, sign=UPTIME - age)

    def begin(self):
        """Bring the cloud into this state."""

    def end(self):
        """Do to the cloud what the runbook's remedy does."""

    def metrics(self, host):
        """Return the lines of ``/metrics`` of a nova-compute."""
        view = peers.view(
            [peers.ComputeService(one, True) for one in self.members[host]],
            peers.Partition(), host)
        snapshot = dataclasses.replace(
            pictures.of(self.turns, self.counts, self.pending, begun=0,
                        view=view, reasons={}, braked=self.braked),
            host=host, at=UPTIME)
        return status_server.Exposition(
            lambda: snapshot, '1.0.0').text().splitlines()


class ComputeDown(Incident):

    def begin(self):
        self.cloud.service('compute-2', state='down')
        self.cloud.move(['n-5'], 'compute-1')
        self.test.after(4, self.cloud.move, ['n-3'], 'compute-1')
        self.test.after(8, self.cloud.move, ['n-4'], 'compute-3')


class ServersNotTakenOver(Incident):
    """The only other host of the availability zone is disabled."""

    def begin(self):
        self.cloud.aggregates = [('rack-1', ['compute-2', 'compute-3']),
                                 ('rack-2', ['compute-1'])]
        self.cloud.service('compute-2', state='down', forced_down=True,
                           status='disabled', disabled_reason='mainboard')
        self.cloud.service('compute-3', status='disabled',
                           disabled_reason='new memory')
        self.cloud.move(['n-5'], 'compute-3')

    def end(self):
        self.test.after(4, self.cloud.move, ['n-3', 'n-4'], 'compute-3')


class FencedComputeRuns(Incident):

    def begin(self):
        self.cloud.move(['n-3', 'n-4', 'n-5'], 'compute-3')
        self.cloud.beat('compute-2', state='down', forced_down=True,
                        status='disabled', disabled_reason=fencing.REASON)
        for seconds in range(5, 60, 5):
            self.test.after(seconds, self.beat, seconds)

    def end(self):
        self.cloud.beat('compute-2', state='up')
        self.cloud.move(['n-8'], 'compute-2')

    def beat(self, seconds):
        [found] = [one for one in self.cloud.services
                   if one['host'] == 'compute-2']
        moment = (datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
                  + datetime.timedelta(seconds=seconds))
        found.update(updated_at=moment.isoformat(),
                     state='down' if found['forced_down'] else 'up')


class NobodyLeft(Incident):

    def begin(self):
        for host in HOSTS:
            self.cloud.service(host, state='down')

    def end(self):
        for host in HOSTS:
            self.cloud.service(host, state='up')


class BuildsLate(Incident):
    """The machine of db-6 does not boot."""

    def begin(self):
        self.cloud.servers[3].update({
            'OS-EXT-STS:vm_state': 'building',
            'OS-EXT-STS:task_state': 'spawning'})
        self.cloud.nodes[6].update(provision_state='wait call-back')

    def end(self):
        self.cloud.servers[3].update({
            'OS-EXT-STS:vm_state': 'error', 'OS-EXT-STS:task_state': None})
        self.cloud.nodes[6].update(provision_state='deploy failed')


class DeletesLate(Incident):
    """The compute service of db-3 is down."""

    def begin(self):
        self.cloud.service('compute-2', state='down')
        self.cloud.move(['n-5'], 'compute-1')
        self.cloud.servers[1].update({'OS-EXT-STS:task_state': 'deleting'})

    def end(self):
        self.cloud.service('compute-2', state='up')
        del self.cloud.servers[1]
        self.cloud.nodes[3].update(
            instance_uuid=None, provision_state='cleaning')


class MovesLate(Incident):
    """The only other host of the availability zone is disabled."""

    def begin(self):
        self.cloud.aggregates = [('rack-1', ['compute-2', 'compute-3']),
                                 ('rack-2', ['compute-1'])]
        self.cloud.service('compute-2', state='down')
        self.cloud.service('compute-3', status='disabled',
                           disabled_reason='new memory')

    def end(self):
        self.cloud.move(['n-5'], 'compute-3')


class LeakedMachines(Incident):

    def begin(self):
        self.cloud.servers.pop(2)

    def end(self):
        self.cloud.nodes[4].update(
            instance_uuid=None, provision_state='available')


class FindingsPersist(Incident):

    def begin(self):
        self.cloud.hypervisors.pop()

    def end(self):
        self.cloud.hypervisors.append(clouds.hypervisor('n-8', 'compute-3'))


class SurveyFailing(Incident):

    def begin(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-services', status_code=403)

    def end(self):
        self.cloud.http.get(f'{clouds.NOVA}/os-services',
                            json=self.cloud._services)


class NotScraped(Incident):

    def metrics(self, host):
        return [] if not self.test.mended else super().metrics(host)


class MembersDiffer(Incident):

    members = dict.fromkeys(HOSTS, HOSTS) | {'compute-2': HOSTS[1:]}

    def end(self):
        self.members = dict.fromkeys(HOSTS, HOSTS)


class BrakeEngaged(Incident):

    braked = True

    def end(self):
        self.braked = False


class TakeoverPending(Incident):

    def begin(self):
        self.pending = {Pending.TURN: {'n-3': UPTIME - 4000}}

    def end(self):
        self.pending = {}


class ListingStale(Incident):

    def begin(self):
        self.work(Work.LISTING, 0.4, age=400)

    def end(self):
        self.work(Work.LISTING, 0.4, age=9)


class AuditsStale(Incident):

    def begin(self):
        self.work(Work.AUDIT, 3.1, age=2000)

    def end(self):
        self.work(Work.AUDIT, 3.1, age=9)


class PeerPollsFailing(Incident):

    def begin(self):
        self.counts = {Event.PEER_POLL_FAILED: 42}


class MovesFailing(Incident):

    def begin(self):
        self.counts = {Event.PULLED: 7, Event.MOVE_FAILED: 12}
