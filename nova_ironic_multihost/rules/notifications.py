# SPDX-License-Identifier: Apache-2.0

"""The notifications that this package sends, each with a version.

What they look like is in doc/source/reference/notifications.rst. A field that
is added raises the second number of a version; one that goes, or means
something else, the first.
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
    :param name: of its payload.
    :param version: of that.
    :param fields: JSON.
    """

    kind: str
    name: str
    version: str
    fields: dict[str, object]

    @property
    def payload(self) -> dict[str, object]:
        """What is sent, in the form of an oslo.versionedobjects primitive."""
        return {f'{PREFIX}.name': self.name,
                f'{PREFIX}.namespace': NAMESPACE,
                f'{PREFIX}.version': self.version,
                f'{PREFIX}.data': self.fields}


def takeover(
    host: str, source_host: str, instances: Iterable[str]
) -> Notification:
    """Return what is sent when instances were taken over.

    :param host: the compute service that has them now.
    :param source_host: the one that had them, '' if none had.
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
    """Return what is sent when the brake of vanished nodes changes.

    :param missing: number of nodes that Ironic does not list.
    """
    return Notification('ironic_multihost.brake', 'BrakePayload', '1.0', {
        'host': host, 'engaged': engaged, 'missing': missing})


class DrainProgress(enum.Enum):
    """Whether a compute service gives its free nodes to the others."""

    IN_SERVICE = 'in_service'
    DRAINING = 'draining'
    DRAINED = 'drained'


def drained(disabled: bool, free: int) -> DrainProgress:
    """Say how far a compute service is.

    :param disabled: by an operator.
    :param free: number of its nodes that have no server.
    """
    if not disabled:
        return DrainProgress.IN_SERVICE
    return DrainProgress.DRAINING if free else DrainProgress.DRAINED


def drain(
    host: str, state: DrainProgress, free: int, served: int
) -> Notification:
    """Return what is sent when that changes.

    :param served: number of its nodes with a server of its own.
    """
    return Notification('ironic_multihost.drain', 'DrainPayload', '1.0', {
        'host': host, 'state': state.value, 'free': free, 'served': served})
