# SPDX-License-Identifier: Apache-2.0

"""What has to be done once: schemas, accounts, catalog, image, flavor."""

import os
import shlex
import shutil
import time

from lab import cloud
from lab import configuration
from lab import errors
from lab import services
from lab import settings as places


class Preparation:
    """Builds the data directory from nothing.

    :param settings: :class:`lab.settings.Settings`
    :param processes: :class:`lab.processes.Processes`
    :param progress: :class:`lab.progress.Progress`
    """

    def __init__(self, settings, processes, progress):
        self._settings = settings
        self._processes = processes
        self._progress = progress
        self._environment = services.environment(settings)

    def run(self):
        """Do it all; at the end no process of the lab runs.

        :raises LabError: when a step fails; the message names its log
        """
        settings = self._settings
        shutil.rmtree(settings.data, ignore_errors=True)
        for name in ('mariadb', 'keystone', 'keystone/fernet',
                     'keystone/receipts', 'keystone/credential', 'glance',
                     'glance/images', 'glance/staging', 'glance/tasks'):
            (settings.data / name).mkdir(parents=True, mode=0o700)
        with self._progress.step('prepare: create the databases'):
            self._create_databases()
        with self._progress.step('prepare: schemas of all services'):
            self._sync_schemas()
        with self._progress.step('prepare: accounts, catalog, image, flavor'):
            self._fill()
        with self._progress.step('prepare: stop all that'):
            # Time for a clean end: its files are about to be copied.
            self._processes.stop(self._processes.names(), patience=60)

    def _create_databases(self):
        settings = self._settings
        user = ['--user=root'] if os.geteuid() == 0 else []
        self._call({'prepare-mariadb': [[
            'mariadb-install-db', '--no-defaults', '--skip-test-db',
            f'--datadir={settings.data / "mariadb"}',
            '--auth-root-authentication-method=normal', *user]]})
        self._start([services.mariadb(settings, first=True),
                     services.memcached(settings)])

    def _sync_schemas(self):
        settings = self._settings

        def calls(program, config, *commands):
            return [[settings.program(program), '--config-file',
                     str(settings.conf / config), *command]
                    for command in commands]

        owner = ['--keystone-user', str(os.geteuid()),
                 '--keystone-group', str(os.getegid())]
        identity = settings.url('keystone') + '/v3'
        self._call({
            'prepare-nova': calls(
                'nova-manage', 'nova/nova.conf',
                ['api_db', 'sync'],
                ['cell_v2', 'map_cell0', '--database_connection',
                 settings.database_url('nova_cell0')],
                ['db', 'sync'],
                ['cell_v2', 'create_cell', '--name', 'cell1']),
            'prepare-neutron': calls(
                'neutron-db-manage', 'neutron/neutron.conf',
                ['upgrade', 'heads']),
            'prepare-keystone': calls(
                'keystone-manage', 'keystone/keystone.conf',
                ['db_sync'], ['fernet_setup', *owner],
                ['credential_setup', *owner],
                ['bootstrap',
                 '--bootstrap-password', places.PASSWORD,
                 '--bootstrap-region-id', places.REGION,
                 '--bootstrap-admin-url', identity,
                 '--bootstrap-internal-url', identity,
                 '--bootstrap-public-url', identity]),
            'prepare-glance': calls(
                'glance-manage', 'glance/glance-api.conf', ['db', 'sync']),
            'prepare-ironic': calls(
                'ironic-dbsync', 'ironic/ironic.conf', ['create_schema']),
            'prepare-placement': calls(
                'placement-manage', 'placement/placement.conf',
                ['db', 'sync']),
        })

    def _fill(self):
        settings = self._settings
        self._start([services.keystone(settings), services.glance(settings),
                     services.nova_api(settings)])
        admin = cloud.Cloud(settings)
        self._accounts(admin.sdk.identity)
        # A connection remembers the catalog as it was at its first use.
        admin = cloud.Cloud(settings)
        admin.sdk.image.create_image(
            cloud.IMAGE, data=b'\0' * 1024, disk_format='raw',
            container_format='bare', visibility='public', wait=True)
        flavor = admin.sdk.compute.create_flavor(
            name=cloud.FLAVOR, vcpus=1, ram=1024, disk=10)
        # The machine is the resource; its size is of no interest.
        admin.sdk.compute.create_flavor_extra_specs(flavor, {
            'resources:CUSTOM_BAREMETAL': '1', 'resources:VCPU': '0',
            'resources:MEMORY_MB': '0', 'resources:DISK_GB': '0'})

    def _accounts(self, identity):
        roles = {role.name: role for role in identity.roles()}
        project = identity.create_project(
            name='service', domain_id='default')
        for name, kind, path in configuration.CATALOG:
            if kind == 'identity':
                # The bootstrap has made it.
                continue
            user = identity.create_user(
                name=name, password=places.PASSWORD, domain_id='default',
                default_project_id=project.id)
            for role in ('admin', 'service'):
                identity.assign_project_role_to_user(
                    project, user, roles[role])
            service = identity.create_service(name=name, type=kind)
            identity.create_endpoint(
                service_id=service.id, interface='public',
                region_id=places.REGION,
                url=self._settings.url(name) + path)
            if name == 'nova':
                identity.assign_system_role_to_user(
                    user, roles['admin'], 'all')

    def _start(self, needed):
        for service in needed:
            services.start(self._settings, self._processes, service)
        services.wait(self._processes, needed)

    def _call(self, jobs):
        """Run programs to their end, the jobs at the same time.

        :param jobs: dict of name to commands that follow each other
        """
        running = {}
        for name, commands in jobs.items():
            script = '\n'.join(shlex.join(command) for command in commands)
            running[name] = self._processes.spawn(
                name, ['/bin/sh', '-e', '-c', script], self._environment)
        while running:
            for name, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                if process.returncode:
                    raise errors.LabError(
                        f'The step {name} failed. The end of '
                        f'{self._processes.log(name)}:\n'
                        + self._processes.tail(name))
            time.sleep(0.05)
