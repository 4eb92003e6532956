# SPDX-License-Identifier: Apache-2.0

"""Base class of all commands: connections, help and errors."""

import argparse
import datetime
import traceback

from cliff import columns
from cliff import command
from cliff import show

from nova_ironic_multihost.client import api
from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import services
from nova_ironic_multihost import conf

PROGRAM = 'nova-ironic-multihost'

#: Prefix of the commands in python-openstackclient.
OPENSTACK = 'openstack baremetal compute'


class Refused(Exception):
    """The command is refused; the message names the remedy."""


def unexpected(error):
    """Return the sentence of an error that no code of ours has raised."""
    return (f'{type(error).__name__}: {error}. That was not expected: an '
            'API has an odd answer, or there is an error in this program; '
            '--debug shows where')


class CloudCommand:
    """Mixin for cliff's Command, Lister and ShowOne; name it before them.

    The command runs in our own program and in python-openstackclient.

    :cvar EPILOG: end of the help: examples, exit status.
    :ivar status: exit status of a command that prints a table.
    """

    # The shell of python-openstackclient reads these two. Its test of the
    # scope needs a token that it does not have yet; the APIs test it anyway.
    auth_required = True
    required_scope = False

    EPILOG = ''

    status = arguments.DONE

    _survey = None

    def connections(self):
        """Return (connection to nova and placement, connection to Ironic).

        :raises CloudError: without usable credentials
        """
        baremetal = self.app.options.os_baremetal_cloud
        manager = getattr(self.app, 'client_manager', None)
        if manager is None:
            return api.connections(
                self.app.options.os_cloud, baremetal)
        return api.connections_beside(
            manager.sdk_connection, baremetal)

    def survey(self):
        """Return the CloudClient for the options, always the same one.

        :raises CloudError: without usable credentials
        """
        if self._survey is None:
            self._survey = cloud_client.CloudClient(*self.connections())
        return self._survey

    def report(self, args, heartbeats=False):
        """Read the cloud and return its OwnershipReport.

        :param args: with the options of :func:`add_shared`
        :param heartbeats: also find the hosts that are fenced and alive
        :raises CloudError: when a service does not answer
        """
        cloud = self.survey()
        seen = cloud.read(zones=True)
        if heartbeats:
            seen = services.with_heartbeats(cloud, seen)
        return ownership_report.OwnershipReport(seen, shared_settings(args))

    def get_parser(self, prog_name):
        """Return cliff's parser, set to keep the lines of the help."""
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser

    def get_epilog(self):
        """Return the end of the help."""
        own = self.EPILOG
        if self.app.NAME != PROGRAM:
            own = own.replace(f'  {PROGRAM} ', f'  {OPENSTACK} ')
        return '\n'.join(filter(None, (own, super().get_epilog())))

    def produce_output(self, parsed_args, column_names, data):
        """Print the output of a command: a row, or rows."""
        layout = parsed_args.formatter
        if layout in ('csv', 'json', 'yaml'):
            def of_row(row):
                return [plain(cell, layout) for cell in row]

            data = (of_row(data) if isinstance(self, show.ShowOne)
                    else list(map(of_row, data)))
        return super().produce_output(parsed_args, column_names, data)

    def run(self, parsed_args):
        """Run the command, print errors as one line; return exit status."""
        try:
            return super().run(parsed_args) or self.status
        except (cloud_state.CloudError, Refused) as error:
            self._failed(error)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001
            # cliff would exit with 1, which here means that something is left.
            self._failed(unexpected(error))
        return arguments.UNKNOWN

    def _failed(self, sentence):
        self.trace()
        self.tell(sentence)

    def trace(self):
        """Print where the present exception is from, with --debug."""
        if self.app.options.debug:
            traceback.print_exc(file=self.app.stderr)

    def tell(self, sentence):
        """Print a sentence to standard error."""
        print(f'{PROGRAM}: {sentence}', file=self.app.stderr)

#: The most characters of a reason; with its prefix nova stores 255.
REASON = 200


def reason(text):
    """Parse a reason of the command line."""
    if not 0 < len(text) <= REASON:
        raise argparse.ArgumentTypeError(
            f'a reason has 1 to {REASON} characters')
    return text


class ActingCommand(CloudCommand, command.Command):
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
        :raises CloudError: when the last read fails, with ``state``
        """
        errors = []

        def attempt():
            try:
                return read()
            except cloud_state.CloudError as error:
                errors.append(error)
                return None

        for after, seen in services.looks(attempt, limit, least=least):
            if seen is not None:
                errors.clear()
                yield after, seen
            elif len(errors) == 1:
                self.say(f'after {after:.0f} s: {errors[0]}')
        if errors:
            raise cloud_state.CloudError(f'{state} {errors[-1]}')

    def follow(self, looks, words, hidden):
        """Print what a compute service has left, until others have it all.

        :param looks: yields (seconds since the beginning, HostForecast)
        :param words: returns the numbers of a HostForecast in words
        :param hidden: why something may wait, as far as no API shows it
        :returns: whether others have it all
        """
        before = None
        for after, found in looks:
            if before is None or words(found) != words(before):
                self.say(f'after {after:.0f} s: {words(found)} left')
            if before is None:
                self.explain(found)
            elif [*found.obstacles()] != [*before.obstacles()]:
                self.say(*(f'  {line}' for line in found.obstacles()))
            if found.empty:
                return True
            # A single read may show a change only in part.
            if found == before and not found.moves:
                return False
            before = found
        if found.moves:
            self.say(f'{hidden}.')
        return False

    def explain(self, found):
        """Print who takes what, and what stays and why."""
        self.say(*(f'  {line}'
                   for line in (*found.sentences(), *found.obstacles())))


class YesNo(columns.FormattableColumn):
    """True, False or None: yes, no or unknown."""

    def human_readable(self):
        """Return a word."""
        if self._value is None:
            return 'unknown'
        return 'yes' if self._value else 'no'


class Number(columns.FormattableColumn):
    """A number with two digits, or None: -."""

    def human_readable(self):
        """Return two digits, or -."""
        return '-' if self._value is None else f'{self._value:.2f}'

    def machine_readable(self):
        """Return the number rounded, or None."""
        return self._value if self._value is None else round(self._value, 2)


class Moment(columns.FormattableColumn):
    """Seconds since the epoch, or None if not known."""

    def _text(self, layout, unknown):
        if self._value is None:
            return unknown
        moment = datetime.datetime.fromtimestamp(self._value, datetime.UTC)
        return moment.strftime(layout)

    def human_readable(self):
        """Return date and time."""
        return self._text('%Y-%m-%d %H:%M:%S UTC', 'unknown')

    def machine_readable(self):
        """Return the time by ISO 8601, or None."""
        return self._text('%Y-%m-%dT%H:%M:%SZ', None)


class Coloured(columns.FormattableColumn):
    """A state or status in the colour of a terminal: red, yellow or none."""

    _COLOURS = {'down': 31, 'gone': 31, 'unknown': 31, 'fenced, alive': 31,
                'fenced': 33, 'disabled': 33, 'ending': 33, 'ended': 33}

    def human_readable(self):
        """Return the word between the codes of its colour."""
        colour = self._COLOURS.get(self._value)
        return (f'\x1b[{colour}m{self._value}\x1b[0m' if colour
                else self._value)


def plain(cell, layout):
    """Return a cell for a program.

    :param layout: json, yaml or csv; CSV has no null: None stays empty there
    """
    if isinstance(cell, columns.FormattableColumn):
        cell = cell.machine_readable()
    if layout == 'csv' and isinstance(cell, bool):
        return str(cell).lower()
    return None if cell == '' else cell

_DEFAULTS = {option.dest: option.default for option in conf.OPTS}


def add_shared(parser):
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


def shared_settings(args):
    """Return the SharedSettings of the options."""
    return ownership_report.SharedSettings(
        args.ring_partitions, args.move_across_zones)
