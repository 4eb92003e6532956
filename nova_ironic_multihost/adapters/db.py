# SPDX-License-Identifier: Apache-2.0

"""What this package reads from nova and placement, as plain values.

Each function asks anew. A nova-compute has no database: nova's objects ask
its conductor.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
from http import HTTPStatus
import json
import typing

from keystoneauth1 import exceptions as ks_exception
from nova.compute import vm_states
from nova import context as nova_context
from nova import exception
from nova import objects
from oslo_db import exception as db_exception
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import aggregates
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import stop_marker

if typing.TYPE_CHECKING:
    from nova.scheduler.client import report
    from nova import servicegroup

LOG = logging.getLogger(__name__)

#: Key of a record's statistics that names the partition of its owner.
PARTITION = 'ironic_multihost_partition'

#: The most rows to ask the conductor for at once.
BATCH = 500

#: The same of instances: nova has no question that leaves out their user
#: data, of up to 64 kB each, which makes 81 kB at worst; replies are to stay
#: below 4 MB.
INSTANCES = 48

#: How a conductor answers when something is wrong with the API database. If
#: it has no access to that at all, the error is CantStartEngineError.
_API_DATABASE_ERRORS = (
    messaging.RemoteError, db_exception.CantStartEngineError)


def ironic_services(context: nova_context.RequestContext,
                    servicegroup_api: servicegroup.API,
                    hypervisor_type: str) -> list[peers.ComputeService]:
    """Read the enabled compute services that have an Ironic compute node.

    :param context: nova request context.
    :param servicegroup_api: nova.servicegroup.API that tells who is up.
    :param hypervisor_type: what the driver calls itself, 'ironic'.
    :returns: list of :class:`.membership.ComputeService`.
    """
    return [
        _compute_service(service, servicegroup_api)
        for service in objects.ServiceList.get_all_computes_by_hv_type(
            context, hypervisor_type)]


def new_services(context: nova_context.RequestContext,
                 servicegroup_api: servicegroup.API
                 ) -> list[peers.ComputeService]:
    """Read the enabled compute services that start for the first time.

    nova calls a service up from the moment in which it has made its row, and
    sends heartbeats when the first audit of the service is over.

    :param context: nova request context.
    :param servicegroup_api: nova.servicegroup.API that tells who is up.
    :returns: list of :class:`.membership.ComputeService`.
    """
    found = [_compute_service(service, servicegroup_api) for service
             in objects.ServiceList.get_by_binary(context, 'nova-compute')]
    return [one for one in found if one.up and one.beat is None]


def compute_service(context: nova_context.RequestContext,
                    servicegroup_api: servicegroup.API,
                    host: str) -> peers.ComputeService | None:
    """Read one compute service, whatever its state.

    :param context: nova request context.
    :param servicegroup_api: nova.servicegroup.API that tells who is up.
    :param host: its host, as nova spells it.
    :returns: :class:`.membership.ComputeService`, or None when nova has
        none.
    """
    try:
        service = objects.Service.get_by_compute_host(context, host)
    except exception.NotFound:
        return None
    return _compute_service(service, servicegroup_api)


def _compute_service(service, servicegroup_api):
    # Other drivers than db leave stamps of a time with that one in the table.
    stamped = (names.CONF.servicegroup_driver == 'db'
               and 'last_seen_up' in service)
    # nova's own tests make services that have none.
    words = stop_marker.said(service.disabled_reason
                          if 'disabled_reason' in service else None)
    return peers.ComputeService(
        host=service.host, up=servicegroup_api.service_is_up(service),
        disabled=service.get('disabled', False) and not words,
        forced_down=service.get('forced_down', False), stop_marker=words,
        beat=service.last_seen_up if stamped else None)


def instance_uuids(context: nova_context.RequestContext,
                   host: str) -> frozenset[str]:
    """Read the uuids of the instances that nova has on a host.

    :returns: frozenset of uuids.
    """
    return frozenset(objects.InstanceList.get_uuids_by_host(context, host))


def instance_states(context: nova_context.RequestContext,
                    instances: Iterable[str]
                    ) -> dict[str, InstanceState]:
    """Read which compute service instances are on.

    Deleted instances are read, too; archived ones are in another table and
    are not.

    :param instances: uuids of instances.
    :returns: dict of uuid -> :class:`.facts.InstanceState`; no entry for
        an instance that this cell does not have.
    """
    context = context.elevated(read_deleted='yes')
    return {
        instance.uuid: state(instance)
        for some in _batches(instances, INSTANCES)
        for instance in objects.InstanceList.get_by_filters(
            context, {'uuid': some}, expected_attrs=[])}


def instances_with(context: nova_context.RequestContext,
                   task_states: Iterable[str], host: str | None = None
                   ) -> dict[str, InstanceState]:
    """Read the instances that are in one of some task states.

    :param host: only those on this host, as nova spells it.
    :returns: dict of uuid -> :class:`.facts.InstanceState`.
    """
    filters: dict[str, object] = {'task_state': list(task_states)}
    if host is not None:
        filters['host'] = host
    return _all_instances(context, filters)


def instances_of(context: nova_context.RequestContext, host: str,
                 after: str | None) -> dict[str, InstanceState]:
    """Read some instances of a host, those that come after another.

    :param host: as nova spells it.
    :param after: uuid of the last one that was read; None to begin.
    :returns: dict of uuid -> :class:`.facts.InstanceState`, empty when there
        are no more, or when the last one is gone.
    """
    try:
        return _instances(context, {'host': host}, after)
    except exception.MarkerNotFound:
        return {}


def half_done(context: nova_context.RequestContext, host: str
              ) -> dict[str, InstanceState]:
    """Read the builds of a host, and what is half deleted.

    nova notes that instances are deleted before it frees what they have
    allocated (ComputeManager._delete_instance).

    :param host: as nova spells it.
    :returns: dict of uuid -> :class:`.facts.InstanceState`.
    """
    return _all_instances(context, {
        'host': host, 'vm_state': [vm_states.BUILDING, vm_states.DELETED]})


def hostless(context: nova_context.RequestContext, vm_state: str
             ) -> set[tuple[str, object]]:
    """Read the instances in a state that are on no host.

    :returns: set of (uuid, when it was changed last).
    """
    found = set()
    # What is left out because the last one of a page is gone comes next time.
    with contextlib.suppress(exception.MarkerNotFound):
        for row in all_rows(context, {'host': None, 'vm_state': vm_state}):
            found.add((row.uuid, row.updated_at))
    return found


def _all_instances(context, filters):
    return {row.uuid: state(row) for row in all_rows(context, filters)}


def all_rows(context: nova_context.RequestContext,
             filters: Mapping[str, object], attributes: Sequence[str] = ()
             ) -> Iterator[objects.Instance]:
    """Read the instances that pass some filters, a few at a time.

    Those that are half or softly deleted, too.

    :param filters: of nova (nova.db.main.api.instance_get_all_by_filters).
    :param attributes: what nova is to read with each.
    :raises MarkerNotFound: the last one of a page is gone.
    """
    last = None
    while True:
        some = list(_rows(context, filters, last, attributes))
        yield from some
        if len(some) < INSTANCES:
            return
        last = some[-1].uuid


def _instances(context, filters, after):
    return {row.uuid: state(row) for row in _rows(context, filters, after)}


def _rows(context, filters, after, attributes=()):
    return objects.InstanceList.get_by_filters(
        # Without that nova leaves out what is soft-deleted.
        context, {**filters, 'deleted': False, 'soft_deleted': True},
        expected_attrs=list(attributes), limit=INSTANCES, marker=after)


def state(instance: objects.Instance) -> InstanceState:
    """Return where an instance is and what it is at."""
    return InstanceState(
        host=instance.host, deleted=bool(instance.deleted),
        node=instance.node, vm_state=instance.vm_state,
        task_state=instance.task_state)


def records_of(context: nova_context.RequestContext,
               host: str) -> list[Record]:
    """Read the records of a host, from the primary database.

    :param host: a host, as nova spells it.
    :returns: list of :class:`.facts.Record`.
    """
    try:
        rows = objects.ComputeNodeList.get_all_by_host(context, host)
    except exception.NotFound:
        return []
    return [record(row) for row in rows]


def records(context: nova_context.RequestContext,
            nodes: Iterable[str]) -> list[Record]:
    """Read the records of nodes.

    :param nodes: uuids of nodes, which are those of their records.
    :returns: list of :class:`.facts.Record`.
    """
    return [
        record(row) for some in _batches(nodes)
        for row in objects.ComputeNodeList.get_all_by_uuids(context, some)]


def record(row: objects.ComputeNode) -> Record:
    """Return a record as a plain value.

    :param row: nova.objects.ComputeNode; the value carries it.
    """
    return Record(
        node=row.hypervisor_hostname, host=row.host,
        partition=peers.same_label(
            (row.stats or {}).get(PARTITION, '')),
        second='' if row.uuid == row.hypervisor_hostname else row.uuid,
        row=row)


def _batches(uuids: Iterable[str], size: int = BATCH
             ) -> Iterator[list[str]]:
    """Yield lists that fit into one question to the database."""
    uuids = list(uuids)
    for first in range(0, len(uuids), size):
        yield uuids[first:first + size]


def consumers(context: nova_context.RequestContext,
              report_client: report.SchedulerReportClient, node: str
              ) -> frozenset[str] | None:
    """Ask placement who has a node, or is on its way to it.

    :param report_client: nova's SchedulerReportClient.
    :param node: uuid of a node, which is that of its resource provider.
    :returns: frozenset of uuids, usually of one instance or none; or None
        when placement does not say.
    """
    # SchedulerReportClient.get_allocations_for_resource_provider tells no
    # failure from another.
    try:
        answer = report_client.get(
            f'/resource_providers/{node}/allocations',
            global_request_id=context.global_id)
    except ks_exception.ClientException as exc:
        reason = str(exc)
    else:
        if answer.status_code == HTTPStatus.NOT_FOUND and _says_so(answer):
            # Nobody has what is not there.
            return frozenset()
        if answer:
            return frozenset(answer.json()['allocations'])
        reason = answer.text
    LOG.debug('Placement does not say what is allocated of node %(node)s: '
              '%(reason)s', {'node': node, 'reason': reason})
    return None


def _says_so(answer):
    """Whether placement itself says that it has no such provider.

    What stands before it, or in its place, answers in other words.
    """
    try:
        return any('resource provider' in error['detail'].lower()
                   for error in answer.json()['errors'])
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def host_mapped(context: nova_context.RequestContext,
                host: str) -> bool | None:
    """Ask whether the scheduler can send builds to a host.

    :param host: a host, as nova spells it.
    :returns: True or False, or None when the conductor does not know, as it
        has no access to the API database.
    :raises VirtDriverNotReady: when the API database does not answer.
    """
    try:
        objects.HostMapping.get_by_host(context, host)
    except exception.HostMappingNotFound:
        return False
    except _API_DATABASE_ERRORS as exc:
        _require_no_access(exc)
        LOG.debug('It cannot be known whether host %(host)s is mapped to a '
                  'cell: %(exc)s', {'host': host, 'exc': exc})
        return None
    return True


def _require_no_access(exc):
    """Raise VirtDriverNotReady unless a conductor will never know.

    A cloud whose zones are not known for a moment is none without zones.
    """
    if (isinstance(exc, messaging.RemoteError)
            and exc.exc_type != 'CantStartEngineError'):
        raise names.VirtDriverNotReady(
            f"nova's API database cannot be read: {exc.value}. If the "
            'conductor is not to have access to it, unset '
            '[api_database]connection there.') from exc


def host_aggregates(context: nova_context.RequestContext
                    ) -> tuple[aggregates.Aggregate, ...] | None:
    """Read nova's host aggregates.

    :returns: tuple of :class:`.aggregates.Aggregate`, or None when the
        conductor does not know them, as it has no access to the API database.
    :raises VirtDriverNotReady: when the API database does not answer.
    """
    try:
        listed = objects.AggregateList.get_all(context)
    except _API_DATABASE_ERRORS as exc:
        _require_no_access(exc)
        return None
    return tuple(
        aggregates.Aggregate.of(
            uuid=aggregate.uuid, hosts=aggregate.hosts,
            availability_zone=aggregate.availability_zone)
        for aggregate in listed)


def provider_aggregates(context: nova_context.RequestContext,
                        report_client: report.SchedulerReportClient,
                        provider: str) -> frozenset[str] | None:
    """Read from placement which aggregates a resource provider carries.

    nova's cache may be minutes old, and a client that speaks placement
    before 1.19 leaves no trace by which nova would notice a conflict.

    :param report_client: nova's client of placement.
    :param provider: uuid of the provider.
    :returns: frozenset of uuids, or None when placement does not answer.
    """
    try:
        found = report_client._get_provider_aggregates(context, provider)
    except (exception.ResourceProviderAggregateRetrievalFailed,
            ks_exception.ClientException):
        return None
    return None if found is None else frozenset(found.aggregates)


def generations(context: nova_context.RequestContext,
                report_client: report.SchedulerReportClient,
                trait: str | None = None) -> dict[str, int]:
    """Ask placement for the generations of all resource providers.

    There is no question for some of them but by a trait, and no pages. With
    its first microversion placement leaves out half of what it says of each.

    :param report_client: nova's SchedulerReportClient.
    :param trait: only of those that have this trait.
    :returns: dict of uuid -> generation.
    :raises VirtDriverNotReady: placement answers with an error.
    :raises keystoneauth1.exceptions.ClientException: it does not answer.
    """
    found: dict[str, int] = {}

    def keep(value):
        # Each object of the answer, the inner ones first, so that what is
        # not kept is gone before the next one is read.
        if 'generation' in value:
            found[value['uuid']] = value['generation']
            return None
        return value if 'resource_providers' in value else None

    answer = report_client.get(
        '/resource_providers' + (f'?required={trait}' if trait else ''),
        version='1.18' if trait else None,
        global_request_id=context.global_id)
    if not answer:
        raise names.VirtDriverNotReady(
            f'Placement does not list its resource providers: {answer.text}')
    json.loads(answer.content, object_hook=keep)
    return found


def generation(context: nova_context.RequestContext,
               report_client: report.SchedulerReportClient, node: str
               ) -> int | None:
    """Ask placement for the generation of one resource provider.

    :param report_client: nova's SchedulerReportClient.
    :param node: uuid of a node, which is that of its resource provider.
    :returns: None when placement does not say.
    """
    try:
        answer = report_client.get(f'/resource_providers/{node}',
                                   global_request_id=context.global_id)
        return answer.json()['generation'] if answer else None
    except (ks_exception.ClientException, ValueError, LookupError, TypeError):
        # What stands before it may answer in other words.
        return None


def volume_backed(bdms: objects.BlockDeviceMappingList | None) -> bool:
    """Whether a server has its root disk on a volume.

    :param bdms: its nova.objects.BlockDeviceMappingList.
    """
    root = bdms.root_bdm() if bdms else None
    return root is not None and root.is_volume
