# SPDX-License-Identifier: Apache-2.0

"""What an audit reads and writes in nova and placement; the service row."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from concurrent import futures
from http import HTTPStatus
import random

from nova import exception
from nova import objects

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters import takeover_write
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base.ports import Eligible
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover

#: Parallel requests to placement. One takes 5 to 7 ms; keystoneauth keeps ten
#: connections.
AT_ONCE = 8


class NovaSources:
    """nova and placement (port Sources)."""

    def __init__(
        self, driver: names.IronicDriver, tracker: nova_tracker.NovaTracker):
        self._driver = driver
        self._tracker = tracker

    def services(self) -> list[peers.ComputeService]:
        """Read the enabled services that have an Ironic compute node."""
        return db.ironic_services(
            names.admin_context(), self._driver.servicegroup_api,
            self._driver._get_hypervisor_type())

    def new_services(self) -> list[peers.ComputeService]:
        """Read the services that start for the first time."""
        return db.new_services(
            names.admin_context(), self._driver.servicegroup_api)

    def service(self, host: str) -> peers.ComputeService | None:
        """Read any compute service."""
        return db.compute_service(
            names.admin_context(), self._driver.servicegroup_api, host)

    def instances(self, hosts: Iterable[str]) -> frozenset[str]:
        """Read the instances on these hosts."""
        context = names.admin_context()
        return frozenset().union(*(
            db.instance_uuids(context, host) for host in hosts))

    def instance_states(self, instances: Iterable[str]
                        ) -> dict[str, InstanceState]:
        """Read which hosts these instances are on."""
        return db.instance_states(
            names.admin_context(), instances)

    def records_of(self, hosts: Iterable[str]) -> list[Record]:
        """Read the records of these hosts."""
        context = names.admin_context()
        return [record for host in hosts for record
                in self._tracker.at_hand(db.records_of(context, host))]

    def records(self, nodes: Iterable[str]) -> list[Record]:
        """Read the records of these nodes."""
        return self._tracker.at_hand(
            db.records(names.admin_context(), nodes))

    def consumers(self, node: str) -> frozenset[str] | None:
        """Read the consumers of a node from placement."""
        return db.consumers(
            names.admin_context(), self._tracker.report_client, node)

    def consumers_of(self, nodes: Sequence[str]
                     ) -> dict[str, frozenset[str] | None]:
        """Read the consumers of nodes, one request for each.

        It stops after AT_ONCE without an answer, as each may take a timeout.
        """
        if not nodes:
            return {}
        unanswered: list[str] = []

        def ask(node: str) -> frozenset[str] | None:
            if len(unanswered) >= AT_ONCE:
                return None
            found = self.consumers(node)
            if found is None:
                unanswered.append(node)
            return found

        with futures.ThreadPoolExecutor(min(AT_ONCE, len(nodes))) as pool:
            return dict(zip(nodes, pool.map(ask, nodes), strict=True))

    def mapped(self, host: str) -> bool | None:
        """Read whether a host is mapped to a cell."""
        return db.host_mapped(names.admin_context(), host)

    def aggregates(self) -> tuple[peers.Aggregate, ...] | None:
        """Read nova's host aggregates."""
        return db.host_aggregates(names.admin_context())

    def generations(self) -> dict[str, int]:
        """Read the generations of all resource providers."""
        return db.generations(
            names.admin_context(), self._tracker.report_client)


class NovaWrites:
    """Writes of an audit to nova and placement (port Writes).

    :param ending: whether this service is about to stop: no takeovers then.
    :param failed: called when an outcome is unknown.
    """

    def __init__(self, ending: Callable[[], bool] = lambda: False,
                 recorder: Metrics | None = None,
                 failed: Callable[[], object] = lambda: None,
                 tracker: nova_tracker.NovaTracker | None = None) -> None:
        self._ending = ending
        self._recorder = recorder or Metrics()
        self._failed = failed
        self._tracker = tracker
        self._under_way: Set[str] = frozenset()
        #: Instance -> the number of its last attempt in this process.
        self._attempts: dict[str, int] = {}

    @property
    def under_way(self) -> Set[str]:
        """Uuids of the instances that are being taken over."""
        return self._under_way

    def remove_provider(self, node: str) -> bool:
        """Delete the resource provider of a node that is gone."""
        assert self._tracker is not None
        context, client = names.admin_context(), self._tracker.report_client
        consumers = db.consumers(context, client, node)
        states = db.instance_states(context, consumers or ())
        if consumers is None or any(
                uuid not in states or not states[uuid].deleted
                for uuid in consumers):
            return False
        for uuid in sorted(consumers):
            client.delete_allocation_for_instance(context, uuid, force=True)
        answer = client.delete(f'/resource_providers/{node}',
                               global_request_id=context.global_id)
        client.invalidate_resource_provider(node)
        return bool(answer) or answer.status_code == HTTPStatus.NOT_FOUND

    def take_over(self, instances: Mapping[str, InstanceState], host: str,
                  eligible: Eligible) -> dict[str, takeover_write.Outcome]:
        """Move instances that have not changed to this host."""
        if self._ending():
            return dict.fromkeys(instances, False)
        # Only one audit at a time calls this.
        self._under_way = frozenset(instances)
        unknown = len(instances)
        self._attempts |= {uuid: 1 + self._attempts.get(
            uuid, random.randrange(takeover.ATTEMPTS)) for uuid in instances}
        try:
            outcomes = takeover_write.take_over(
                names.admin_context(), instances, host, eligible,
                self._attempts)
            for uuid, outcome in outcomes.items():
                if outcome is True:
                    del self._attempts[uuid]
            unknown = sum(isinstance(outcome, Exception)
                          for outcome in outcomes.values())
            self._recorder.count(Event.TAKEN_OVER, sum(
                outcome is True for outcome in outcomes.values()))
            return outcomes
        finally:
            self._recorder.count(Event.TAKEOVER_FAILED, unknown)
            if unknown:
                self._failed()
            self._under_way = frozenset()


class ServiceRecord:
    """The row of one compute service in nova's services table.

    The port is Registration. nova's scheduler reads the row (ComputeFilter).
    nova's API would also set a trait on each node, which takes minutes
    (ComputeManager.set_host_enabled).
    """

    def __init__(self, host: str) -> None:
        self._host = host

    def say(self, words: str) -> bool:
        """Write the stop marker unless an operator disabled the service."""
        row = self._row()
        if row is None or row.forced_down or (
                row.disabled
                and not liveness.find_stop_marker(row.disabled_reason)):
            return False
        return _save(row, disabled=False, disabled_reason=words)

    def close(self, words: str) -> bool:
        """Disable the service if it still has this stop marker."""
        row = self._row()
        if row is None or row.disabled_reason != words:
            return False
        return _save(row, disabled=True)

    def take_back(self) -> bool:
        """Remove a stop marker and enable the service."""
        row = self._row()
        if row is None or not liveness.find_stop_marker(row.disabled_reason):
            return False
        return _save(row, disabled=False, disabled_reason=None)

    def _row(self):
        try:
            return objects.Service.get_by_compute_host(
                names.admin_context(), self._host)
        except exception.NotFound:
            return None


def _save(row, **changes):
    # nova cannot compare and swap: an operator's write since our read is lost.
    for name, value in changes.items():
        setattr(row, name, value)
    try:
        row.save()
    except exception.NotFound:
        # The service was deleted.
        return False
    return True
