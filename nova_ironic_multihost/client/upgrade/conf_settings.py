# SPDX-License-Identifier: Apache-2.0

"""What one ``nova.conf`` says, as far as the checks go.

An instance is made by :mod:`nova_ironic_multihost.client.upgrade.conf_files`.
"""

import dataclasses

from nova_ironic_multihost.rules import lease
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

#: What ``[DEFAULT]compute_driver`` has to be.
OURS = 'ironic_multihost.IronicMultiHostDriver'

#: nova's own driver for Ironic.
STOCK = 'ironic.IronicDriver'


@dataclasses.dataclass(frozen=True)
class ConfSettings:
    """The options of one compute service, or of a controller.

    Times are in seconds.

    :ivar origin: where they were read, for people.
    :ivar host: ``[DEFAULT]host``, as it is spelled there.
    :ivar compute_driver: None on a controller, as a rule.
    :ivar shared: (option, value) of those that all that share nodes must have
        the same of; None for a value that is invalid.
    :ivar contradictions: sentences, with which the driver refuses to start.
    :ivar graceful_shutdown_timeout: the longest that nova takes to end; 0 if
        there is no limit.
    :ivar manager_shutdown_timeout: None if nova does not have the option.
    :ivar base_driver: the class that this driver extends, None for nova's.
    :ivar policy: whose instances are taken over.
    :ivar terms: how long a compute service goes by what nova said last.
    """

    origin: str
    host: str
    compute_driver: str | None = OURS
    partition: peers.Partition = peers.Partition()
    shared: tuple[tuple[str, str | None], ...] = ()
    contradictions: tuple[str, ...] = ()
    move_across_zones: bool = False
    service_down_time: int = 60
    graceful_shutdown_timeout: int = 60
    manager_shutdown_timeout: int | None = None
    base_driver: str | None = None
    policy: takeover.Policy = takeover.Policy()
    terms: lease.LeaseTiming = lease.LeaseTiming(60, 60)

    @property
    def key(self) -> HostKey:
        """The host in lower case."""
        return host_key(self.host)

    @property
    def of_compute(self) -> bool:
        """Whether a compute service reads them."""
        return self.compute_driver is not None
