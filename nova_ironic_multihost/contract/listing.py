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


"""The listing: which nodes Ironic has in our partition.

A listing is whole or it is no listing. Whatever goes wrong while it is read
ends in ``VirtDriverNotReady``, which makes nova skip the audit: a smaller set
of nodes would be taken for nodes that are gone, and their records and
resource providers deleted.
"""

from collections.abc import Callable

from oslo_log import log as logging

from nova_ironic_multihost.contract import names
from nova_ironic_multihost.core import membership

LOG = logging.getLogger(__name__)


def query(
        partition: membership.Partition) -> tuple[dict[str, str], list[str]]:
    """Say how Ironic lists the nodes of a partition, and of no other.

    :param partition: :class:`.membership.Partition`.
    :returns: (filters, versions): dict of query parameters, and the list of
        the Ironic API versions that must be available for them. An older
        Ironic would ignore a filter and list everybody's nodes.
    """
    filters = {}
    versions = []
    if partition.conductor_group is not None:
        filters['conductor_group'] = partition.conductor_group
        versions.append('1.46')
    if partition.shard:
        filters['shard'] = partition.shard
        versions.append('1.82')
    return filters, versions


def read(partition: membership.Partition, get_node_list: Callable,
         can_send_version: Callable[[str], None]) -> list:
    """List the nodes of the partition.

    :param partition: :class:`.membership.Partition`.
    :param get_node_list: ``IronicDriver._get_node_list``.
    :param can_send_version: ``IronicDriver._can_send_version``.
    :returns: list of openstacksdk nodes with ``NODE_FIELDS``.
    :raises VirtDriverNotReady: when Ironic does not give the whole list.
    """
    filters, versions = query(partition)
    try:
        for version in versions:
            can_send_version(version)
        return get_node_list(fields=names.NODE_FIELDS, **filters)
    except names.IronicAPIVersionNotAvailable as exc:
        LOG.error('Ironic cannot list the nodes of a conductor group or a '
                  'shard: %s Upgrade Ironic, or unset [ironic]'
                  'conductor_group and [ironic]shard in nova.conf.', exc)
        raise names.VirtDriverNotReady() from exc
    except Exception as exc:
        # Any error: nova's _get_node_list lets those of later pages through
        # (bug 1750450), and they would end a starting nova-compute.
        LOG.error('Ironic gave no list of its nodes: %s. Nothing is changed, '
                  'and the next audit asks again. Check that the Ironic API '
                  'runs and that the credentials in [ironic] of nova.conf '
                  'may list all nodes.', _cause(exc))
        raise names.VirtDriverNotReady() from exc


def _cause(exc):
    """Return in one line what went wrong.

    nova's _get_node_list raises a bare VirtDriverNotReady while it handles
    the error that tells more.
    """
    cause = exc
    if isinstance(exc, names.VirtDriverNotReady):
        cause = exc.__context__ or exc
    return ' '.join(str(cause).split()) or type(cause).__name__
