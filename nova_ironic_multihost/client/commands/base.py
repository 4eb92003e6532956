# SPDX-License-Identifier: Apache-2.0

"""Base class of all commands: connections, help and errors."""

import argparse
import traceback

from cliff import show

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client.commands import columns

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
    """

    # The shell of python-openstackclient reads these two. Its test of the
    # scope needs a token that it does not have yet; the APIs test it anyway.
    auth_required = True
    required_scope = False

    EPILOG = ''

    _survey = None

    def connections(self):
        """Return (connection to nova and placement, connection to Ironic).

        :raises SurveyError: without usable credentials
        """
        baremetal = self.app.options.os_baremetal_cloud
        manager = getattr(self.app, 'client_manager', None)
        if manager is None:
            return cloud_client.connections(
                self.app.options.os_cloud, baremetal)
        return cloud_client.connections_beside(
            manager.sdk_connection, baremetal)

    def survey(self):
        """Return the CloudClient for the options, always the same one.

        :raises SurveyError: without usable credentials
        """
        if self._survey is None:
            self._survey = cloud_client.CloudClient(*self.connections())
        return self._survey

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
                return [columns.plain(cell, layout) for cell in row]

            data = (of_row(data) if isinstance(self, show.ShowOne)
                    else list(map(of_row, data)))
        return super().produce_output(parsed_args, column_names, data)

    def run(self, parsed_args):
        """Run the command, print errors as one line; return exit status."""
        try:
            return super().run(parsed_args)
        except (cloud_client.SurveyError, Refused) as error:
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
