# SPDX-License-Identifier: Apache-2.0

"""Reads what nova, placement and Ironic say from the databases of a lab.

What comes of it is an Observation of nova_ironic_multihost.client.cloud_state;
whatever else the lab observes (status, check, timeline) is computed from
those alone.

They are read by SQL rather than through the APIs: a lab owns its
databases, and three cheap reads can be repeated every second without
loading the services that are being watched.
"""

import datetime
import time
import warnings

from lab import configuration
from lab import errors
from lab import settings as places
from lab import state
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules import model

# A server of databases that is under load may end a connection at once.
_TRIES, _PAUSE = 3, 1.0

# A server keeps one task state for a few seconds here: the nodes are fake
# and deploy in less than five.
_TASK_LIMIT = 30.0


class ViewError(errors.LabError):
    """A database of the lab cannot be read; says which and the remedy."""


def epoch(moment):
    """A moment of a database in seconds since the epoch, 0 for none."""
    if moment is None:
        return 0.0
    return moment.replace(tzinfo=datetime.UTC).timestamp()


def fetch(settings, name, *queries, sleep=time.sleep):
    """Rows of each query, all read in one transaction of one database."""
    import pymysql
    from pymysql.constants import CR

    for _ in range(_TRIES - 1):
        try:
            return _fetch(settings, name, queries)
        except ViewError as error:
            cause = error.__cause__
            if not (isinstance(cause, pymysql.MySQLError) and cause.args
                    and cause.args[0] in (CR.CR_SERVER_GONE_ERROR,
                                          CR.CR_SERVER_LOST)):
                raise
        sleep(_PAUSE)
    return _fetch(settings, name, queries)


def _fetch(settings, name, queries):
    import pymysql

    try:
        connection = pymysql.connect(
            **settings.database(name), read_timeout=10)
    except pymysql.MySQLError as error:
        raise ViewError(
            f'The database {name} does not answer ({error.args[-1]}). Is '
            'the lab up? Start it with: tools/lab up') from error
    try:
        with connection.cursor() as cursor:
            answers = []
            for query in queries:
                cursor.execute(*query)
                answers.append(cursor.fetchall())
            return answers
    except pymysql.MySQLError as error:
        raise ViewError(
            f'The database {name} cannot be read ({error.args[-1]}). Start '
            'the lab afresh with: tools/lab down; tools/lab up') from error
    finally:
        connection.close()


def _read_ironic(settings):
    [rows] = fetch(settings, 'ironic', (
        'SELECT uuid, name, instance_uuid, provision_state, maintenance'
        ' FROM nodes ORDER BY uuid',))
    return tuple(
        cloud_state.Node(uuid, name or '', instance or None, state or '',
                         bool(maintenance))
        for uuid, name, instance, state, maintenance in rows)


def _read_placement(settings):
    inventories, traits, allocations = fetch(
        settings, 'placement',
        ('SELECT p.uuid, COALESCE(SUM(i.total), 0),'
         ' COALESCE(SUM(i.reserved), 0), p.id'
         ' FROM resource_providers p LEFT JOIN inventories i'
         ' ON i.resource_provider_id = p.id'
         ' GROUP BY p.id, p.uuid ORDER BY p.uuid',),
        ('SELECT p.uuid, t.name FROM resource_providers p'
         ' JOIN resource_provider_traits x ON x.resource_provider_id = p.id'
         ' JOIN traits t ON t.id = x.trait_id',),
        ('SELECT a.consumer_id, p.uuid, SUM(a.used) FROM allocations a'
         ' JOIN resource_providers p ON p.id = a.resource_provider_id'
         ' GROUP BY a.consumer_id, p.uuid ORDER BY p.uuid',))
    used = {}
    for _consumer, provider, amount in allocations:
        used[provider] = used.get(provider, 0) + int(amount)
    traits_of = {}
    for provider, trait in traits:
        traits_of.setdefault(provider, set()).add(trait)
    providers = tuple(
        cloud_state.Provider(
            uuid, int(total), int(reserved), used.get(uuid, 0),
            frozenset(traits_of.get(uuid, ())), id_)
        for uuid, total, reserved, id_ in inventories)
    return providers, tuple(
        cloud_state.Allocation(consumer, provider)
        for consumer, provider, _ in allocations)


def _read_cell(settings, named):
    """Services, records and instances of the cell.

    :param named: instance uuids to look up even when they are deleted
    """
    wanted = tuple(named) or ('',)
    marks = ', '.join(['%s'] * len(wanted))
    return fetch(
        settings, 'nova_cell1',
        ('SELECT host, disabled, forced_down,'
         ' COALESCE(last_seen_up, created_at), disabled_reason,'
         # Whether the last write to the row was a heartbeat.
         ' COALESCE(last_seen_up >= updated_at - INTERVAL 1 SECOND, 0)'
         ' FROM services'
         " WHERE deleted = 0 AND `binary` = 'nova-compute' ORDER BY host",),
        ('SELECT uuid, host, id FROM compute_nodes'
         ' WHERE deleted = 0 ORDER BY uuid',),
        ('SELECT uuid, hostname, host, node, vm_state, task_state, deleted,'
         ' COALESCE(updated_at, created_at) FROM instances'
         f' WHERE deleted = 0 OR uuid IN ({marks}) ORDER BY uuid', wanted))


def said(reason, until):
    """What a service says of its end.

    :param reason: for which it is disabled, or None
    :param until: seconds since the epoch
    :returns: dict of its stop marker, and whether that was said until then
    """
    with warnings.catch_warnings(record=True):
        # The logging library imports eventlet, which warns about itself
        # and resets the filters to be heard.
        from nova_ironic_multihost.rules import liveness

    words = liveness.find_stop_marker(reason)
    at = liveness.stop_marker_time(words)
    return {'stop_marker': words, 'over': bool(at and at.timestamp() <= until)}


def read(settings):
    """What is said now.

    :param settings: lab.settings.Settings of a lab that is up
    :returns: an Observation; nothing in it is unknown
    :raises ViewError: when a database does not answer
    """
    nodes = _read_ironic(settings)
    providers, allocations = _read_placement(settings)
    services, records, instances = _read_cell(
        settings, [n.instance_uuid for n in nodes if n.instance_uuid])
    mapped, zones = fetch(
        settings, 'nova_api', ('SELECT host FROM host_mappings',),
        ('SELECT LOWER(h.host), m.value FROM aggregate_hosts h'
         ' JOIN aggregate_metadata m ON m.aggregate_id = h.aggregate_id'
         " WHERE m.`key` = 'availability_zone' ORDER BY h.host",))
    mapped = {host.lower() for [host] in mapped}
    patience = configuration.number(
        state.State(settings).read().get('options', ()), 'DEFAULT',
        'service_down_time', places.SERVICE_DOWN_TIME)
    now = time.time()
    return cloud_state.CloudState(
        at=now,
        services=tuple(
            cloud_state.Service(
                host,
                up=(not forced_down
                    and abs(now - epoch(seen)) <= patience),
                disabled=bool(disabled),
                forced_down=bool(forced_down),
                seen=epoch(seen),
                alive=bool(forced_down and heard and abs(
                    now - epoch(seen)) <= patience),
                mapped=host.lower() in mapped,
                **said(reason, now - patience))
            for host, disabled, forced_down, seen, reason, heard
            in services),
        records=tuple(
            model.Record(uuid, host, row=id_)
            for uuid, host, id_ in records),
        nodes=nodes,
        providers=providers,
        allocations=allocations,
        instances=tuple(
            cloud_state.CloudServer(
                host, bool(deleted), node, vm_state or '', task_state,
                uuid=uuid, name=name or '', updated=epoch(updated))
            for (uuid, name, host, node, vm_state, task_state, deleted,
                 updated) in instances),
        zones=dict(zones),
        task_limit=_TASK_LIMIT)
