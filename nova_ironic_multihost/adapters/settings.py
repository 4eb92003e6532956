# SPDX-License-Identifier: Apache-2.0

"""The options of nova.conf, as plain values."""

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost import conf as package_conf
from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover

#: Seconds between two runs of a task of nova for which no interval is set
#: (oslo_service.periodic_task).
DEFAULT_INTERVAL = 60


def read() -> audit_state.Settings:
    """Return the options that audits follow."""
    options = names.CONF.ironic_multihost
    return audit_state.Settings(
        host=names.CONF.host, partition=partition(),
        points=options.ring_partitions,
        pulls_per_audit=options.pulls_per_audit,
        pull_delay_audits=audit_state.PULL_DELAY_AUDITS,
        move_across_zones=options.move_across_zones,
        max_vanished_percent=options.max_vanished_percent,
        policy=takeover.Policy(
            options.instance_takeover, options.takeover_after),
        takeovers_per_audit=audit_state.TAKEOVERS_PER_AUDIT,
        audit_interval=options.audit_interval,
        heartbeats=liveness.Heartbeats(
            names.CONF.report_interval, names.CONF.service_down_time))


def patience() -> float:
    """Return the seconds for which an operation waits for the conductor.

    It covers several RPC timeouts, and the decision which host has an instance
    (:mod:`.engine.servers.recovery`).
    """
    return max(300, 5 * names.CONF.rpc_response_timeout)


def bounds() -> health.HealthLimits:
    """Return the seconds after which something is taken for broken."""
    conf = names.CONF
    interval = conf.update_resources_interval
    return health.bounds(
        (interval or DEFAULT_INTERVAL) + conf.periodic_fuzzy_delay
        if interval >= 0 and conf.periodic_enable else None,
        read().heartbeats.period, conf.rpc_response_timeout,
        # As nova's driver does (IronicDriver._unprovision).
        (conf.ironic.api_max_retries + 1) * conf.ironic.api_retry_interval)


def terms() -> health.LeaseTiming:
    """Return how long the lease of this service lasts."""
    return health.LeaseTiming(
        names.CONF.rpc_response_timeout, names.CONF.service_down_time)


def metrics() -> tuple[str, int] | None:
    """Return where metrics can be read, (address, port); None if nowhere."""
    options = names.CONF.ironic_multihost
    if not options.metrics_port:
        return None
    return options.metrics_address, options.metrics_port


def topics() -> list[str] | None:
    """Return nova's versioned topics; None: notify its unversioned ones."""
    options = names.CONF.notifications
    return (None if options.notification_format == 'unversioned'
            else options.versioned_notifications_topics)


def partition() -> peers.Partition:
    """Read which nodes this compute service shares."""
    return package_conf.partition(names.CONF)
