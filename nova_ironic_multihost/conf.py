# SPDX-License-Identifier: Apache-2.0

"""Options of ``[ironic_multihost]``; settings that contradict each other."""

from oslo_config import cfg

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover

GROUP = cfg.OptGroup(
    'ironic_multihost',
    title='Several nova-compute services over one Ironic',
    help="""
Options of the virt driver ``ironic_multihost.IronicMultiHostDriver``, read by
nova-compute.
""")

OPTS = [
    cfg.StrOpt(
        'base_driver',
        help="""
Class of a virt driver of your own, in the place of nova's: MODULE.CLASS.

For who has a subclass of nova.virt.ironic.driver.IronicDriver and wants what
it does as well. ``compute_driver`` still names the driver of this package,
which is put in front of this class. A class below nova.virt is named in full,
too, for example ``nova.virt.acme.driver.AcmeIronicDriver``.
Which of its methods are called is in the documentation (page "A driver of your
own").
"""),
    cfg.IntOpt(
        'ring_partitions',
        default=1024,
        min=1,
        max=65536,
        help="""
Number of points that each compute service has on the hash ring.

More points spread the nodes more evenly and cost memory and time whenever a
compute service joins or leaves. Every compute service that shares nodes must
use the same number, or they disagree about who prefers which node.
"""),
    cfg.IntOpt(
        'pulls_per_audit',
        default=200,
        min=0,
        max=100000,
        help="""
The most free nodes that this compute service takes from other live compute
services in one audit ([DEFAULT]update_resources_interval), and in one poll of
them between two audits.

A compute service that joins is filled by and by: eight nodes change their
owner at a time, during which builds on this compute service wait; one that
cannot be moved as it is takes about 0.1 s.
Nodes that nobody owns, or whose compute service is down, do not count. With 0
nothing is taken from a live compute service, so that none can be drained.
"""),
    cfg.BoolOpt(
        'move_across_zones',
        default=False,
        help="""
Whether a free node may move between compute services of different
availability zones.

A zone is a set of places, and a machine that changes its compute service does
not change its rack, so by default it stays with the compute services of its
zone and those that are in no host aggregate with a zone, even when none of
them is up. Every compute service that shares nodes must use the same value.
"""),
    cfg.IntOpt(
        'max_vanished_percent',
        default=50,
        min=0,
        max=100,
        help="""
The largest share, in percent, of the nodes of this compute service that may
vanish from Ironic at once and be taken for deleted.

When more are missing, or Ironic lists no node at all, the likely cause is an
account that lost a role or a broken Ironic, so no record and no resource
provider is deleted and an ERROR says so. If the nodes are really gone, set it
to 100, restart nova-compute, and set it back when the records are gone.
"""),
    cfg.StrOpt(
        'instance_takeover',
        default=takeover.FORCED_DOWN,
        choices=[
            (takeover.NEVER, 'they wait until it is back'),
            (takeover.FORCED_DOWN, 'when it has been declared dead: openstack '
             'compute service set --down HOST nova-compute'),
            (takeover.DOWN, 'also when it has been down for takeover_after '
             'seconds, while more than half of the compute services that '
             'share the nodes are up'),
        ],
        help="""
When other compute services take over the instances of one that is dead.

Whoever declares a compute service dead has to make sure that it is: fence it
first. With ``down`` nobody does, so a compute service that hangs or is cut off
may come back while its instances have gone on elsewhere; it then leaves them
alone. A watchdog kills it before that (documentation, page "A watchdog instead
of fencing"). Every compute service that shares nodes must use the same value.
"""),
    cfg.IntOpt(
        'takeover_after',
        default=300,
        min=1,
        max=86400,
        help="""
Seconds for which a compute service must have been seen down before its
instances are taken over with ``instance_takeover = down``.

They are counted by each compute service for itself, from when it first saw the
other one down. Must exceed [DEFAULT]service_down_time: a network that fails
for a moment is no reason. Where systemd watches nova-compute (WatchdogSec) it
must not be less than rpc_response_timeout + 2 * service_down_time + 3 *
WatchdogSec, or nova-compute refuses to start. Every compute service that
shares nodes must use the same value.
"""),
    cfg.IntOpt(
        'audit_interval',
        default=3600,
        min=60,
        max=86400,
        help="""
Seconds in which this compute service looks at each of its nodes anew, and at
each node of Ironic.

A node that has changed, in Ironic, in nova or in placement, is audited within
seconds. This finds changes of which nothing gives a sign: a row that was
changed in Ironic's or nova's database by hand, a conductor of Ironic with a
clock that is more than 30 s behind, aggregates of a resource provider that
were changed through an API of placement before 1.19. A shorter interval costs
requests and CPU (documentation, page "Sizing").
"""),
    cfg.PortOpt(
        'metrics_port',
        default=0,
        help="""
TCP port on which this compute service answers over HTTP: ``/metrics`` for
Prometheus, and for probes ``/healthz/HOST`` and ``/leasez/HOST``, which say
200 or 503 and why. HOST is [DEFAULT]host; for any other they say 404.

0 for none. If the port is in use a WARNING says so and nova-compute goes on
without; with ``instance_takeover = down`` and no watchdog of systemd it
refuses to start, as a probe may be all that ends it. Several nova-computes on
one machine need a port each. See the documentation (page "Metrics and
health").
"""),
    cfg.HostAddressOpt(
        'metrics_address',
        default='127.0.0.1',
        help="""
Address or host name on which ``metrics_port`` is listened to.

Whoever reaches it can read what is said there, without a password: how many
nodes there are and what this compute service does with them, no name and no
secret. ``0.0.0.0`` or ``::`` for all addresses of the machine.
"""),
]


def register_opts(conf):
    """Register the group and its options; again does nothing.

    :param conf: an oslo.config ConfigOpts, usually nova's.
    """
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts():
    """Return what oslo-config-generator asks for: [(group, options)]."""
    return [(GROUP, OPTS)]


def partition(conf: cfg.ConfigOpts) -> peers.Partition:
    """Return which nodes a compute service shares.

    :param conf: with nova's options for Ironic.
    """
    group = conf.ironic.conductor_group
    return peers.Partition(
        conductor_group=group if group is None else group.lower(),
        shard=conf.ironic.shard,
        peer_list=tuple(conf.ironic.peer_list))


def contradictions(conf, host, dead_after=None):
    """Return a sentence with the remedy for each contradiction of settings.

    Their effects show late: nodes that nobody manages, or that two hosts
    manage. Invalid values are told first, alone.

    :param dead_after: seconds after which a compute service that nova does
        not answer is dead for certain (:mod:`.rules.health`), None for never.
    """
    return [*_invalid_values(conf)] or [
        *_contradictions(conf, host, dead_after)]


def _invalid_values(conf):
    for option in OPTS:
        try:
            conf[GROUP.name][option.dest]
        except ValueError as exc:
            why = str(exc).rpartition(' is not valid: ')[2]
            yield f'Correct [{GROUP.name}]{option.name} in nova.conf: {why}.'


def _contradictions(conf, host, dead_after):
    if conf.ironic.conductor_group is not None or conf.ironic.shard:
        peers = {peer.lower() for peer in conf.ironic.peer_list}
        # An empty list is no contradiction: this host is then the only one.
        if peers and host.lower() not in peers:
            yield (f'[ironic]peer_list does not name this host: add "{host}" '
                   'to it, on this and on every other host of the list.')
    if conf.update_resources_interval < 0:
        yield ('[DEFAULT]update_resources_interval is negative, which turns '
               'off the audits in which compute services share the nodes: '
               'unset it or set it to a number of seconds.')
    if conf.report_interval < 1:
        yield (f'[DEFAULT]report_interval is {conf.report_interval}, and a '
               'compute service without heartbeats is dead to the others: '
               'unset it or set it to a number of seconds.')
    ours = conf[GROUP.name]
    after = (ours.takeover_after
             if ours.instance_takeover == takeover.DOWN else None)
    if after is not None and after <= conf.service_down_time:
        yield (f'[{GROUP.name}]takeover_after is {after} s, and a '
               'compute service is not even called down before '
               f'[DEFAULT]service_down_time, {conf.service_down_time} s: make '
               'takeover_after longer.')
    if after is not None and dead_after is not None and after < dead_after:
        yield (f'[{GROUP.name}]takeover_after is {after} s, and the '
               'watchdog kills a compute service that is cut off from nova '
               f'within {dead_after:.0f} s, all in all: make takeover_after '
               'no shorter, on all hosts, or WatchdogSec, '
               '[DEFAULT]rpc_response_timeout or service_down_time shorter '
               '(documentation, page "A watchdog instead of fencing").')
