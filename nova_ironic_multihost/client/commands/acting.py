# SPDX-License-Identifier: Apache-2.0

"""What commands have in common that change a compute service.

They ask nova for its compute services before they act, so that they work when
nothing else does. When they wait they ask nova, placement and Ironic.
"""

import argparse

from cliff import command

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import polling
from nova_ironic_multihost.client import services

#: Exit statuses besides cli.UNKNOWN.
DONE, LEFT = range(2)

#: Letters of a reason; nova has room for 255 with what is added.
REASON = 200


def reason(text):
    """Check a reason of the command line."""
    if not 0 < len(text) <= REASON:
        raise argparse.ArgumentTypeError(
            f'a reason has 1 to {REASON} letters')
    return text


class ActingCommand(base.CloudCommand, command.Command):
    """A command that changes one compute service."""

    def get_parser(self, prog_name):
        """Add the compute service."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'host', metavar='HOST',
            help='host of the compute service, as "openstack compute service '
            'list" has it')
        return parser

    def ask(self, host):
        """Ask nova for all compute services, and which one is meant.

        :param host: what the command line says
        :returns: (the cloud, all services, the one)
        """
        cloud = self.survey()
        known = cloud.computes(host)
        return cloud, known, services.named(known, host)

    def say(self, *lines):
        """Print lines at once: somebody waits for them."""
        for line in lines:
            print(line, file=self.app.stdout, flush=True)

    def watch(self, read, limit, state, least=1):
        """Look until the time is over; what fails is looked at again.

        :param read: looks once
        :param limit: seconds
        :param state: sentence that says what is done whatever fails now
        :param least: so many looks there are, however long each of them takes
        :returns: iterable of (seconds since the beginning, what was read)
        :raises SurveyError: when the last look fails, with ``state``
        """
        failures = []

        def attempt():
            try:
                return read()
            except cloud_client.SurveyError as error:
                failures.append(error)
                return None

        for after, seen in polling.looks(attempt, limit, least=least):
            if seen is not None:
                failures.clear()
                yield after, seen
            elif len(failures) == 1:
                self.say(f'after {after:.0f} s: {failures[0]}')
        if failures:
            raise cloud_client.SurveyError(f'{state} {failures[-1]}')
