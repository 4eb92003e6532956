# SPDX-License-Identifier: Apache-2.0

"""A directory in which devstack does its work on a cloud that is there.

devstack's own functions are used where a checkout is at hand, named by the
variable DEVSTACK_DIR; elsewhere those of ``contract/``, which do what devstack
documents. Either way ``stack.sh`` beside this file calls them as devstack's
own does, systemd is ``bin/systemctl``, and nothing outside of the directory is
written to.
"""

import configparser
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CONTRACT = HERE / 'contract'

#: Seconds after which a phase that hangs is given up.
DEADLINE = 1200

LOCAL_CONF = """\
[[local|localrc]]
DEST={top}/dest
DATA_DIR={top}/data
DEVSTACK_VENV={top}/data/venv
REQUIREMENTS_DIR={top}/dest/requirements
LOGDIR={top}/logs
STACK_USER={user}
USER_UNITS=True
HOST_IP=127.0.0.1
ADMIN_PASSWORD=lab
DATABASE_PASSWORD=lab
RABBIT_PASSWORD=lab
SERVICE_PASSWORD=lab
KEYSTONE_SERVICE_URI={keystone}
PLACEMENT_CONF={top}/placement.conf
CELLSV2_SETUP=singleconductor
ENABLED_SERVICES=key,n-api,n-cpu,n-cond,n-sch,placement-api,g-api
IRONIC_IS_HARDWARE=True
IRONIC_ENFORCE_SCOPE=True
VIRT_DRIVER=ironic
{plugins}
{more}
"""

PLUGINS = """\
enable_plugin ironic https://opendev.org/openstack/ironic
enable_plugin nova-ironic-multihost https://example.org/nova-ironic-multihost
"""


def checkout():
    """The checkout of devstack to use, None without one.

    :raises ValueError: DEVSTACK_DIR names something else
    """
    place = os.environ.get('DEVSTACK_DIR')
    if not place:
        return None
    place = pathlib.Path(place).resolve()
    if not (place / 'functions-common').exists():
        raise ValueError(f'DEVSTACK_DIR={place} is no checkout of devstack.')
    return place


class Sandbox:
    """One machine that is to be stacked.

    :ivar top: the directory.
    :ivar etc: nova's configuration directory in it.

    :param top: pathlib.Path of a directory that does not exist.
    :param devstack: pathlib.Path of devstack's functions.
    :param keystone: URL of the cloud's keystone.
    """

    def __init__(self, top, devstack=CONTRACT, keystone=''):
        self.top = top
        self.etc = top / 'etc' / 'nova'
        self._keystone = keystone
        for place in ('home', 'dest', 'data', 'logs', 'run'):
            (top / place).mkdir(parents=True)
        self._link(devstack)
        plugin = top / 'dest' / 'nova-ironic-multihost'
        plugin.symlink_to(ROOT)
        (top / 'dest' / 'ironic').symlink_to(HERE / 'ironic')
        self.configure()

    def configure(self, *more, plugins=PLUGINS):
        """Write local.conf.

        :param more: lines of its section localrc
        :param plugins: those that enable the plugins
        """
        (self.top / 'devstack' / 'local.conf').write_text(LOCAL_CONF.format(
            top=self.top, keystone=self._keystone, plugins=plugins,
            user=os.environ.get('USER') or 'root', more='\n'.join(more)))

    def run(self, *command, **environment):
        """Run a program of the machine.

        :returns: subprocess.CompletedProcess with its output, errors in it
        """
        kept = {name: value for name, value in os.environ.items()
                if name in ('LANG', 'LAB_DIR', 'LAB_BASE_PORT', 'LAB_VENV',
                            'PIP_INDEX_URL', 'PIP_CACHE_DIR')}
        return subprocess.run(
            [str(word) for word in command], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors='replace', cwd=self.top, timeout=DEADLINE,
            env=kept | {
                # Its python3 has nova, with or without tox.
                'PATH': f'{HERE / "bin"}:{pathlib.Path(sys.executable).parent}'
                        f':{os.environ["PATH"]}',
                'HOME': str(self.top / 'home'),
                'SANDBOX': str(self.top),
                'SANDBOX_REPOSITORY': str(ROOT)} | environment)

    def devstack(self, mode, *arguments, **environment):
        """stack, unstack or clean; see ``stack.sh``."""
        return self.run(
            self.top / 'devstack' / 'stack.sh', mode, *arguments,
            **environment)

    def units(self):
        """Names of the processes that systemd would run, sorted."""
        return sorted(path.name.removesuffix('.service.pid').partition('@')[2]
                      for path in (self.top / 'run').glob('*.pid'))

    def option(self, file, section, option):
        """Read what a configuration file of nova says, None for nothing."""
        parser = configparser.ConfigParser(
            interpolation=None, strict=False, default_section='')
        parser.read(self.etc / file)
        return parser.get(section, option, fallback=None)

    def _link(self, devstack):
        """Put devstack's files where its scripts look for each other."""
        top = self.top / 'devstack'
        (top / 'lib').mkdir(parents=True)
        for entry in devstack.iterdir():
            if entry.name not in ('lib', 'stack.sh', 'local.conf'):
                (top / entry.name).symlink_to(entry)
        for entry in (devstack / 'lib').iterdir():
            if entry.name != 'nova':
                (top / 'lib' / entry.name).symlink_to(entry)
        # In there /etc/nova is written without a way to say otherwise.
        (top / 'lib' / 'nova').write_text(
            f'source "{devstack / "lib" / "nova"}"\n'
            f'NOVA_CONF_DIR="{self.etc}"\n'
            'NOVA_CONF=$NOVA_CONF_DIR/nova.conf\n'
            'NOVA_CPU_CONF=$NOVA_CONF_DIR/nova-cpu.conf\n')
        # A copy: it finds the others beside itself.
        shutil.copy(HERE / 'stack.sh', top / 'stack.sh')


class Stackable(Sandbox):
    """A machine that can be stacked whole, as its cloud is a lab that is up.

    :param top: pathlib.Path of a directory that does not exist.
    :param lab: what ``lab.settings.load`` returned.
    :param devstack: pathlib.Path of devstack's functions.
    """

    def __init__(self, top, lab, devstack=CONTRACT):
        super().__init__(top, devstack, f'{lab.url("keystone")}/v3')
        self._lab = lab
        self._environment()
        self._nova()
        self._requirements()
        self._credentials()

    def run(self, *command, **environment):
        """As of any machine; PATH begins with its Python environment."""
        path = f'{self._venv / "bin"}:{HERE / "bin"}:{os.environ["PATH"]}'
        return super().run(*command, **{
            'PATH': path,
            'NOVA_CONF_OF_THE_CLOUD': str(self.top / 'nova.conf')}
            | environment)

    @property
    def _venv(self):
        return self.top / 'data' / 'venv'

    def _environment(self):
        """Make devstack's environment, in which nova is not installed yet.

        What nova depends on is that of the lab.
        """
        self._call(self._lab.program('python'), '-m', 'venv', self._venv)
        [packages] = self._venv.glob('lib/*/site-packages')
        [shared] = self._lab.venv.glob('lib/*/site-packages')
        (packages / 'lab.pth').write_text(f'{shared}\n')
        (self._venv / 'bin' / 'openstack').symlink_to(
            self._lab.program('openstack'))

    def _nova(self):
        """Fetch nova's source and write a nova.conf for this cloud."""
        [nova] = [line for path in self._lab.requirements
                  for line in path.read_text().splitlines()
                  if line.startswith('nova==')]
        self._call(self._venv / 'bin' / 'pip', 'download', '--no-deps',
                   '--no-binary', 'nova', '--dest', self.top, nova)
        [archive] = self.top.glob('nova-*.tar.gz')
        shutil.unpack_archive(archive, self.top, filter='data')
        archive.unlink()
        [source] = self.top.glob('nova-*')
        source.rename(self.top / 'dest' / 'nova')

        conf = configparser.ConfigParser(
            interpolation=None, default_section='')
        conf.read(self._lab.conf / 'nova' / 'nova.conf')
        # By devstack's plugin of the hypervisor.
        conf.remove_section('ironic')
        conf.remove_option('DEFAULT', 'host')
        state = str(self.top / 'data' / 'nova')
        conf['DEFAULT'].update({
            'state_path': state, 'periodic_fuzzy_delay': '0',
            'update_resources_interval': '5'})
        conf['oslo_concurrency'] = {'lock_path': state}
        with open(self.top / 'nova.conf', 'w') as file:
            conf.write(file)
        # Where nova-manage looks for it, besides /etc/nova.
        (self.top / 'home' / '.nova').symlink_to(self.etc)

    def _requirements(self):
        place = self.top / 'dest' / 'requirements'
        programs = place / '.venv' / 'bin'
        programs.mkdir(parents=True)
        shutil.copy(ROOT / 'constraints' / '2026.2.txt',
                    place / 'upper-constraints.txt')
        edit = programs / 'edit-constraints'
        edit.write_text('#!/bin/sh\nsed -i "/^$3===/d" "$1"\n')
        edit.chmod(0o755)

    def _credentials(self):
        place = self.top / 'home' / '.config' / 'openstack'
        place.mkdir(parents=True)
        account = {'auth_url': f'{self._lab.url("keystone")}/v3',
                   'username': 'admin', 'password': 'lab',
                   'user_domain_id': 'default'}
        scopes = {
            'devstack-admin': {'project_name': 'admin',
                               'project_domain_id': 'default'},
            'devstack-system-admin': {'system_scope': 'all'}}
        # JSON is YAML.
        (place / 'clouds.yaml').write_text(json.dumps({'clouds': {
            name: {'auth': account | scope, 'region_name': 'RegionOne'}
            for name, scope in scopes.items()}}))

    def _call(self, *command):
        done = super().run(*command)
        if done.returncode:
            raise RuntimeError(f'{command} failed: {done.stdout}')
