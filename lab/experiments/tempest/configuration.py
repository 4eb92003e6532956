# SPDX-License-Identifier: Apache-2.0

"""The configuration of Tempest, for the lab as it is.

Pure: from settings and what the lab has to text. What the lab, or nova's
Ironic driver, cannot do is turned off, so that Tempest skips its tests.
"""

import dataclasses

from lab import configuration
from lab import settings as places

#: What nova's Ironic driver, or a fake machine, cannot do.
FEATURES_OFF = (
    'block_migration_for_live_migration', 'change_password', 'cold_migration',
    # nova-compute calls mkisofs, which is not everywhere.
    'config_drive',
    'console_output', 'live_migration', 'metadata_service', 'pause',
    'personality', 'resize', 'shelve', 'snapshot', 'stable_rescue', 'suspend',
    'vnc_console')
#: Services that the lab has not.
ABSENT = ('cinder', 'horizon', 'swift')
#: Seconds for which a test waits for a server.
BUILD_TIMEOUT = 240


@dataclasses.dataclass(frozen=True)
class Cloud:
    """What of the lab Tempest has to be told.

    :ivar images: ids of two images; they may be equal
    :ivar flavors: ids of two flavors, likewise
    :ivar network: name of the network that all projects share
    :ivar extensions: aliases of what neutron has beside its core
    :ivar compute_version: newest microversion of the compute API
    :ivar computes: how many compute services there are
    """

    images: tuple
    flavors: tuple
    network: str
    extensions: tuple
    compute_version: str
    computes: int


def files(settings, cloud, site):
    """What Tempest and stestr read.

    :param settings: :class:`lab.settings.Settings`
    :param cloud: :class:`Cloud`
    :param site: directory in which the package tempest is
    :returns: dict of path relative to the configuration directory to text
    """
    return {'tempest/tempest.conf': configuration.ini(
                _tempest(settings, cloud)),
            'tempest/stestr.conf': configuration.ini(_stestr(site))}


def _stestr(site):
    return {'DEFAULT': {
        'test_path': site / 'tempest' / 'test_discover',
        'top_dir': site,
        # Tests of one class share servers, so one worker runs them all.
        'group_regex': r'([^\.]*\.)*',
    }}


def _tempest(settings, cloud):
    return {
        'DEFAULT': {
            'log_dir': settings.logs, 'log_file': 'tempest-requests.log'},
        'oslo_concurrency': {
            'lock_path': settings.data / 'tempest' / 'locks'},
        'identity': {'uri_v3': settings.url('keystone') + '/v3',
                     'auth_version': 'v3', 'region': places.REGION},
        'auth': {
            'admin_username': 'admin', 'admin_password': places.PASSWORD,
            'admin_project_name': 'admin', 'admin_domain_name': 'Default',
            # They come with a router, which this neutron has not.
            'create_isolated_networks': False,
        },
        'service_available': {
            **dict.fromkeys(ABSENT, False), 'ironic': True},
        'compute': {
            'image_ref': cloud.images[0], 'image_ref_alt': cloud.images[-1],
            'flavor_ref': cloud.flavors[0],
            'flavor_ref_alt': cloud.flavors[-1],
            'fixed_network_name': cloud.network,
            'min_compute_nodes': cloud.computes,
            'max_microversion': cloud.compute_version,
            'build_timeout': BUILD_TIMEOUT,
        },
        'compute-feature-enabled': dict.fromkeys(FEATURES_OFF, False),
        'network': {'shared_physical_network': True},
        'network-feature-enabled': {
            'api_extensions': ','.join(cloud.extensions),
            'floating_ips': False},
        # Nobody can log in to a fake machine.
        'validation': {'run_validation': False},
        'baremetal': {'driver': 'fake-hardware',
                      'enabled_hardware_types': 'fake-hardware',
                      'enabled_console_interfaces': 'no-console'},
    }
