# SPDX-License-Identifier: Apache-2.0

"""Plug-in of python-openstackclient: openstack baremetal compute ...

Its shell imports this at each start, so keep the imports few. API_NAME and
version give the group of entry points in which it finds the commands.
"""

from nova_ironic_multihost.client import arguments

API_NAME = 'ironic_multihost'
API_VERSION_OPTION = 'os_ironic_multihost_api_version'
DEFAULT_API_VERSION = '1'
API_VERSIONS = {'1': API_NAME}


def make_client(instance):
    """Return the connection of openstacksdk; there is no other client.

    :param instance: the ClientManager of python-openstackclient
    """
    return instance.sdk_connection


def build_option_parser(parser):
    """Add our only global option."""
    arguments.add_baremetal_cloud(parser)
    return parser
