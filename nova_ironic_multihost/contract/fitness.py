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

"""Does the nova at hand have what this package replaces in it?"""

from __future__ import annotations

import inspect

from nova.compute import manager
from nova.compute import resource_tracker
from nova.scheduler.client import report
from nova import service
from oslo_messaging._drivers import impl_rabbit

from nova_ironic_multihost.contract import names
from nova_ironic_multihost.contract import operations
from nova_ironic_multihost.contract import patches
from nova_ironic_multihost.contract import roots

#: Target of a patch -> the class of the object.
CLASSES = {'service': service.Service,
           'manager': manager.ComputeManager,
           'tracker': resource_tracker.ResourceTracker,
           'client': report.SchedulerReportClient,
           'driver': names.IronicDriver,
           'transport': impl_rabbit.RabbitDriver}


#: Replaced by patch_roots, before nova 34.
ROOTS = frozenset({('client', 'get_provider_tree_and_ensure_root'),
                   ('client', 'update_from_provider_tree')})


def replaced() -> list[patches.Patch]:
    """Return what is replaced in this release of nova."""
    return [patch for patch in patches.PATCHES
            if (patch.target, patch.attribute) not in ROOTS
            or roots.needed(report.SchedulerReportClient)]


def attributes(patch: patches.Patch) -> set[str]:
    """Return the names that a line of the table stands for."""
    _, dot, name = patch.attribute.partition('.')
    if not dot:
        return {patch.attribute}
    listed = getattr(operations, name)
    return set(listed(manager.ComputeManager) if callable(listed)
               else listed)


def lacking() -> list[str]:
    """Return the methods that nova does not have: CLASS.METHOD, sorted."""
    return sorted(
        f'{CLASSES[patch.target].__name__}.{name}'
        for patch in replaced() for name in attributes(patch)
        if not inspect.isfunction(
            getattr(CLASSES[patch.target], name, None)))
