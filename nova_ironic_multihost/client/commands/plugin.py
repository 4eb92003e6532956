# SPDX-License-Identifier: Apache-2.0

"""The commands in python-openstackclient: openstack baremetal compute ...

Its shell imports this whenever it is started, so this imports next to
nothing. It finds the commands by the entry points of the group that it makes
of the name and the version below.
"""

from nova_ironic_multihost.client import arguments

API_NAME = 'ironic_multihost'
API_VERSION_OPTION = 'os_ironic_multihost_api_version'
DEFAULT_API_VERSION = '1'
API_VERSIONS = {'1': API_NAME}


def make_client(instance):
    """Return the client: there is none but openstacksdk's connection.

    :param instance: the ClientManager of python-openstackclient
    """
    return instance.sdk_connection


def build_option_parser(parser):
    """Add the one global option that the others have no equal of."""
    arguments.add_baremetal_cloud(parser)
    return parser
