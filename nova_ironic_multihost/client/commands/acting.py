# SPDX-License-Identifier: Apache-2.0

"""Base class of the commands that change a compute service.

To act they need nova only; to wait they also need placement and Ironic.
"""

import argparse

from cliff import command

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import polling
from nova_ironic_multihost.client import services

#: Exit statuses; arguments.UNKNOWN is the third.
DONE, LEFT = range(2)

#: The most characters of a reason; with its prefix nova stores 255.
REASON = 200


def reason(text):
    """Parse a reason of the command line."""
    if not 0 < len(text) <= REASON:
        raise argparse.ArgumentTypeError(
            f'a reason has 1 to {REASON} characters')
    return text


class ActingCommand(base.CloudCommand, command.Command):
    """A command that changes one compute service."""

    def get_parser(self, prog_name):
        """Add the argument HOST."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'host', metavar='HOST',
            help='host of the compute service, as "openstack compute service '
            'list" has it')
        return parser

    def ask(self, host):
        """Return (the client, all compute services, that of ``host``)."""
        cloud = self.survey()
        known = cloud.computes(host)
        return cloud, known, services.named(known, host)

    def say(self, *lines):
        """Print lines, and flush them."""
        for line in lines:
            print(line, file=self.app.stdout, flush=True)

    def watch(self, read, limit, state, least=1):
        """Yield (seconds since the beginning, result of a read) repeatedly.

        A read that fails is repeated.

        :param limit: seconds
        :param state: sentence with the result so far, for the error
        :param least: the least number of reads, even if the time is over
        :raises SurveyError: when the last read fails, with ``state``
        """
        errors = []

        def attempt():
            try:
                return read()
            except cloud_client.SurveyError as error:
                errors.append(error)
                return None

        for after, seen in polling.looks(attempt, limit, least=least):
            if seen is not None:
                errors.clear()
                yield after, seen
            elif len(errors) == 1:
                self.say(f'after {after:.0f} s: {errors[0]}')
        if errors:
            raise cloud_client.SurveyError(f'{state} {errors[-1]}')
