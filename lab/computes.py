# SPDX-License-Identifier: Apache-2.0

"""The nova-compute services of a lab, one by one."""

import re
import shutil
import signal
import time

from lab import cloud
from lab import configuration
from lab import errors
from lab import processes
from lab import services
from lab import state
from lab import view

_NAME = re.compile(r'[A-Za-z][A-Za-z0-9.-]{0,62}')
# nova-compute goes on for up to manager_shutdown_timeout (160 s) while
# something is in the works.
_STOP_PATIENCE = 200
_START_PATIENCE = 240


class Computes:
    """Starts, stops and breaks nova-computes of a stack that is up.

    Each method returns when the action is done: a started compute is up
    in nova and mapped to the cell, a stopped one has no process.
    Every method raises LabError for a name that does not exist.

    :param settings: :class:`lab.settings.Settings`
    """

    def __init__(self, settings):
        self._settings = settings
        self._state = state.State(settings)
        self._processes = processes.Processes(settings.run, settings.logs)

    def names(self):
        """Names of all computes ever added, in their natural order."""
        return sorted(self._state.read().get('computes', ()), key=_natural)

    def process_state(self, name):
        """'running', 'stopped' or 'paused'."""
        return self._processes.state(self._known(name))

    def pid(self, name):
        """The pid of a compute, None for one that does not run."""
        return self._processes.pid(self._known(name))

    def log(self, name):
        """Path of the log file of a compute."""
        return self._processes.log(self._known(name))

    def start(self, name):
        """Start a stopped compute; a name that is new is added."""
        self._stack_is_up()
        if name not in self.names():
            self.add(name)
            return
        self._start([name])

    def add(self, name, driver=None):
        """Configure and start a new compute, then map it to the cell.

        :param driver: 'ours' or 'stock'; default that of the lab
        """
        shape = self._stack_is_up()
        if name in self.names():
            raise errors.LabError(
                f'There is a {name} already; "compute start {name}" starts '
                'it.')
        if not _NAME.fullmatch(name) or name in self._taken_names():
            raise errors.LabError(
                f'"{name}" cannot be the name of a compute; take one like '
                'compute-4.')
        del shape['base_port'], shape['phase']
        self.configure([name], driver or shape['driver'], shape['options'])
        more = shape | {'computes': [*shape['computes'], name]}
        self._state.write('up', **more)
        try:
            self._start([name])
            self.map_to_cell()
        except BaseException:
            # Half added it would run and never get a server.
            self._processes.kill([name])
            self._state.write('up', **shape)
            raise

    def switch(self, names, driver):
        """Restart computes with another driver, as an operator would.

        The lab counts as one of this driver from then on; the other
        computes stay what they are.

        :param names: of those, which are all away at the same time
        :param driver: 'ours' or 'stock'
        """
        shape = self._stack_is_up()
        self._processes.stop([self._running(name) for name in names],
                             _STOP_PATIENCE)
        self.configure(names, driver, shape['options'])
        del shape['base_port'], shape['phase']
        self._state.write('up', **shape | {'driver': driver})
        self._start(names)

    def restart(self, names, options=()):
        """Restart computes, all at once.

        :param names: of those, running or not
        :param options: 'SECTION.OPTION=VALUE' strings besides the lab's, for
            as long as they run
        """
        shape = self._stack_is_up()
        self._processes.stop(names, _STOP_PATIENCE)
        self.configure(names, shape['driver'], [*shape['options'], *options])
        self._start(names)

    def start_at(self, name, ahead):
        """Start a stopped compute with a clock that is wrong.

        The next start gives it the right time.

        :param ahead: seconds by which it is ahead, behind if negative
        """
        self._start_as(name, services.at, ahead)

    def start_watched(self, name, seconds):
        """Start a stopped compute with a watchdog, which starts it again.

        The next start gives it none.

        :param seconds: without a sign of life after which it is killed
        """
        self._start_as(name, services.watched, seconds)

    def _start_as(self, name, changed, *how):
        self._stack_is_up()
        before = self._heartbeats()
        services.start(self._settings, self._processes, changed(
            self._settings, services.compute(
                self._settings, self._known(name)), *how))
        self.wait([name], before)

    def forget(self, name):
        """Delete the service of a stopped compute; the lab forgets it.

        Its log stays under another name, so that its name is free.

        :raises LabError: when it runs or owns nodes, whose records nova
            would delete with its service
        """
        shape = self._stack_is_up()
        if self.process_state(name) != 'stopped':
            raise errors.LabError(f'{name} runs; stop it first.')
        owned = view.read(self._settings).owned_by(name)
        if owned:
            raise errors.LabError(
                f'{name} still owns {len(owned)} nodes, whose records and '
                'resource providers would be deleted; let them move first.')
        cloud.Cloud(self._settings).forget_service(name)
        del shape['base_port'], shape['phase']
        self._state.write('up', **shape | {
            'computes': [n for n in shape['computes'] if n != name]})
        log = self._processes.log(name)
        log.rename(log.with_name(f'{name}.forgotten.log'))

    def forget_all(self, names):
        """Kill computes and delete all that nova and placement have of any.

        Their logs stay under another name.

        :param names: of those that may run
        """
        self._processes.kill(names)
        nova = cloud.Cloud(self._settings)
        for host in nova.compute_services():
            nova.forget_service(host)
        nova.forget_providers()
        for name in names:
            shutil.rmtree(self._settings.data / name, ignore_errors=True)
            log = self._processes.log(name)
            if log.exists():
                log.rename(log.with_name(f'{name}.forgotten.log'))

    def stop(self, name):
        """End the process the polite way (SIGTERM)."""
        self._processes.stop([self._running(name)], _STOP_PATIENCE)

    def kill(self, name):
        """End the process with SIGKILL."""
        self._processes.kill([self._running(name)])

    def pause(self, name):
        """Freeze the process (SIGSTOP)."""
        self._processes.signal(self._running(name), signal.SIGSTOP)

    def resume(self, name):
        """Let a frozen process go on (SIGCONT)."""
        self._processes.signal(self._running(name), signal.SIGCONT)

    def disable(self, name):
        """Disable the service in nova."""
        self._tell_nova(name, 'disable')

    def enable(self, name):
        """Enable the service in nova."""
        self._tell_nova(name, 'enable')

    def fence(self, name):
        """Force the service down in nova."""
        self._tell_nova(name, 'fence')

    def unfence(self, name):
        """Take the forced-down mark away."""
        self._tell_nova(name, 'unfence')

    def configure(self, names, driver, options):
        """Write the configuration files of computes.

        :param driver: 'ours' or 'stock'
        :param options: 'SECTION.OPTION=VALUE' strings
        """
        for name in names:
            configuration.write(
                self._settings.conf,
                configuration.compute(self._settings, name, driver, options))
            (self._settings.data / name).mkdir(parents=True, exist_ok=True)

    def spawn(self, names):
        """Start the processes, without waiting for anything."""
        for name in names:
            services.start(self._settings, self._processes,
                           services.compute(self._settings, name))

    def wait(self, names, heartbeats=None):
        """Return when nova has heard of all of them.

        :param heartbeats: dict of name to the last sign of life that is
            not one of this process; a killed one looks alive for a while
        :raises LabError: when one ends or is silent for too long
        """
        heartbeats = heartbeats or {}
        nova = cloud.Cloud(self._settings)
        programs = [services.compute(self._settings, name) for name in names]
        deadline = time.monotonic() + _START_PATIENCE
        while True:
            services.wait(self._processes, programs)
            heard = nova.compute_services()
            silent = [name for name in names if not _alive(
                heard.get(name), heartbeats.get(name))]
            if not silent:
                return
            if time.monotonic() > deadline:
                raise errors.LabError(
                    f'nova has not heard of {", ".join(silent)} after '
                    f'{_START_PATIENCE} s; see "tools/lab logs {silent[0]}".')
            time.sleep(0.3)

    def map_to_cell(self):
        """Let nova find new computes, so that it schedules to them.

        By service: a compute that takes over its nodes from others has no
        record of its own that nova would find otherwise.
        """
        argv = [self._settings.program('nova-manage'), '--config-file',
                str(self._settings.conf / 'nova' / 'nova.conf'), 'cell_v2',
                'discover_hosts', '--by-service']
        discovery = self._processes.spawn(
            'discover-hosts', argv, services.environment(self._settings))
        failed = discovery.wait()
        self._processes.kill(['discover-hosts'])
        if failed:
            raise errors.LabError(
                '"nova-manage cell_v2 discover_hosts" failed:\n'
                + self._processes.tail('discover-hosts'))

    def map_again(self, names):
        """Write into nova's database what :meth:`map_to_cell` has written.

        For a lab that is made as if it were new: nova-manage takes seconds of
        a processor to come up.

        :param names: of computes that need not run yet
        """
        import pymysql

        with pymysql.connect(
                **self._settings.database('nova_api')) as database:
            with database.cursor() as cursor:
                cursor.executemany(
                    'INSERT INTO host_mappings (created_at, cell_id, host)'
                    ' SELECT UTC_TIMESTAMP(), id, %s FROM cell_mappings'
                    " WHERE name = 'cell1'", [[name] for name in names])
            database.commit()

    def _start(self, names):
        for name in names:
            if self._processes.state(name) == 'paused':
                raise errors.LabError(
                    f'{name} is frozen; "compute resume {name}" lets it go '
                    'on.')
        before = self._heartbeats()
        self.spawn(names)
        self.wait(names, before)

    def _heartbeats(self):
        return {name: service['updated_at'] for name, service in
                cloud.Cloud(self._settings).compute_services().items()}

    def _tell_nova(self, name, action):
        self._stack_is_up()
        cloud.Cloud(self._settings).service_action(self._known(name), action)

    def _known(self, name):
        names = self.names()
        if name not in names:
            self._stack_is_up()
            raise errors.LabError(
                f'There is no compute {name}; there are '
                f'{", ".join(names) or "none"}.')
        return name

    def _running(self, name):
        if self.process_state(name) == 'stopped':
            raise errors.LabError(f'{name} does not run.')
        return name

    def _stack_is_up(self):
        shape = self._state.read()
        if shape['phase'] != 'up':
            raise errors.LabError('The lab is not up; run "tools/lab up".')
        return shape

    def _taken_names(self):
        return {path.stem for path in self._settings.logs.glob('*.log')}


def _alive(service, old_heartbeat):
    return (service is not None
            and service['updated_at'] not in (None, old_heartbeat)
            and (service['state'] == 'up' or service['forced_down']))


def _natural(name):
    return [int(part) if part.isdigit() else part
            for part in re.split(r'(\d+)', name)]
