# SPDX-License-Identifier: Apache-2.0

"""Reads of nova, by its conductor, and of placement, as plain values."""

from __future__ import annotations

from collections import abc
import contextlib
from http import HTTPStatus
import json
import typing

from keystoneauth1 import exceptions as ks_exception
from nova.compute import vm_states
from nova import exception
from nova import objects
from oslo_db import exception as db_exception
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers

if typing.TYPE_CHECKING:
    from nova.scheduler.client import report
    from nova import servicegroup

LOG = logging.getLogger(__name__)

#: Statistic of a record with the partition label of its owner.
PARTITION = 'ironic_multihost_partition'

#: The most rows in one request to the conductor.
BATCH = 500

#: The most instances in one request: each takes up to 81 kB, with user data
#: that nova always reads, and a reply should stay below 4 MB.
INSTANCES = 48

#: Errors of the API database. CantStartEngineError: the conductor has no
#: access to it.
_API_DATABASE_ERRORS = (
    messaging.RemoteError, db_exception.CantStartEngineError)


def ironic_services(servicegroup_api: servicegroup.API, hypervisor_type: str
                    ) -> list[peers.ComputeService]:
    """Read the enabled compute services that have an Ironic compute node."""
    return [
        _compute_service(service, servicegroup_api)
        for service in objects.ServiceList.get_all_computes_by_hv_type(
            names.admin_context(), hypervisor_type)]


def compute_service(servicegroup_api: servicegroup.API, host: str
                    ) -> peers.ComputeService | None:
    """Read one compute service in any state; None if nova has none."""
    try:
        service = objects.Service.get_by_compute_host(
            names.admin_context(), host)
    except exception.NotFound:
        return None
    return _compute_service(service, servicegroup_api)


def _compute_service(service, servicegroup_api):
    # Only the db driver keeps the time in the table up to date.
    stamped = (names.CONF.servicegroup_driver == 'db'
               and 'last_seen_up' in service)
    # nova's own tests make services without a disabled_reason.
    words = liveness.find_stop_marker(service.disabled_reason
                             if 'disabled_reason' in service else None)
    return peers.ComputeService(
        host=service.host, up=servicegroup_api.service_is_up(service),
        disabled=service.get('disabled', False) and not words,
        forced_down=service.get('forced_down', False), stop_marker=words,
        beat=service.last_seen_up if stamped else None)


def instance_uuids(host: str) -> frozenset[str]:
    """Read the uuids of the instances on a host."""
    return frozenset(objects.InstanceList.get_uuids_by_host(
        names.admin_context(), host))


def instance_states(instances: abc.Iterable[str]) -> dict[str, InstanceState]:
    """Read the states of instances of this cell, without archived ones."""
    context = names.admin_context().elevated(read_deleted='yes')
    return _states(
        row for some in _batches(instances, INSTANCES)
        for row in objects.InstanceList.get_by_filters(
            context, {'uuid': some}, expected_attrs=[]))


def instances_with(task_states: abc.Iterable[str], host: str
                   ) -> dict[str, InstanceState]:
    """Read the instances of a host that have one of these task states."""
    return _states(all_rows({'task_state': list(task_states), 'host': host}))


def instances_of(host: str, after: str | None) -> dict[str, InstanceState]:
    """Read the next instances of a host; none if ``after`` is deleted."""
    try:
        return _states(_rows({'host': host}, after))
    except exception.MarkerNotFound:
        return {}


def half_done(host: str) -> dict[str, InstanceState]:
    """Read the builds and the half deleted instances of a host."""
    # DELETED comes before nova frees the allocations
    # (ComputeManager._delete_instance).
    return _states(all_rows({
        'host': host, 'vm_state': [vm_states.BUILDING, vm_states.DELETED]}))


def hostless(vm_state: str) -> set[tuple[str, object]]:
    """Read (uuid, time of the last change) of instances without a host."""
    found = set()
    # If the last one of a page is gone, the next call reads the rest.
    with contextlib.suppress(exception.MarkerNotFound):
        for row in all_rows({'host': None, 'vm_state': vm_state}):
            found.add((row.uuid, row.updated_at))
    return found


def _states(rows):
    return {row.uuid: state(row) for row in rows}


def all_rows(filters: abc.Mapping[str, object],
             attributes: abc.Sequence[str] = ()
            ) -> abc.Iterator[objects.Instance]:
    """Read the instances that pass some filters, page by page.

    Soft-deleted and half deleted instances are included.

    :param filters: see nova.db.main.api:instance_get_all_by_filters.
    :raises MarkerNotFound: the last one of a page is gone.
    """
    return pages(lambda last: _rows(filters, last, attributes), INSTANCES)


def pages(read: abc.Callable[[str | None], abc.Iterable[typing.Any]], size: int
          ) -> abc.Iterator[typing.Any]:
    """Yield the rows of all pages; ``read``: given the last row's uuid."""
    last = None
    while True:
        some = list(read(last))
        yield from some
        if len(some) < size:
            return
        last = some[-1].uuid


def _rows(filters, after, attributes=()):
    return objects.InstanceList.get_by_filters(
        names.admin_context(),
        # nova leaves out soft-deleted instances by default.
        {**filters, 'deleted': False, 'soft_deleted': True},
        expected_attrs=list(attributes), limit=INSTANCES, marker=after)


def state(instance: objects.Instance) -> InstanceState:
    """Return the host, node and states of an instance."""
    return InstanceState(
        host=instance.host, deleted=bool(instance.deleted),
        node=instance.node, vm_state=instance.vm_state,
        task_state=instance.task_state)


def records_of(host: str) -> list[Record]:
    """Read the records of a host from the primary database."""
    try:
        rows = objects.ComputeNodeList.get_all_by_host(
            names.admin_context(), host)
    except exception.NotFound:
        return []
    return [record(row) for row in rows]


def records(nodes: abc.Iterable[str]) -> list[Record]:
    """Read the records of nodes."""
    return [
        record(row) for some in _batches(nodes)
        for row in objects.ComputeNodeList.get_all_by_uuids(
            names.admin_context(), some)]


def record(row: objects.ComputeNode) -> Record:
    """Return a record as a plain value, which keeps the row."""
    return Record(
        node=row.hypervisor_hostname, host=row.host,
        partition=peers.same_label(
            (row.stats or {}).get(PARTITION, '')),
        second='' if row.uuid == row.hypervisor_hostname else row.uuid,
        row=row)


def _batches(uuids: abc.Iterable[str], size: int = BATCH
             ) -> abc.Iterator[list[str]]:
    """Yield lists that fit into one request."""
    uuids = list(uuids)
    for first in range(0, len(uuids), size):
        yield uuids[first:first + size]


def consumers(report_client: report.SchedulerReportClient, node: str
              ) -> frozenset[str] | None:
    """Read the consumers of a node; None if placement does not answer."""
    try:
        answer = report_client.get(f'/resource_providers/{node}/allocations')
    except ks_exception.ClientException as exc:
        reason = str(exc)
    else:
        if answer.status_code == HTTPStatus.NOT_FOUND and _says_so(answer):
            return frozenset()
        if answer:
            return frozenset(answer.json()['allocations'])
        reason = answer.text
    LOG.debug('Placement does not return the allocations of node %(node)s: '
              '%(reason)s', {'node': node, 'reason': reason})
    return None


def _says_so(answer):
    """Whether a 404 is placement's own text and not a proxy's."""
    try:
        return any('resource provider' in error['detail'].lower()
                   for error in answer.json()['errors'])
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def host_mapped(host: str) -> bool | None:
    """Return whether the scheduler can send builds to a host.

    :returns: None when the conductor has no access to the API database.
    :raises VirtDriverNotReady: the API database does not answer.
    """
    try:
        objects.HostMapping.get_by_host(names.admin_context(), host)
    except exception.HostMappingNotFound:
        return False
    except _API_DATABASE_ERRORS as exc:
        _require_no_access(exc)
        LOG.debug('nova-conductor does not say whether host %(host)s is '
                  'mapped to a cell: %(exc)s', {'host': host, 'exc': exc})
        return None
    return True


def _require_no_access(exc):
    """Raise VirtDriverNotReady unless the conductor has no access."""
    # Otherwise an outage would look like a cloud without zones.
    if (isinstance(exc, messaging.RemoteError)
            and exc.exc_type != 'CantStartEngineError'):
        raise names.VirtDriverNotReady(
            f"nova's API database cannot be read: {exc.value}. If the "
            'conductor is not to have access to it, unset '
            '[api_database]connection there.') from exc


def host_aggregates() -> tuple[peers.Aggregate, ...] | None:
    """Read nova's host aggregates; returns and raises as host_mapped()."""
    try:
        listed = objects.AggregateList.get_all(names.admin_context())
    except _API_DATABASE_ERRORS as exc:
        _require_no_access(exc)
        return None
    return tuple(
        peers.Aggregate.of(
            uuid=aggregate.uuid, hosts=aggregate.hosts,
            availability_zone=aggregate.availability_zone)
        for aggregate in listed)


def provider_aggregates(report_client: report.SchedulerReportClient,
                        provider: str) -> frozenset[str] | None:
    """Read the aggregates of a resource provider; None without an answer."""
    # nova's cache may be minutes old. Changes by clients before placement
    # 1.19 leave the generation as it is.
    try:
        found = report_client._get_provider_aggregates(
            names.admin_context(), provider)
    except (exception.ResourceProviderAggregateRetrievalFailed,
            ks_exception.ClientException):
        return None
    return None if found is None else frozenset(found.aggregates)


def generations(report_client: report.SchedulerReportClient
                ) -> dict[str, int]:
    """Read {uuid: generation} of all resource providers.

    placement has no pages and no filter by uuids. At its first microversion
    the answer has half the size.

    :raises VirtDriverNotReady: placement answers with an error.
    :raises keystoneauth1.exceptions.ClientException: it does not answer.
    """
    found: dict[str, int] = {}

    def keep(value):
        # Called for each inner object first: an object that is dropped is
        # freed before the next is read, which saves memory.
        if 'generation' in value:
            found[value['uuid']] = value['generation']
            return None
        return value if 'resource_providers' in value else None

    answer = report_client.get('/resource_providers')
    if not answer:
        raise names.VirtDriverNotReady(
            f'Placement does not list its resource providers: {answer.text}')
    json.loads(answer.content, object_hook=keep)
    return found


def generation(report_client: report.SchedulerReportClient, node: str
               ) -> int | None:
    """Read the generation of a node's provider; None if unknown."""
    try:
        answer = report_client.get(f'/resource_providers/{node}')
        return answer.json()['generation'] if answer else None
    except (ks_exception.ClientException, ValueError, LookupError, TypeError):
        # A proxy may have answered with something else than JSON.
        return None


def volume_backed(bdms: objects.BlockDeviceMappingList | None) -> bool:
    """Whether a server has its root disk on a volume."""
    root = bdms.root_bdm() if bdms else None
    return root is not None and root.is_volume
