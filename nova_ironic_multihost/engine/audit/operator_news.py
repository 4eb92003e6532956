# SPDX-License-Identifier: Apache-2.0

"""Tell operators what an audit found, and notify them of takeovers."""

from collections import abc
import logging

from oslo_log import log

from nova_ironic_multihost.engine.audit.audit_state import AuditState
from nova_ironic_multihost.engine.base.ports import Instances
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason

LOG = log.getLogger(__name__)

#: A level of :mod:`logging`, and the fact with the remedy.
Notice = tuple[int, str]

#: Reason of nodes -> the notice about them, with their count and an example.
OF_NODES: abc.Mapping[Reason, Notice] = {
    Reason.OTHER_PARTITION: (
        logging.WARNING,
        '{count} nodes that this host serves, for example {example}, are '
        'recorded on live compute services of other partitions, and are left '
        'there. Give all compute services of these nodes the same [ironic]'
        'conductor_group, shard and peer_list, or such as have no node in '
        'common.'),
    Reason.UNKNOWN: (
        logging.WARNING,
        '{count} nodes, for example {example}, are held for instances that '
        'nova does not know: they belong to another cell or another user of '
        'Ironic, or their rows are archived. They are reported as in use and '
        'nothing is done to them. If nobody uses them: "nova-ironic-multihost '
        'leaks" says how to free each.'),
    Reason.LEAKED: (
        logging.INFO,
        '{count} nodes, for example {example}, are held for instances that '
        'were deleted while their compute service was down. [DEFAULT]'
        'running_deleted_instance_action says what becomes of them.'),
    Reason.OTHER_ZONE: (
        logging.INFO,
        '{count} nodes that the hash ring gives to this host stay with the '
        'compute services of their availability zone. Set [ironic_multihost]'
        'move_across_zones to let nodes change it.'),
}


def notices_due(host: str, reasons: abc.Mapping[str, Reason], state: AuditState
                ) -> dict[object, Notice]:
    """Return the notices after an audit, {subject: notice}."""
    found: dict[object, Notice] = {}
    if state.mapped is False:
        found['unmapped'] = (
            logging.WARNING,
            f'This host, {host}, is not mapped to a cell, so the scheduler '
            'cannot use its nodes and it takes none from others. Run '
            '"nova-manage cell_v2 discover_hosts --by-service"; no restart '
            'is needed.')
    if not state.host_aggregates.read:
        found['aggregates'] = (
            logging.WARNING,
            "nova's host aggregates cannot be read, so availability zones "
            'hinder no node from changing its compute service, and nodes '
            'that move do not get the aggregates of their host in placement. '
            'Set [api_database]connection in nova.conf of the '
            'nova-conductor of this cell.')
    found.update({
        ('second', row): (
            logging.WARNING,
            f'This host, {host}, has a second record of node {node}: '
            f'{model.second_record(node, row)}')
        for node, row in state.barred.items() if row})
    counts = ownership.count_reasons(reasons)
    examples = {reason: node for node, reason in reasons.items()}
    found.update({
        reason: (level, sentence.format(
            count=counts[reason], example=examples[reason]))
        for reason, (level, sentence) in OF_NODES.items() if counts[reason]})
    if state.absences.braked:
        found['brake'] = (
            logging.ERROR,
            f'{len(state.absences.counts)} nodes that are recorded on this '
            'host have vanished from Ironic at once. Nothing is deleted. If '
            'the account in [ironic] of nova.conf may not list them, mend '
            'that. If they were really removed, set [ironic_multihost]'
            'max_vanished_percent to 100, restart nova-compute, and '
            'set it back when their records are gone.')
    return found


def in_words(counted: abc.Mapping[Reason, int]) -> str:
    """Return the number of nodes of each reason, for a log line."""
    return ', '.join(f'{count} {reason.value}' for reason, count
                     in counted.items() if count) or 'none'


class Notices:
    """Logs each notice once, and again only after it was false."""

    def __init__(self) -> None:
        self._told: abc.Set[object] = frozenset()
        self._counted: abc.Mapping[Reason, int] = {}

    def tell(self, host: str, reasons: abc.Mapping[str, Reason],
             state: AuditState) -> None:
        """Log the new notices after an audit of all nodes of a host."""
        due = notices_due(host, reasons, state)
        for subject, (level, sentence) in due.items():
            if subject not in self._told:
                LOG.log(level, sentence)
        self._told = due.keys()
        counted = ownership.count_reasons(reasons)
        if counted != self._counted:
            LOG.info(
                'Managing %(mine)d of %(all)d nodes: %(counted)s.', {
                    'mine': sum(
                        counted[reason] for reason in counted if reason.mine),
                    'all': len(reasons), 'counted': in_words(counted)})
            self._counted = counted


def notify_takeover(instances: Instances, host: str, source_host: str,
                    uuids: abc.Iterable[str]) -> None:
    """Send the notification of a takeover, once; the source may be ''."""
    # A primitive of oslo.versionedobjects. A new field raises the minor
    # version, a removed or changed one the major.
    payload = {
        'name': 'TakeoverPayload',
        'namespace': 'ironic_multihost',
        'version': '1.0',
        'data': {'host': host, 'source_host': source_host,
                 'instances': sorted(uuids)},
    }
    try:
        instances.notify('ironic_multihost.takeover', {
            f'ironic_multihost_object.{key}': value
            for key, value in payload.items()})
    except Exception as exc:  # noqa: BLE001
        LOG.warning('The notification of a takeover was not sent: %s. '
                    'Nothing else depends on it.', exc)
