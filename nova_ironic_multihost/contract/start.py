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

"""The start of a service without the instances that are at rest.

nova reads all instances of a host in one reply, with their flavors, and goes
through them one by one before it listens for builds
(ComputeManager.init_host). With thousands that takes minutes, and hundreds of
megabytes, although over Ironic something is to be done for few of them. Which
others are to be looked after, as another host has left its mark on one of them
say, or as the host is spelled otherwise now, a patrol finds soon afterwards
(:mod:`.audit.patrol`).
"""

from __future__ import annotations

import functools
import typing

from nova.compute import vm_states
from nova import exception
from nova import objects

from nova_ironic_multihost.contract import calls
from nova_ironic_multihost.contract import reads
from nova_ironic_multihost.core.host import host_key
from nova_ironic_multihost.core import takeover

if typing.TYPE_CHECKING:
    from nova.compute.manager import ComputeManager
    from nova import context as nova_context

#: States of an instance in which it is not at rest, whatever it does.
RESTLESS = tuple(sorted(
    value for name, value in vars(vm_states).items()
    if name.isupper() and isinstance(value, str)
    and not takeover.rests_at_start(value, None)))


def patch_instances(manager: ComputeManager) -> None:
    """Have nova read those instances only for which there is something to do.

    It calls ``InstanceList.get_by_host`` right after a method of its own; the
    next call of that is answered otherwise. Of what it reads nova tells the
    scheduler, who would take it for all instances of the host, and who asks
    for them himself when he knows none (HostManager.update_instance_info).

    :param manager: nova's ComputeManager.
    """
    check = manager._check_for_host_rename
    tell = manager._update_scheduler_instance_info

    @functools.wraps(check)
    def check_and_read_few(nodes_by_uuid):
        check(nodes_by_uuid)
        _answer_once()

    @functools.wraps(tell)
    def tell_of_one(context, instance):
        if not isinstance(instance, objects.InstanceList):
            tell(context, instance)

    manager._check_for_host_rename = check_and_read_few
    manager._update_scheduler_instance_info = tell_of_one


def _answer_once() -> None:
    """Replace the next ``InstanceList.get_by_host``, and no other."""
    listed = objects.InstanceList
    original = vars(listed)['get_by_host']

    def get_by_host(context, host, expected_attrs=None, use_slave=False):
        listed.get_by_host = original
        try:
            return restless(context, host, expected_attrs)
        except exception.MarkerNotFound:
            # Many are being deleted at this moment.
            return listed.get_by_host(
                context, host, expected_attrs=expected_attrs,
                use_slave=use_slave)

    listed.get_by_host = staticmethod(get_by_host)


def restless(context: nova_context.RequestContext, host: str,
             expected_attrs: list[str] | None) -> objects.InstanceList:
    """Read the instances of a host that are in the middle of something.

    :param host: as nova spells it.
    :param expected_attrs: what is to be read with them.
    """
    found = {}
    for filters in (
            {'vm_state': list(RESTLESS)},
            {'task_state': [*calls.TASK_STATES, *takeover.marks(
                host_key(host), calls.TASK_STATES)]}):
        for row in reads.all_rows(
                context, {'host': host, **filters}, expected_attrs or ()):
            found[row.uuid] = row
    return objects.InstanceList(context, objects=list(found.values()))
