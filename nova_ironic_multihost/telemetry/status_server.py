# SPDX-License-Identifier: Apache-2.0

"""The metrics, health and report of a compute service."""

from collections.abc import Callable
from importlib import metadata

from oslo_log import log as logging

from nova_ironic_multihost.rules.health import HealthState
from nova_ironic_multihost.rules.health import StatusSnapshot
from nova_ironic_multihost.telemetry import exposition
from nova_ironic_multihost.telemetry import http_server
from nova_ironic_multihost.telemetry import report

LOG = logging.getLogger(__name__)

#: This package, for its version.
DISTRIBUTION = 'nova-ironic-multihost'


class StatusServer:
    """Shows metrics, health and a report.

    The paths for probes contain the host's name: another nova-compute that
    has the port answers 404.

    :param where: (address, port) of the server, None for none.
    """

    def __init__(self, host: str, picture: Callable[[], StatusSnapshot],
                 verdict: Callable[[], HealthState],
                 lease: Callable[[], HealthState],
                 where: tuple[str, int] | None) -> None:
        self._picture = picture
        self._exposition = exposition.Exposition(picture, version())
        self._where = where
        health, leases = f'/healthz/{host}', f'/leasez/{host}'
        self.server = http_server.Server(*where, {
            '/metrics': self._metrics, health: _page(verdict),
            leases: _page(lease),
        }, {health}) if where is not None else None

    def open(self, required: bool = False) -> list[str]:
        """Start the server; return sentences on why nova must not start.

        :param required: only a probe can end this service before a takeover.
        """
        if self.server is None or self._where is None:
            return []
        try:
            self.server.start()
        except OSError as exc:
            address, port = self._where
            if required:
                return [
                    'With [ironic_multihost]instance_takeover = down and no '
                    'watchdog of systemd only a probe of this compute service '
                    'ends it when it is cut off, and nothing can listen for '
                    f'that on {address}, port {port}: {exc}. Set '
                    '[ironic_multihost]metrics_address and metrics_port to '
                    'what is free on this machine, for each nova-compute '
                    'another one (documentation, page "A watchdog instead of '
                    'fencing"); or set instance_takeover to forced_down on '
                    'all hosts, and fence.']
            LOG.warning(
                'Metrics and health of this compute service cannot be read, '
                'as nothing can listen on %(address)s, port %(port)d: '
                '%(exc)s. Set [ironic_multihost]metrics_address and '
                'metrics_port to what is free on this machine, for each '
                'nova-compute another one, and restart nova-compute. All '
                'else goes on.',
                {'address': address, 'port': port, 'exc': exc})
        return []

    def close(self) -> None:
        """Answer no more."""
        if self.server:
            self.server.stop()

    def report(self) -> str:
        """Return the section of a report."""
        return report.text(self._picture())

    def _metrics(self) -> http_server.HttpPage:
        return http_server.HttpPage(
            200, exposition.CONTENT_TYPE, self._exposition.text())


def _page(
    judge: Callable[[], HealthState],
) -> Callable[[], http_server.HttpPage]:
    def make() -> http_server.HttpPage:
        verdict = judge()
        return http_server.line(200 if verdict.well else 503, verdict.why)

    return make


def version() -> str:
    """Return the version of this package, '' if it is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ''
