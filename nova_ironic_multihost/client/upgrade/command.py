# SPDX-License-Identifier: Apache-2.0

"""nova-ironic-multihost-status upgrade check: is the cloud ready?"""

import argparse
from importlib import util
import logging
import sys
import textwrap

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Problem
from nova_ironic_multihost.client.upgrade import hosts
from nova_ironic_multihost.client.upgrade import inputs
from nova_ironic_multihost.client.upgrade import nova_compute

PROGRAM = 'nova-ironic-multihost-status'

#: Width of the table without its frame. With the frame, and indented by three
#: in a quotation, it fits into 80 columns.
WIDTH = 72

#: The prefix that oslo.upgradecheck gives the details.
DETAILS = 'Details: '
INDENT = '  '

#: Exit status of an unexpected error, as oslo.upgradecheck has it.
UNEXPECTED = 255

NO_NOVA = (
    f'{PROGRAM} needs nova, which {sys.executable} does not have: pip install '
    "'nova-ironic-multihost[nova]' in the environment of nova-compute.")

_DESCRIPTION = """\
Look whether everything is ready before compute services are switched to this
driver, before an upgrade of it or of nova, and when in doubt:

  - the driver can be loaded by the nova-compute of this host, and its nova is
    one that is supported;
  - its nova.conf has no settings that contradict each other;
  - it is given the time that it takes to end;
  - where nobody fences, a watchdog ends it before others take over;
  - what nova, placement and Ironic say of the compute services fits: cells,
    the spelling of hosts, conductor groups and shards, availability zones;
  - those that share nodes have the same settings and the same driver;
  - no compute service has a second record of a node;
  - placement gives no machine to two servers, and the settings of schedulers
    and placement suit the hypervisors of the cloud.

Run it on each host with a nova-compute for Ironic, as a user who may read its
nova.conf. Nothing is changed. Each check says what is to be done; the
documentation has more (page "Upgrade check").
"""

_EPILOG = """\
examples:
  nova-ironic-multihost-status upgrade check
        nova.conf where nova-compute finds it; OS_CLOUD or the other OS_*
        variables, as any OpenStack client
  nova-ironic-multihost-status upgrade check --os-cloud admin \\
      --os-baremetal-cloud system
        Ironic shows all nodes to system scope only, nova wants an admin of a
        project
  nova-ironic-multihost-status upgrade check --collected /tmp/fetched \\
      --placement-config /tmp/placement.conf
        with the nova.conf of all compute services: /tmp/fetched/HOST.conf, or
        all *.conf files below /tmp/fetched/HOST
  nova-ironic-multihost-status upgrade check --json | jq '.checks[].result'

exit status: 0 all checks succeeded, 1 there is a warning: something is to be
looked at, or could not be, 2 something stops the upgrade, 255 an unexpected
error.
"""


class Commands(upgradecheck.UpgradeCommands):
    """The checks, in the order in which they are shown.

    :param known: an :class:`.inputs.UpgradeInputs`.
    """

    display_title = 'Upgrade Check Results'

    def __init__(self, known):
        self._known = known
        self._upgrade_checks = tuple(
            (name, (Commands._result, {'judges': judges}))
            for name, judges in CHECKS)

    def _get_details(self, upgrade_check_result):
        """Return the details as laid out in the table.

        oslo.upgradecheck would wrap them into one paragraph of 60 columns,
        too narrow for names of options.
        """
        details = upgrade_check_result.details
        return details and '\n'.join(_laid_out(details.splitlines()))

    def _result(self, judges):
        """Return the upgradecheck.Result of the problems of some judges."""
        problems = [found for judge in judges for found in self._ask(judge)]
        if not problems:
            return upgradecheck.Result(upgradecheck.Code.SUCCESS)
        # A missing input may be a problem of several judges: print it once.
        sentences = dict.fromkeys(found.sentence for found in problems)
        return upgradecheck.Result(
            upgradecheck.Code.FAILURE
            if any(found.fatal for found in problems)
            else upgradecheck.Code.WARNING, '\n'.join(sentences))

    def _ask(self, judge):
        """Return the problems; a missing input is a problem, too."""
        try:
            return list(judge(self._known))
        except inputs.ERRORS as error:
            return [Problem(f'Not known: {error}')]


def _laid_out(paragraphs):
    """Yield the lines of paragraphs; the first follows DETAILS."""
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ''
        for line in textwrap.wrap(
                paragraph, WIDTH, break_long_words=False,
                break_on_hyphens=False,
                initial_indent=INDENT if number else DETAILS,
                subsequent_indent=INDENT):
            yield line.removeprefix(DETAILS)


def _missing(known):
    if len(known.hosts) > 1:
        yield from hosts.missing(known.collected, known.hosts)


def _drivers(known):
    if len(known.hosts) > 1:
        yield from nova_compute.missing(
            known.collected, known.hosts, known.release)


def _marks(known):
    return nova_compute.judge_marks(known.seen, known.marked)


def _partition(known):
    if known.settings.partition.label:
        yield from hosts.judge_peers(
            known.settings, known.seen, known.partition_nodes)


def _zones(known):
    if known.settings.move_across_zones:
        return ()
    return hosts.judge_zones(known.peers, known.zones)


def _own_name(known):
    if known.settings.of_compute:
        yield from hosts.judge_own_name(known.seen, known.settings.host)


def _placement(known):
    try:
        others = known.seen.others
    except inputs.ERRORS:
        # Another check reports it.
        others = None
    return conf_settings.judge_placement(known.placement, others)


def _stopping(known):
    return nova_compute.judge_stop(known.settings, known.release, known.units)


#: (name, functions that take UpgradeInputs and return problems).
CHECKS = (
    ('Driver', (
        lambda known: nova_compute.judge_load(known.probe),
        lambda known: nova_compute.judge_setting(known.settings))),
    ('Release of nova', (
        lambda known: nova_compute.judge_release(known.probe),)),
    ('Settings without contradiction', (
        lambda known: conf_settings.judge(known.settings),)),
    ('Account in Ironic', (lambda known: conf_settings.judge_scope(
        known.settings, known.release),)),
    ('Time to end', (_stopping,)),
    ('Takeover without fencing', (
        lambda known: nova_compute.judge_watchdog(
            known.settings, known.units),)),
    ('Cells', (lambda known: hosts.judge_cells(known.seen),)),
    ('Names of hosts', (
        lambda known: hosts.judge_names(known.seen), _own_name)),
    ('Conductor groups and shards', (
        lambda known: hosts.judge_peer_list(known.settings),
        _partition)),
    ('Availability zones', (_zones,)),
    ('Same settings on all', (
        lambda known: hosts.judge_options(known.collected), _missing)),
    ('Same driver on all', (
        lambda known: nova_compute.judge_others(known.collected),
        _marks, _drivers)),
    ('Records of nodes', (lambda known: (
        Problem(found.sentence)
        for found in findings.second_records(known.seen)),)),
    ('Schedulers and placement', (
        lambda known: conf_settings.judge_subset(
            known.conf_files, known.seen.others),
        _placement)),
)


def main(argv=None):
    """Run the command.

    :param argv: arguments; default: those of this process
    :returns: exit status
    """
    args = parser().parse_args(argv)
    if not util.find_spec('nova'):
        print(NO_NOVA, file=sys.stderr)
        return UNEXPECTED
    # Without a handler Python prints log lines of libraries into the results.
    logging.basicConfig(handlers=[logging.NullHandler()])
    return upgradecheck.main(
        cfg.ConfigOpts(), PROGRAM, Commands(inputs.UpgradeInputs(args)),
        ['upgrade', 'check', *(['--json'] if args.json else [])],
        default_config_files=[])


def parser():
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog=PROGRAM, description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument('upgrade', choices=['upgrade'], metavar='upgrade',
                     help='the word "upgrade"')
    top.add_argument('check', choices=['check'], metavar='check',
                     help='the word "check"')
    top.add_argument(
        '--config-file', action='append', default=[], metavar='FILE',
        help='as of nova-compute, may be given several times (default: where '
        'nova-compute looks)')
    top.add_argument(
        '--config-dir', action='append', default=[], metavar='DIRECTORY',
        help='as of nova-compute, may be given several times')
    arguments.add_clouds(top)
    top.add_argument(
        '--collected', metavar='DIRECTORY',
        help='the nova.conf of other compute services: each entry is one '
        "host's, a file HOST.conf, or a directory HOST of which all *.conf "
        'files are read')
    top.add_argument(
        '--placement-config', action='append', default=[], metavar='FILE',
        help='placement.conf (default: where placement looks)')
    top.add_argument(
        '--unit', action='append', default=[], metavar='NAME',
        help="systemd's unit of nova-compute, may be given several times "
        f'(default: {", ".join(nova_compute.UNITS)}, as far as they exist)')
    top.add_argument(
        '--json', action='store_true',
        help='print {"name": ..., "checks": [{"check", "result", '
        '"details"}]}, where result is 0, 1 or 2')
    return top


if __name__ == '__main__':
    sys.exit(main())
