# SPDX-License-Identifier: Apache-2.0

"""What all commands have in common: whom they ask, and how they fail."""

import argparse
import traceback

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client

PROGRAM = 'nova-ironic-multihost'

#: How the commands begin in python-openstackclient.
OPENSTACK = 'openstack baremetal compute'


class Refused(Exception):
    """What is asked for makes no sense; a sentence or two, the remedy."""


class CloudCommand:
    """Mixin for cliff's Command, Lister and ShowOne; name it before them.

    The command runs in our own program and inside python-openstackclient,
    whose shell looks at the two attributes below. ``EPILOG`` is printed as it
    is at the end of the help: examples, exit status.
    """

    auth_required = True
    # It looks for the scope in a token that it does not have yet; the APIs
    # say what is missing.
    required_scope = False

    EPILOG = ''

    _survey = None

    def connections(self):
        """Return (connection to nova and placement, one to Ironic).

        :raises SurveyError: without usable credentials
        """
        baremetal = self.app.options.os_baremetal_cloud
        manager = getattr(self.app, 'client_manager', None)
        if manager is None:
            return cloud_client.connections(
                self.app.options.os_cloud, baremetal
            )
        return cloud_client.connections_beside(
            manager.sdk_connection, baremetal
        )

    def survey(self):
        """Return the survey.Survey that asks the cloud of the options.

        The same one each time, so that it authenticates once.

        :raises SurveyError: without usable credentials
        """
        if self._survey is None:
            self._survey = cloud_client.CloudClient(*self.connections())
        return self._survey

    def get_parser(self, prog_name):
        """Return cliff's parser, with a help whose lines stay as they are."""
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser

    def get_epilog(self):
        """Return what stands at the end of the help."""
        own = self.EPILOG
        if self.app.NAME != PROGRAM:
            own = own.replace(f'  {PROGRAM} ', f'  {OPENSTACK} ')
        return '\n'.join(filter(None, (own, super().get_epilog())))

    def run(self, parsed_args):
        """Carry out the command; what cannot be asked is one line.

        :returns: exit status
        """
        try:
            return super().run(parsed_args)
        except (cloud_client.SurveyError, Refused) as error:
            self._failed(error)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001
            # cliff would end with 1, which means something else here.
            self._failed(
                f'{type(error).__name__}: {error}. That was not expected: an '
                'API has an odd answer, or there is an error in this program; '
                '--debug shows where')
        return arguments.UNKNOWN

    def _failed(self, sentence):
        if self.app.options.debug:
            traceback.print_exc(file=self.app.stderr)
        self.tell(sentence)

    def tell(self, sentence):
        """Say something to people, beside the output."""
        print(f'{PROGRAM}: {sentence}', file=self.app.stderr)
