# SPDX-License-Identifier: Apache-2.0

"""The notifications of doc/source/reference/notifications.rst."""

from collections.abc import Iterable
import dataclasses
import enum

#: Prefix of the keys of a payload, and its namespace.
PREFIX, NAMESPACE = 'ironic_multihost_object', 'ironic_multihost'


@dataclasses.dataclass(frozen=True)
class Notification:
    """A notification: event type, name, version and values of its payload."""

    kind: str
    name: str
    #: A new field raises the minor one, a removed or changed one the major.
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
    """Return the notification of a takeover; the source may be ''."""
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
    """Return the notification that the brake has changed."""
    return Notification('ironic_multihost.brake', 'BrakePayload', '1.0', {
        'host': host, 'engaged': engaged, 'missing': missing})


class DrainProgress(enum.Enum):
    """Whether a compute service gives its free nodes to the others."""

    IN_SERVICE = 'in_service'
    DRAINING = 'draining'
    DRAINED = 'drained'


def drained(disabled: bool, free: int) -> DrainProgress:
    """Return how far the drain is; ``free`` nodes have no server."""
    if not disabled:
        return DrainProgress.IN_SERVICE
    return DrainProgress.DRAINING if free else DrainProgress.DRAINED


def drain(
    host: str, state: DrainProgress, free: int, served: int
) -> Notification:
    """Return the notification of a changed drain."""
    return Notification('ironic_multihost.drain', 'DrainPayload', '1.0', {
        'host': host, 'state': state.value, 'free': free, 'served': served})
