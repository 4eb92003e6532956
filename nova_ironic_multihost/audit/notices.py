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


"""What an operator is told of, once, when it begins."""

import collections
import logging

from oslo_log import log

from nova_ironic_multihost.core import ownership

LOG = log.getLogger(__name__)


def due(host, mapped, reasons, absences, zones_known=True):
    """Return what an operator has to know after an audit.

    :param host: this host.
    :param mapped: whether it is mapped to a cell, None if unknown.
    :param reasons: node uuid -> :class:`.ownership.Reason`.
    :param absences: :class:`.absence.Absences`.
    :param zones_known: whether nova's host aggregates could be read.
    :returns: dict of what it is about -> (level of :mod:`logging`, sentence).
    """
    counts = collections.Counter(reasons.values())
    examples = {}
    for node, reason in reasons.items():
        examples.setdefault(reason, node)
    found = {}
    if mapped is False:
        found['unmapped'] = (
            logging.WARNING,
            f'This host, {host}, is not mapped to a cell, so the scheduler '
            'cannot use its nodes and it takes none from others. Run '
            '"nova-manage cell_v2 discover_hosts --by-service"; no restart '
            'is needed.')
    if not zones_known:
        found['aggregates'] = (
            logging.WARNING,
            "nova's host aggregates cannot be read, so availability zones "
            'hinder no node from changing its compute service, and nodes '
            'that move do not get the aggregates of their host in placement. '
            'Set [api_database]connection in nova.conf of the '
            'nova-conductor of this cell.')
    if count := counts[ownership.Reason.OTHER_PARTITION]:
        found['partition'] = (
            logging.WARNING,
            f'{count} nodes that this host serves, for example '
            f'{examples[ownership.Reason.OTHER_PARTITION]}, are recorded on '
            'live compute services of other partitions, and are left there. '
            'Give all compute services of these nodes the same [ironic]'
            'conductor_group, shard and peer_list, or such as have no node '
            'in common.')
    if count := counts[ownership.Reason.UNKNOWN]:
        found['unknown'] = (
            logging.WARNING,
            f'{count} nodes, for example '
            f'{examples[ownership.Reason.UNKNOWN]}, are held for instances '
            'that nova does not know: they belong to another cell or another '
            'user of Ironic, or their rows are archived. They are reported '
            'as in use and nothing is done to them. If nobody uses them: '
            '"openstack baremetal node undeploy".')
    if count := counts[ownership.Reason.LEAKED]:
        found['leaked'] = (
            logging.INFO,
            f'{count} nodes, for example {examples[ownership.Reason.LEAKED]},'
            ' are held for instances that were deleted while their compute '
            'service was down. [DEFAULT]running_deleted_instance_action says '
            'what becomes of them.')
    if count := counts[ownership.Reason.OTHER_ZONE]:
        found['zone'] = (
            logging.INFO,
            f'{count} nodes that the hash ring gives to this host stay with '
            'the compute services of their availability zone. Set '
            '[ironic_multihost]move_across_zones to let nodes change it.')
    if absences.braked:
        found['brake'] = (
            logging.ERROR,
            f'{len(absences.counts)} nodes that are recorded on this host '
            'have vanished from Ironic at once. Nothing is deleted. If the '
            'account in [ironic] of nova.conf may not list them, mend that. '
            'If they were really removed, set [ironic_multihost]'
            'max_vanished_percent to 100, send SIGHUP to nova-compute, and '
            'set it back when their records are gone.')
    return found


class Notices:
    """Tells each thing once, and again only after it was over."""

    def __init__(self):
        self._told = frozenset()

    def tell(self, found):
        """Log what is new.

        :param found: what :func:`due` returned.
        """
        for subject, (level, sentence) in found.items():
            if subject not in self._told:
                LOG.log(level, sentence)
        self._told = frozenset(found)
