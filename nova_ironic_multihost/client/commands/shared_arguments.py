# SPDX-License-Identifier: Apache-2.0

"""Options for settings that the compute services have in nova.conf."""

from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import services
from nova_ironic_multihost import conf

_DEFAULTS = {option.dest: option.default for option in conf.OPTS}


def add(parser):
    """Add the options; the defaults are those of nova.conf."""
    group = parser.add_argument_group(
        'as in nova.conf',
        'what the compute services have there; no API shows it')
    group.add_argument(
        '--ring-partitions', type=int, metavar='NUMBER',
        default=_DEFAULTS['ring_partitions'],
        help='[ironic_multihost]ring_partitions (default: %(default)s)')
    group.add_argument(
        '--move-across-zones', action='store_true',
        default=_DEFAULTS['move_across_zones'],
        help='[ironic_multihost]move_across_zones is true')


def judged(command, args, heartbeats=False):
    """Read the cloud and return its OwnershipReport.

    :param command: a base.CloudCommand
    :param heartbeats: also find the hosts that are fenced and alive
    :raises SurveyError: when a service does not answer
    """
    cloud = command.survey()
    seen = cloud.read(zones=True)
    if heartbeats:
        seen = services.with_heartbeats(cloud, seen)
    return ownership_report.OwnershipReport(seen, given(args))


def given(args):
    """Return the SharedSettings of the options."""
    return ownership_report.SharedSettings(
        args.ring_partitions, args.move_across_zones)
