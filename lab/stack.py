# SPDX-License-Identifier: Apache-2.0

"""The whole stack: bring it up, take it down."""

import pathlib
import signal
import socket
import time

from lab import configuration
from lab import databases
from lab import errors
from lab import lock
from lab import processes
from lab import services
from lab import settings as places
from lab import snapshot
from lab import state
from lab import view

# Of a service that is told to end.
_STOP_PATIENCE = 60

# Seconds until a port must be free.
_PORT_PATIENCE = 10


class Stack:
    """One lab's processes as a whole.

    :param settings: :class:`lab.settings.Settings`
    :param progress: :class:`lab.progress.Progress`
    """

    def __init__(self, settings, progress):
        self._settings = settings
        self._progress = progress
        self._state = state.State(settings)
        self._processes = processes.Processes(settings.run, settings.logs)

    def up(self, computes, nodes, driver='ours', options=(), cold=False,
           reset=False):
        """Start everything; returns when all nodes can be scheduled to.

        :param computes: number of nova-computes
        :param nodes: number of Ironic nodes
        :param driver: 'ours' or 'stock'
        :param options: 'SECTION.OPTION=VALUE' strings for nova
        :param cold: do not start the computes
        :param reset: when the lab is up, with whatever shape, make it one
            that is as if it were new; services that need no other
            configuration run on
        :returns: False when it was up already with this shape
        :raises LabError: when the lab is up with another shape, or a
            service does not start
        """
        shape = {
            'computes': [f'compute-{n}' for n in range(1, computes + 1)],
            'nodes': nodes, 'driver': driver, 'options': list(options),
            'release': self._settings.release}
        configuration.overrides(options)
        with lock.hold(self._settings.run / 'lock', 'up'):
            if not reset and self._is_up(shape):
                return False
            again = reset and self._all_run()
            before = self.shape()
            try:
                if again:
                    self._state.write('starting', **shape)
                    again = self._reset(before, shape, cold)
                if not again:
                    self._clean()
                    self._ports_are_free()
                    self._state.write('starting', **shape)
                    self._start(shape, cold)
            except BaseException:
                with self._progress.step('stop what was started'):
                    self._clean()
                raise
            self._state.write('up', since=time.time(), **shape)
        return True

    def down(self):
        """Stop everything that belongs to this lab, whatever is left."""
        with lock.hold(self._settings.run / 'lock', 'down', interrupt=True):
            with self._progress.step('stop the lab'):
                self._clean()

    def shape(self):
        """What is up, None when nothing is.

        :returns: dict of computes (list of names), nodes, driver, options,
            release and since (epoch seconds)
        """
        shape = self._state.read()
        if shape.pop('phase') != 'up':
            return None
        del shape['base_port']
        return shape

    def start(self, name):
        """Start a service that was stopped; it answers afterwards.

        Like the other ones it raises LabError for a name that is not one
        of a service that is there once.
        """
        service = self._service(name)
        services.start(self._settings, self._processes, service)
        services.wait(self._processes, [service])

    def stop(self, name):
        """End a service the polite way."""
        self._processes.stop([self._service(name).name], _STOP_PATIENCE)

    def kill(self, name):
        """End a service with SIGKILL, with all its processes."""
        self._processes.kill([self._service(name).name])

    def pause(self, name):
        """Freeze a service: what it is asked stays without an answer."""
        self._processes.signal(self._service(name).name, signal.SIGSTOP)

    def resume(self, name):
        """Let a frozen service go on."""
        self._processes.signal(self._service(name).name, signal.SIGCONT)

    def demote(self, name):
        """Let the database be read only, as one that others write to now."""
        self._cut_off(name, read_only=True)

    def promote(self, name):
        """Let the database be written to again."""
        self._cut_off(name, read_only=False)

    def _cut_off(self, name, read_only):
        if self._service(name).name != 'mariadb':
            raise errors.LabError(f'{name} has no replica to fail over to.')
        databases.fail_over(self._settings, read_only)

    def answers(self, name):
        """Whether a service answers; one without a port always does."""
        return self._service(name).ready()

    def _service(self, name):
        if self.shape() is None:
            raise errors.LabError('The lab is not up; run "tools/lab up".')
        known = {service.name: service for service in self._services()}
        if name not in known:
            raise errors.LabError(
                f'There is no service {name}; there are '
                f'{", ".join(sorted(known))}. For a nova-compute there is '
                '"tools/lab compute".')
        return known[name]

    def _is_up(self, wanted):
        """Whether this very shape is up; leftovers do not count.

        :raises LabError: when something else is up
        """
        current = self.shape()
        alive = [service.name for service in self._services()
                 if self._processes.state(service.name) != 'stopped']
        if current is None or not alive:
            return False
        since = current.pop('since')
        dead = [service.name for service in self._services()
                if service.name not in alive]
        if dead:
            raise errors.LabError(
                f'The lab is up, but {", ".join(dead)} ended; run '
                '"tools/lab down" first.')
        if current != wanted:
            raise errors.LabError(
                'The lab is up already since {} with {} computes, {} nodes '
                'and driver {}; run "tools/lab down" first.'.format(
                    time.strftime('%H:%M:%S', time.localtime(since)),
                    len(current['computes']), current['nodes'],
                    ' '.join([current['driver'], *current['options']])))
        return True

    def _all_run(self):
        """Whether the lab is up with all that is there once."""
        return self.shape() is not None and all(
            self._processes.state(service.name) == 'running'
            for service in self._services())

    def _reset(self, before, shape, cold):
        """Make a lab that is up as if it were new, with another shape.

        :param before: what it was up with
        :returns: False when what it was used for has left too much behind
        """
        # Imported late: these need the venv, "down" must not.
        from keystoneauth1 import exceptions
        from lab import cloud
        from lab import computes as compute_services
        if not is_unused(view.read(self._settings), shape['nodes']):
            return False
        client = cloud.Cloud(self._settings)
        computes = compute_services.Computes(self._settings)
        with self._progress.step('forget the nova-computes'):
            try:
                computes.forget_all(before['computes'])
            except exceptions.ClientException as error:
                self._progress.note(f'They cannot be forgotten: {error}')
                return False
            if not is_new(view.read(self._settings), shape['nodes']):
                return False
        computes.configure(
            shape['computes'], shape['driver'], shape['options'])
        self._reconfigure(shape['options'])
        if not cold:
            computes.map_again(shape['computes'])
            self._start_computes(client, computes, shape)
        return True

    def _reconfigure(self, options):
        """Restart the services whose configuration the options change."""
        settings = self._settings
        files = configuration.shared(settings, options)
        changed = {pathlib.PurePath(name).parts[0]
                   for name in configuration.differing(settings.conf, files)}
        configuration.write(settings.conf, files)
        concerned = [service for service in self._services()
                     if service.name.partition('-')[0] in changed]
        # At rest, so nothing has to be saved.
        self._processes.kill([service.name for service in concerned])
        self._launch(concerned)

    def _services(self):
        """All processes but the computes."""
        return [services.mariadb(self._settings),
                services.memcached(self._settings),
                *services.bus(self._settings),
                *services.neighbours(self._settings),
                *services.nova(self._settings)]

    def _clean(self):
        # At once: the next start is a fresh one, so nothing has to be saved.
        self._processes.kill(self._processes.names())
        self._processes.sweep()
        self._state.write('down')

    def _ports_are_free(self):
        # A process that was killed is no more when its threads still are.
        deadline = time.monotonic() + _PORT_PATIENCE
        for name in places.PORT_NAMES:
            while not _is_free(self._settings.port(name)):
                if time.monotonic() > deadline:
                    raise errors.LabError(
                        f'Port {self._settings.port(name)}, which {name} '
                        'would use, is taken; choose other ones with '
                        '--base-port.')
                time.sleep(0.05)

    def _start(self, shape, cold):
        settings = self._settings
        self._configure(shape)
        self._data()
        self._launch([services.mariadb(settings),
                      services.memcached(settings)])
        self._launch([*services.bus(settings),
                      *services.neighbours(settings)])
        # Imported late: these need the venv, "down" must not.
        from lab import cloud
        from lab import computes as compute_services
        client = cloud.Cloud(settings)
        computes = compute_services.Computes(settings)
        computes.configure(
            shape['computes'], shape['driver'], shape['options'])
        nova = services.nova(settings)
        begin = time.monotonic()
        for service in nova:
            services.start(settings, self._processes, service)
        # That takes Ironic its time, in which nova starts.
        with self._progress.step(f'enrol {shape["nodes"]} nodes in Ironic'):
            client.enrol(shape['nodes'])
        self._wait(nova, begin)
        if not cold:
            self._start_computes(client, computes, shape, computes.map_to_cell)

    def _start_computes(self, client, computes, shape, map_=lambda: None):
        """Start them and wait until all nodes can be scheduled to.

        :param map_: maps those that report to the cell, if they are not yet
        """
        names = shape['computes']
        computes.spawn(names)
        with self._progress.step(f'{len(names)} nova-computes report'):
            computes.wait(names)
        with self._progress.step('map them to the cell'):
            map_()
        with self._progress.step(
                f'{shape["nodes"]} nodes can be scheduled to'):
            self._until_schedulable(client, shape['nodes'])

    def _configure(self, shape):
        settings = self._settings
        configuration.write(
            settings.conf, configuration.shared(settings, shape['options']))
        settings.openrc.write_text(configuration.openrc(settings))
        settings.clouds.write_text(configuration.clouds(settings))
        for log in settings.logs.glob('*.log'):
            log.unlink()

    def _data(self):
        prepared = snapshot.Snapshot(self._settings)
        with prepared.hold():
            if not prepared.valid():
                from lab import preparation
                preparation.Preparation(
                    self._settings, self._processes, self._progress).run()
                with self._progress.step('prepare: keep a copy of all that'):
                    prepared.take()
            with self._progress.step('put the prepared databases in place'):
                prepared.restore()
        for name in ('rabbitmq', 'neutron', 'ironic', 'nova'):
            (self._settings.data / name).mkdir(exist_ok=True)

    def _launch(self, group):
        begin = time.monotonic()
        for service in group:
            services.start(self._settings, self._processes, service)
        self._wait(group, begin)

    def _wait(self, group, begin):
        services.wait(
            self._processes, group, since=begin,
            done=lambda service, seconds: self._progress.report(
                f'start {service.name}', seconds))

    def _until_schedulable(self, client, nodes, patience=240):
        deadline = time.monotonic() + patience
        while (found := client.schedulable()) < nodes:
            if time.monotonic() > deadline:
                raise errors.LabError(
                    f'Only {found} of {nodes} nodes can be scheduled to '
                    f'after {patience} s; see "tools/lab logs compute-1".')
            time.sleep(0.3)


def is_unused(seen, nodes):
    """Whether no server is left and each node can be had.

    :param seen: an Observation
    :param nodes: how many there have to be
    """
    return not (
        seen.allocations or any(not i.deleted for i in seen.instances)
        or len(seen.nodes) != nodes
        or any(n.instance_uuid or n.maintenance
               or n.provision_state != 'available' for n in seen.nodes))


def is_new(seen, nodes):
    """Whether there are unused nodes and no trace of computes.

    :param seen: an Observation
    :param nodes: how many nodes there have to be
    """
    return is_unused(seen, nodes) and not (
        seen.services or seen.records or seen.providers)


def _is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((places.HOST, port))
        except OSError:
            return False
    return True
