# SPDX-License-Identifier: Apache-2.0

"""Base class of all commands: connections, help and errors."""

import argparse
import datetime
import functools
import traceback

from cliff import command
from cliff import show

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import services

PROGRAM = 'nova-ironic-multihost'


class Refused(Exception):
    """A command, or a part of it, is refused; the message has the remedy."""


def unexpected(error):
    """Return the sentence of an error that no code of ours has raised."""
    return (f'{type(error).__name__}: {error}. That was not expected: an '
            'API has an odd answer, or there is an error in this program; '
            '--debug shows where')


class CloudCommand:
    """Mixin for cliff's Command, Lister and ShowOne; name it before them.

    Its class attribute _epilog is cliff's: examples and exit status.

    :ivar status: exit status of a command that prints a table.
    """

    status = arguments.DONE

    @functools.cached_property
    def cloud(self):
        """The CloudClient for the options; CloudError without credentials."""
        options = self.app.options
        return cloud_client.connect(
            options.os_cloud, options.os_baremetal_cloud)

    @property
    def settings(self):
        """The SharedSettings for the options."""
        options = self.app.options
        return ownership_report.SharedSettings(
            options.ring_partitions, options.move_across_zones)

    def report(self, heartbeats=False):
        """Read the cloud and return its OwnershipReport.

        :param heartbeats: also find the hosts that are fenced and alive
        :raises CloudError: when a service does not answer
        """
        seen = self.cloud.read()
        if heartbeats:
            seen = services.with_heartbeats(self.cloud, seen)
        return ownership_report.OwnershipReport(seen, self.settings)

    def get_parser(self, prog_name):
        """Return cliff's parser, set to keep the lines of the help."""
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        self.add_options(parser)
        return parser

    def add_options(self, parser):
        """Add the options of the command."""

    def produce_output(self, parsed_args, column_names, data):
        """Print the output of a command: a row, or rows."""
        layout = parsed_args.formatter
        if layout == 'table' and not data:
            # cliff would print an empty line.
            return 0
        if layout in ('json', 'yaml'):
            one = isinstance(self, show.ShowOne)
            rows = [[None if cell == '' else cell for cell in row]
                    for row in ([data] if one else data)]
            data = rows[0] if one else rows
        return super().produce_output(parsed_args, column_names, data)

    def run(self, parsed_args):
        """Run the command, print errors as one line; return exit status."""
        try:
            return super().run(parsed_args) or self.status
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001
            # cliff would exit with 1, which here means that something is left.
            self.trace()
            self.tell(error if isinstance(
                error, (cloud_state.CloudError, Refused))
                else unexpected(error))
        return arguments.UNKNOWN

    def trace(self):
        """Print where the present exception is from, with --debug."""
        if self.app.options.debug:
            traceback.print_exc(file=self.app.stderr)

    def tell(self, sentence):
        """Print a sentence to standard error."""
        print(f'{PROGRAM}: {sentence}', file=self.app.stderr)


class ActingCommand(CloudCommand, command.Command):
    """A command that changes one compute service."""

    def add_options(self, parser):
        """Add the argument HOST."""
        parser.add_argument(
            'host', metavar='HOST',
            help='host of the compute service, as "openstack compute service '
            'list" has it')

    def ask(self, host):
        """Return (all compute services, that of ``host``)."""
        known = self.cloud.computes(host)
        return known, services.named(known, host)

    def say(self, *lines):
        """Print lines, and flush them."""
        for line in lines:
            print(line, file=self.app.stdout, flush=True)

    def looks(self, read, limit, least=1):
        """Read repeatedly, as :func:`.services.looks`; print outages."""
        return services.looks(read, limit, least=least, tell=self.tell,
                              passing=(cloud_state.Unanswered,))

    def follow(self, read, limit, words, hidden, done):
        """Print what a compute service has left; return the exit status.

        :param read: returns a HostForecast
        :param limit: seconds
        :param words: returns the numbers of a HostForecast in words
        :param hidden: why something may wait, as far as no API shows it
        :param done: sentence for the end
        """
        before = None
        for after, found in self.looks(read, limit):
            if before is None or words(found) != words(before):
                self.say(f'after {after:.0f} s: {words(found)} left')
            if before is None:
                self.explain(found)
            elif [*found.obstacles()] != [*before.obstacles()]:
                self.say(*(f'  {line}' for line in found.obstacles()))
            if found.empty:
                self.say(done)
                return arguments.DONE
            # A single read may show a change only in part.
            if found == before and not found.moves:
                break
            before = found
        if found.moves:
            self.say(f'{hidden}.')
        return arguments.LEFT

    def explain(self, found):
        """Print who takes what, and what stays and why."""
        self.say(*(f'  {line}'
                   for line in (*found.sentences(), *found.obstacles())))


def moment(seconds):
    """Return seconds since the epoch as text, None if they are unknown."""
    return None if seconds is None else datetime.datetime.fromtimestamp(
        seconds, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')


def with_reason(service):
    """Return the disabled_reason of a compute service in words."""
    return (f'with the reason "{service.reason}"' if service.reason
            else 'without a reason')
