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
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import checks
from nova_ironic_multihost.client.upgrade import inputs

PROGRAM = 'nova-ironic-multihost-status'

#: Width of the details: with "Details: " and its frame the table fits into 80
#: columns.
WIDTH = 63

NO_NOVA = (
    f'{PROGRAM} needs nova, which {sys.executable} does not have: install the '
    'wheel of this package into the environment of nova-compute.')

_DESCRIPTION = """\
Look whether everything is ready before compute services are switched to this
driver, and before an upgrade of it or of nova. Run it on each host with a
nova-compute for Ironic, with the Python of nova-compute, as a user who may
read its nova.conf. Nothing is changed. Each check names its remedy; the
documentation has more (page "Upgrade check").
"""

_EPILOG = """\
examples:
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
    """The checks of an :class:`.inputs.UpgradeInputs`, in their order."""

    def __init__(self, known):
        self._known = known
        self._upgrade_checks = tuple(
            (name, (Commands._result, {'check': check}))
            for name, check in checks.CHECKS.items())

    def _get_details(self, upgrade_check_result):
        """Return the details, with a paragraph for each sentence.

        oslo.upgradecheck has one of 60 columns, and breaks names of options.
        """
        details = upgrade_check_result.details
        return details and '\n\n'.join(
            textwrap.fill(sentence, WIDTH, subsequent_indent='  ',
                          break_long_words=False, break_on_hyphens=False)
            for sentence in details.splitlines())

    def _result(self, check):
        """Return the upgradecheck.Result of a check."""
        problems = []
        try:
            for sentence in check(self._known):
                problems.append(sentence)
        except cloud_state.CloudError as error:
            problems.append(f'Not known: {error}')
        except cfg.Error as error:
            problems.append(f'Not known: {error}. Correct it.')
        if not problems:
            return upgradecheck.Result(upgradecheck.Code.SUCCESS)
        fatal = any(isinstance(one, checks.Fatal) for one in problems)
        return upgradecheck.Result(
            upgradecheck.Code.FAILURE if fatal else upgradecheck.Code.WARNING,
            '\n'.join(problems))


def main(argv=None):
    """Run the command; return its exit status."""
    args = parser().parse_args(argv)
    if not util.find_spec('nova'):
        print(NO_NOVA, file=sys.stderr)
        # As oslo.upgradecheck ends with an unexpected error.
        return 255
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
    for word in 'upgrade', 'check':
        top.add_argument(word, choices=[word], metavar=word,
                         help=f'the word "{word}"')
    many = {'action': 'append', 'default': []}
    top.add_argument(
        '--config-file', metavar='FILE', **many,
        help='as of nova-compute, may be given several times (default: where '
        'nova-compute looks)')
    top.add_argument(
        '--config-dir', metavar='DIRECTORY', **many,
        help='as of nova-compute, may be given several times')
    arguments.add_clouds(top)
    top.add_argument(
        '--collected', metavar='DIRECTORY',
        help='the nova.conf of other compute services: each entry is one '
        "host's, a file HOST.conf, or a directory HOST of which all *.conf "
        'files are read')
    top.add_argument(
        '--placement-config', metavar='FILE', **many,
        help='placement.conf (default: where placement looks)')
    top.add_argument(
        '--unit', metavar='NAME', **many,
        help="systemd's unit of nova-compute, may be given several times "
        f'(default: {", ".join(inputs.UNITS)}, as far as they exist)')
    top.add_argument(
        '--json', action='store_true',
        help='print {"name": ..., "checks": [{"check", "result", '
        '"details"}]}, where result is 0, 1 or 2')
    return top
