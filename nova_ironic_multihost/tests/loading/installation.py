# SPDX-License-Identifier: Apache-2.0

"""Our package, installed beside the nova of this environment, or without."""

from importlib import metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile

import fixtures
from packaging import requirements
from packaging import utils

from nova_ironic_multihost.tests.loading import placement
from nova_ironic_multihost.tests.loading import until_loaded

ROOT = pathlib.Path(__file__).resolve().parents[3]

#: What a checkout may hold and a package never does.
NOT_OF_THE_SOURCE = shutil.ignore_patterns(
    '.tox', '.tools', '.lab*', '.stestr', '.hypothesis', '__pycache__',
    '*.egg-info', 'build', 'dist', 'cover')

#: Seconds after which a process that hangs is given up.
DEADLINE = 600

CONFIGURATION = """
[DEFAULT]
compute_driver = {compute_driver}
host = loading
state_path = {directory}
transport_url = {transport_url}

[oslo_concurrency]
lock_path = {directory}

[placement]
auth_type = none
endpoint_override = {placement}

[ironic]
auth_type = none
endpoint_override = http://127.0.0.1:1
"""


def tracked():
    """Names of the files that git knows, relative to the checkout."""
    listed = subprocess.run(
        ['git', 'ls-files', '-z'], cwd=ROOT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=True, timeout=DEADLINE)
    return {name for name in listed.stdout.split('\0')
            if name and (ROOT / name).exists()}


def write_archive(target):
    """Write to a directory what git archive would put into a file.

    Unlike git archive it takes files as they are now, committed or not.
    """
    for name in tracked():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


class NovaCompute:
    """What came of one run of nova-compute.

    :ivar status: exit status.
    :ivar log: what it printed and logged.
    :ivar loaded: what until_loaded.describe tells, as a dict; None if
        nova-compute did not get so far.
    """

    def __init__(self, process):
        self.status = process.returncode
        self.log = process.stdout + process.stderr
        self.loaded = None
        for line in process.stdout.splitlines():
            if line.startswith(until_loaded.MARK):
                self.loaded = json.loads(line.removeprefix(until_loaded.MARK))


class Host(fixtures.Fixture):
    """A Python that has nova and our package.

    :ivar python: path of the interpreter.
    :ivar scripts: directory of the scripts of our package.
    :ivar nova_compute: path of nova's script.
    """

    def _setUp(self):
        self._directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self._placement = self.useFixture(placement.VersionDocument())

    def _run(self, command, cwd=None, **environment):
        return subprocess.run(
            command, cwd=cwd or self._directory,
            env={**self._environment(), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=DEADLINE)

    def _environment(self):
        return {name: value for name, value in os.environ.items()
                if name not in ('PYTHONPATH',
                                'OS_NOVA_DISABLE_EVENTLET_PATCHING')}

    def run_python(self, code):
        """Run a piece of Python; return the subprocess.CompletedProcess."""
        return self._run([str(self.python), '-P', '-c', code])

    def run_status(self):
        """Run ``nova-ironic-multihost-status upgrade check``.

        :returns: {name of the check: (result, details)}
        """
        configuration = self._configuration(
            'ironic_multihost.IronicMultiHostDriver')
        process = self._run(
            [str(self.scripts / 'nova-ironic-multihost-status'),
             '--config-file', str(configuration), 'upgrade', 'check',
             '--json'])
        return {one['check']: (one['result'], one['details'])
                for one in json.loads(process.stdout)['checks']}

    def _configuration(self, compute_driver, transport_url='fake:/'):
        path = self._directory / 'nova.conf'
        path.write_text(CONFIGURATION.format(
            compute_driver=compute_driver, directory=self._directory,
            placement=self._placement.url, transport_url=transport_url))
        return path

    def start(self, script, transport_url):
        """Start a script of our package as nova-compute.

        :param script: its name.
        :returns: subprocess.Popen; to be killed by whoever asks for it.
        """
        configuration = self._configuration(
            'ironic_multihost.IronicMultiHostDriver', transport_url)
        with open(self._directory / 'log', 'w') as log:
            return subprocess.Popen(
                [str(self.scripts / script),
                 '--config-file', str(configuration)],
                cwd=self._directory, env=self._environment(),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def log(self):
        """What the script that was started last has printed so far."""
        return (self._directory / 'log').read_text()

    def run_nova_compute(
            self, compute_driver='ironic_multihost.IronicMultiHostDriver',
            module=None, **environment):
        """Run nova-compute up to the load of the driver.

        :param compute_driver: the option of this name.
        :param module: what to run with ``python -m`` in the place of the
            console script nova-compute.
        :param environment: environment variables.
        :returns: :class:`NovaCompute`.
        """
        configuration = self._configuration(compute_driver)
        program = (['module', module] if module else
                   ['script', str(self.nova_compute)])
        return NovaCompute(self._run(
            [str(self.python), '-P', until_loaded.__file__, *program,
             '--config-file', str(configuration)], **environment))


class Installation(Host):
    """A virtual environment with our package and this environment's nova.

    The package is installed from a copy of the source; an ``archived`` one has
    no trace of git, as those of distributions and of images. Everything else
    is seen in the site-packages of the environment that runs the test; whether
    and how our package is installed there does not matter, because what the
    new environment has itself comes first.

    :ivar package: path of the package's modules.
    :ivar source: path of the copy.
    """

    def __init__(self, editable, archived=False):
        super().__init__()
        self._editable = editable
        self._archived = archived

    def _setUp(self):
        super()._setUp()
        self.source = self._directory / 'source'
        if self._archived:
            write_archive(self.source)
        else:
            shutil.copytree(
                ROOT, self.source, symlinks=True, ignore=NOT_OF_THE_SOURCE)
        self.nova_compute = pathlib.Path(
            sysconfig.get_path('scripts'), 'nova-compute')
        site_packages = self._make_venv()
        (site_packages / 'outer.pth').write_text(
            sysconfig.get_path('purelib') + '\n')
        # Forced, because the outer environment may have the same version.
        self._python(
            '-m', 'pip', '--python', str(self.python), 'install',
            '--no-deps', '--no-build-isolation', '--force-reinstall',
            *(['--editable'] if self._editable else []), str(self.source))
        self.package = ((self.source if self._editable else site_packages)
                        / 'nova_ironic_multihost')

    def _make_venv(self):
        """Make an empty environment; return its site-packages."""
        venv = self._directory / 'venv'
        self._python('-m', 'venv', '--without-pip', str(venv))
        self.scripts = venv / 'bin'
        self.python = self.scripts / 'python'
        return next(venv.glob('lib/python*/site-packages'))

    def installed_files(self):
        """Names of the files of the package, as in the source."""
        return {str(path.relative_to(self.package.parent))
                for path in self.package.rglob('*')
                if path.is_file() and '__pycache__' not in path.parts}

    def shared_files(self):
        """Names of the files below share/ of the new environment."""
        prefix = self.python.parent.parent
        return {str(path.relative_to(prefix))
                for path in (prefix / 'share').rglob('*') if path.is_file()}

    def sdist_files(self):
        """Build an sdist of the source; return the names of its files."""
        self._python(
            '-c', 'from pbr import build; build.build_sdist("..")',
            cwd=self.source)
        [sdist] = self._directory.glob('*.tar.gz')
        with tarfile.open(sdist) as archive:
            return {name.partition('/')[2] for name in archive.getnames()}

    def _python(self, *arguments, cwd=None):
        # Without git pbr cannot know the version.
        version = {'PBR_VERSION': '0.1'} if self._archived else {}
        process = self._run([sys.executable, *arguments], cwd, **version)
        if process.returncode:
            raise RuntimeError(process.stdout + process.stderr)


class Workstation(Installation):
    """A virtual environment with the wheel of our package, without nova.

    What the wheel requires is linked from the environment that runs the test,
    which has the versions of the constraints; no index is asked.

    :ivar packages: distributions that the wheel requires, by name.
    """

    def __init__(self):
        super().__init__(editable=False, archived=True)

    def _setUp(self):
        Host._setUp(self)
        self.source = self._directory / 'source'
        write_archive(self.source)
        self._python(
            '-m', 'pip', 'wheel', '--no-deps', '--no-build-isolation',
            '--wheel-dir', str(self._directory), str(self.source))
        [self.wheel] = self._directory.glob('*.whl')
        site_packages = self._make_venv()
        self._python(
            '-m', 'pip', '--python', str(self.python), 'install', '--no-deps',
            '--no-index', str(self.wheel))
        self.package = site_packages / 'nova_ironic_multihost'
        [ours] = metadata.distributions(path=[str(site_packages)])
        self.packages = required(ours)
        for distribution in self.packages.values():
            link(distribution, site_packages)

    def run(self, script, *arguments, **environment):
        """Run a script of our package; return subprocess.CompletedProcess."""
        return self._run([str(self.scripts / script), *arguments],
                         PATH='/usr/bin:/bin', **environment)

    def _environment(self):
        # The links would fill the cache of the environment that runs the test.
        return {name: value for name, value in super()._environment().items()
                if not name.startswith('OS_')} | {
            'PYTHONPYCACHEPREFIX': str(self._directory / 'pycache')}


def required(distribution):
    """Return what pip installs for a distribution: {name: distribution}."""
    found = {}
    seen = set()
    left = [(distribution, '')]
    while left:
        one, extra = left.pop()
        for wanted in map(requirements.Requirement, one.requires or ()):
            if wanted.marker and not wanted.marker.evaluate({'extra': extra}):
                continue
            name = utils.canonicalize_name(wanted.name)
            found[name] = found.get(name) or metadata.distribution(name)
            new = {(name, asked) for asked in ('', *wanted.extras)} - seen
            seen |= new
            left += [(found[name], asked) for _, asked in new]
    return found


def link(distribution, site_packages):
    """Link the files of a distribution, but its scripts, into a directory."""
    for file in distribution.files:
        if '..' in file.parts or '__pycache__' in file.parts:
            continue
        (site_packages / file).parent.mkdir(parents=True, exist_ok=True)
        (site_packages / file).symlink_to(distribution.locate_file(file))
