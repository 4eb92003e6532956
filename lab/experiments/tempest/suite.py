# SPDX-License-Identifier: Apache-2.0

"""Tempest: install it, tell it about the lab, run tests."""

import contextlib
import shutil
import subprocess
import time

from lab import configuration
from lab import errors
from lab.experiments.tempest import configuration as configurations
from lab.experiments.tempest import results
from lab import lock
from lab import processes
from lab import services
from lab import settings as places
from lab import venvs

#: Objects that are made once for all tests.
NAME = 'lab-tempest'
#: Nobody ever uses an address of it.
RANGE = '10.99.0.0/16'
# Seconds after which a run hangs.
PATIENCE = 5400.0
# Seconds between two looks at what stestr prints, and between two lines.
LOOK = 2.0
TELL = 60.0


def venv(settings):
    """Path of the Python environment; labs that share theirs share it."""
    return settings.venv.with_name('tempest')


def install(settings, progress):
    """Make the Python environment, unless it is there.

    :param settings: :class:`lab.settings.Settings`
    :param progress: :class:`lab.progress.Progress`
    """
    environment = venvs.Venv(
        venv(settings), (_here(settings) / 'requirements.txt',),
        settings.of(places.DEFAULT_RELEASE).constraints,
        settings.logs / 'install.log')
    with lock.hold(venv(settings).with_suffix('.lock'), 'install', wait=True):
        if not environment.done():
            environment.build(progress, 'Tempest')


class Suite:
    """Tests of Tempest against a lab that is up.

    :param bench: :class:`lab.bench.bench.Bench`
    :param undo: an ExitStack that deletes what is made for them
    :param workers: how many processes run tests
    """

    def __init__(self, bench, undo, workers):
        self._bench = bench
        self._undo = undo
        self._workers = workers
        self._settings = bench.settings
        self._processes = processes.Processes(
            bench.settings.run, bench.settings.logs)

    def prepare(self):
        """Make the objects that tests need, and write tempest.conf."""
        bench = self._bench
        bench.say('make a network, an image and a flavor for Tempest')
        [site] = venv(self._settings).glob('lib/python*/site-packages')
        cloud = configurations.Cloud(
            self._images(), self._flavors(), self._network(),
            tuple(e.alias for e in bench.cloud.sdk.network.extensions()),
            bench.cloud.nova('GET', '/', microversion=None)
            ['version']['version'],
            len(bench.computes.names()))
        configuration.write(
            self._settings.conf,
            configurations.files(self._settings, cloud, site))

    def run(self, label, tests, meanwhile=lambda done: None):
        """Run tests; return their results, see :mod:`results`.

        :param label: what the run is called
        :param tests: regular expression for names of tests
        :param meanwhile: called now and then with how many are over
        :raises LabError: when no test ran, or they do not end
        """
        name = f'tempest-{label}'
        repository = self._settings.data / 'tempest' / label
        # Of a run before, whose seconds would give workers other tests.
        shutil.rmtree(repository, ignore_errors=True)
        repository.mkdir(parents=True)
        log = self._processes.log(name)
        log.unlink(missing_ok=True)
        self._bench.note(f'{label}: tests begin')
        process = self._processes.spawn(
            name, self._stestr(repository, 'run', '--concurrency',
                               str(self._workers), tests),
            self._environment())
        try:
            self._follow(label, process, log, meanwhile)
        finally:
            self._processes.kill([name])
        self._bench.note(f'{label}: tests end')
        run = self._results(repository)
        if not run:
            raise errors.LabError(
                f'No test of {tests} ran; see "tools/lab logs {name}".')
        return run

    def clear(self):
        """Delete the servers that tests have left; returns how many."""
        left = [server['id'] for server in self._bench.cloud.servers()]
        with contextlib.suppress(errors.LabError):
            # What does not go is not consistent, which is seen at the end.
            self._bench.cloud.delete(left)
        return len(left)

    def _follow(self, label, process, log, meanwhile):
        """Tell how far it is, until it is over."""
        deadline = time.monotonic() + PATIENCE
        told = time.monotonic()
        while process.poll() is None:
            self._bench.recorder.watch(LOOK)
            with open(log, errors='replace') as lines:
                done, failed = results.progress(lines)
            meanwhile(done)
            if time.monotonic() > told + TELL:
                told = time.monotonic()
                self._bench.say(f'{label}: {done} over, {failed} failed')
            if time.monotonic() > deadline:
                raise errors.LabError(
                    f'The tests do not end; see "tools/lab logs {log.stem}".')

    def _results(self, repository):
        """What stestr has kept of the last run."""
        last = repository / 'last'
        with open(last, 'wb') as stream:
            subprocess.run(
                self._stestr(repository, 'last', '--subunit'), check=False,
                stdout=stream, env=self._environment())
        with open(last, 'rb') as stream:
            lines = subprocess.run(
                [self._program('python'),
                 str(_here(self._settings) / 'stream.py')], check=True,
                stdin=stream, stdout=subprocess.PIPE, text=True,
                env=self._environment()).stdout
        return results.parse(lines.splitlines())

    def _stestr(self, repository, *arguments):
        conf = self._settings.conf / 'tempest' / 'stestr.conf'
        return [self._program('stestr'), '--config', str(conf),
                '--repo-url', str(repository), *arguments]

    def _program(self, name):
        return str(venv(self._settings) / 'bin' / name)

    def _environment(self):
        path = f'{venv(self._settings) / "bin"}:/usr/bin:/bin'
        return services.environment(self._settings) | {
            'PATH': path,
            'TEMPEST_CONFIG_DIR': str(self._settings.conf / 'tempest')}

    def _images(self):
        from lab import cloud as clouds

        images = self._bench.cloud.sdk.image
        other = images.create_image(
            NAME, data=b'\0' * 1024, disk_format='raw',
            container_format='bare', visibility='public', wait=True)
        self._undo.callback(images.delete_image, other.id)
        return images.find_image(clouds.IMAGE).id, other.id

    def _flavors(self):
        from lab import cloud as clouds

        compute = self._bench.cloud.sdk.compute
        first = compute.find_flavor(clouds.FLAVOR, get_extra_specs=True)
        other = compute.create_flavor(
            name=NAME, vcpus=first.vcpus, ram=first.ram, disk=first.disk)
        self._undo.callback(compute.delete_flavor, other.id)
        compute.create_flavor_extra_specs(other, first.extra_specs)
        return first.id, other.id

    def _network(self):
        network = self._bench.cloud.sdk.network
        made = network.create_network(name=NAME, is_shared=True)
        self._undo.callback(network.delete_network, made.id)
        network.create_subnet(
            network_id=made.id, ip_version=4, cidr=RANGE,
            is_dhcp_enabled=False)
        return NAME


def _here(settings):
    return settings.repository / 'lab' / 'experiments' / 'tempest'
