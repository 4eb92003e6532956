# SPDX-License-Identifier: Apache-2.0

"""The notifications that this package sends, each with a version.

doc/source/reference/notifications.rst shows them. A new field raises the
second number of a version; a field that goes or changes its meaning the first.
"""

from collections.abc import Iterable
import dataclasses
import enum

#: What the keys of a payload begin with, and where its name belongs.
PREFIX, NAMESPACE = 'ironic_multihost_object', 'ironic_multihost'


@dataclasses.dataclass(frozen=True)
class Notification:
    """A notification.

    :param kind: its event type.
    :param name: name of its payload.
    :param version: version of the payload.
    :param fields: JSON.
    """

    kind: str
    name: str
    version: str
    fields: dict[str, object]

    @property
    def payload(self) -> dict[str, object]:
        """The payload as an oslo.versionedobjects primitive."""
        return {f'{PREFIX}.name': self.name,
                f'{PREFIX}.namespace': NAMESPACE,
                f'{PREFIX}.version': self.version,
                f'{PREFIX}.data': self.fields}


def takeover(
    host: str, source_host: str, instances: Iterable[str]
) -> Notification:
    """Return the notification of a take-over.

    :param host: the compute service that has the instances now.
    :param source_host: the one that had them, or ''.
    :param instances: uuids.
    """
    return Notification(
        'ironic_multihost.takeover',
        'TakeoverPayload',
        '1.0',
        {
            'host': host,
            'source_host': source_host,
            'instances': sorted(instances),
        },
    )


def brake(host: str, engaged: bool, missing: int) -> Notification:
    """Return the notification of a change of the brake of vanished nodes.

    :param missing: number of nodes that Ironic does not list.
    """
    return Notification('ironic_multihost.brake', 'BrakePayload', '1.0', {
        'host': host, 'engaged': engaged, 'missing': missing})


class DrainProgress(enum.Enum):
    """Whether a compute service gives its free nodes to others."""

    IN_SERVICE = 'in_service'
    DRAINING = 'draining'
    DRAINED = 'drained'


def drained(disabled: bool, free: int) -> DrainProgress:
    """Return how far a compute service is.

    :param disabled: by an operator.
    :param free: number of its nodes without a server.
    """
    if not disabled:
        return DrainProgress.IN_SERVICE
    return DrainProgress.DRAINING if free else DrainProgress.DRAINED


def drain(
    host: str, state: DrainProgress, free: int, served: int
) -> Notification:
    """Return the notification of a change of that.

    :param served: number of its nodes with a server of its own.
    """
    return Notification('ironic_multihost.drain', 'DrainPayload', '1.0', {
        'host': host, 'state': state.value, 'free': free, 'served': served})
