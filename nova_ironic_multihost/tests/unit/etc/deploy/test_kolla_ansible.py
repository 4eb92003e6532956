# SPDX-License-Identifier: Apache-2.0

"""What is said to kolla and kolla-ansible, by their own code and data."""

import collections
import functools
import pathlib
import re
import shutil
import subprocess
import sys
import types
from unittest import mock

import fixtures
import jinja2
from oslotest import base
import yaml

from nova_ironic_multihost.tests import deployers
from nova_ironic_multihost.tests.unit.etc.deploy import fragments

#: Of YAML, the fast one where there is one.
LOADER = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)

#: kolla-build without Docker and git, which it does not use for templates.
KOLLA_BUILD = """
import sys
from unittest import mock

for name in 'docker', 'git', 'podman':
    sys.modules[name] = mock.MagicMock(__version__='7.0.0')
sys.modules['docker'].errors.DockerException = OSError
sys.modules['docker'].DockerClient.side_effect = OSError
from kolla.cmd import build
from kolla.image import kolla_worker

listed = kolla_worker.KollaWorker.build_image_list


def tell(self):
    listed(self)
    for image in self.images:
        for plugin in image.plugins:
            print('plugin:', image.name, plugin['type'], plugin['source'],
                  plugin.get('reference'))


kolla_worker.KollaWorker.build_image_list = tell
sys.exit(build.main())
"""


class AnyFilter(dict):
    """Filters of Jinja; those of Ansible do nothing."""

    def __missing__(self, name):
        return lambda value, *args: value

    def get(self, name, default=None):
        return self[name]


@functools.cache
def variables(ansible):
    """{variable: default} of kolla-ansible and its roles of nova."""
    # all.yml, or all/*.yml.
    places = [path for path in (*ansible.glob('group_vars/all*'),
                                *ansible.glob('group_vars/all/*.yml'))
              if path.is_file()]
    known = {}
    for path in *places, *ansible.glob('roles/nova*/defaults/main.yml'):
        known |= yaml.load(path.read_text(), LOADER) or {}
    return known


class ImageTestCase(base.BaseTestCase):

    def test_the_package_is_in_the_image(self):
        for version, kolla in deployers.packages(self, 'kolla').items():
            with self.subTest(version):
                printed, dockerfile = self.build(kolla)
                self.assertIn(
                    f'plugin: nova-base git {fragments.REPOSITORY} main\n',
                    printed)
                self.assertIn(
                    'python3 -m pip --no-cache-dir install --upgrade '
                    '-c /requirements/upper-constraints.txt /plugins/*',
                    dockerfile)

    def build(self, kolla):
        """Have kolla-build list its plugins and write its Dockerfiles.

        :returns: (what it printed, the Dockerfile of nova-base)
        """
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        templates = next(path for path in (kolla / 'kolla/docker',
                                           kolla / 'share/kolla/docker')
                         if path.is_dir())
        # kolla-build writes all Dockerfiles that it finds, so it finds few.
        shutil.copytree(
            kolla, top, dirs_exist_ok=True,
            ignore=shutil.ignore_patterns('docker', 'share', 'tests'))
        docker = top / '.local/share/kolla/docker'
        docker.mkdir(parents=True)
        for name in 'macros.j2', 'base', 'openstack-base', 'nova':
            (docker / name).symlink_to(templates / name)
        done = subprocess.run(
            [sys.executable, '-c', KOLLA_BUILD, '--template-only',
             '--base', 'debian', '--work-dir', str(top / 'work'),
             '--config-file',
             str(fragments.DEPLOY / 'kolla-ansible/kolla-build.conf'),
             '^nova-compute-ironic$'],
            env={'PYTHONPATH': str(top), 'PYTHONDONTWRITEBYTECODE': '1',
                 'HOME': str(top), 'PATH': '/usr/bin:/bin'},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=150)
        self.assertEqual(0, done.returncode, done.stdout)
        return done.stdout, (
            top / 'work/docker/nova/nova-base/Dockerfile').read_text()


class AnsibleTestCase(base.BaseTestCase):

    def releases(self):
        """(version, directory of the roles) of kolla-ansible's releases."""
        found = deployers.packages(self, 'kolla-ansible')
        for version, directory in sorted(found.items()):
            with self.subTest(version):
                yield version, directory / 'share/kolla-ansible/ansible'

    def merged(self, ansible, *names):
        """The nova.conf of a nova-compute-ironic, by kolla-ansible's code.

        :param names: of files of etc/deploy that are merged into it.
        """
        environment = jinja2.Environment(
            undefined=jinja2.ChainableUndefined, lstrip_blocks=True,
            trim_blocks=True)
        environment.filters = AnyFilter(environment.filters)
        text = (ansible / 'roles/nova-cell/templates/nova.conf.j2').read_text()
        rendered = environment.from_string(text).render(
            service_name='nova-compute-ironic',
            ansible_facts={'hostname': 'control1'},
            groups=collections.defaultdict(list))
        parser = self.parser(ansible)
        for source in (rendered, *(
                (fragments.DEPLOY / name).read_text() for name in names)):
            parser.parse(source.splitlines(keepends=True))
        return {section: {option: ','.join(value for part in values
                                           for value in part)
                          for option, values in options.items()}
                for section, options in parser._sections.items()}

    def parser(self, ansible):
        """What merge_configs merges with; it needs Ansible for the rest."""
        plugin = types.ModuleType('merge_configs')
        source = (ansible / 'action_plugins/merge_configs.py').read_text()
        stubs = {name: mock.MagicMock() for name in (
            'ansible', 'ansible.plugins', 'ansible.plugins.action',
            'ansible.template')}
        stubs['ansible'].plugins.action.ActionBase = object
        stubs['ansible.plugins'].action.ActionBase = object
        with mock.patch.dict(sys.modules, stubs):
            exec(compile(source, 'merge_configs', 'exec'),
                 plugin.__dict__)
        return plugin.OverrideConfigParser()

    def test_the_variables_exist(self):
        told = fragments.read('kolla-ansible/globals.yml')
        for _, ansible in self.releases():
            self.assertEqual(set(), told.keys() - variables(ansible))

    def test_the_image_is_the_one_that_is_run(self):
        for _, ansible in self.releases():
            services = variables(ansible)['nova_cell_services']
            self.assertEqual('{{ nova_compute_ironic_image_full }}',
                             services['nova-compute-ironic']['image'])
            self.assertEqual(
                '{{ nova_compute_ironic_image }}:'
                '{{ nova_compute_ironic_tag }}',
                variables(ansible)['nova_compute_ironic_image_full'])

    def test_our_driver_is_in_its_nova_conf(self):
        for _, ansible in self.releases():
            stock = self.merged(ansible)
            ours = self.merged(
                ansible, 'kolla-ansible/nova-compute-ironic.conf')
            self.assertEqual('ironic.IronicDriver',
                             stock['DEFAULT']['compute_driver'])
            self.assertEqual(fragments.OURS,
                             ours['DEFAULT']['compute_driver'])
            self.assertEqual('120', ours['ironic']['timeout'])
            # Everything else stays.
            self.assertEqual(set(), stock['DEFAULT'].keys()
                             - ours['DEFAULT'].keys())
            self.assertIn('auth_url', ours['ironic'])

    def test_it_is_named_as_kolla_ansible_waits_for_it(self):
        for _, ansible in self.releases():
            self.assertEqual('control1-ironic',
                             self.merged(ansible)['DEFAULT']['host'])

    def test_the_files_are_where_it_looks(self):
        for file, name, role, service in (
                ('nova-compute-ironic.conf',) * 2 + ('nova-cell', 'nova'),
                *((f'nova-scheduler-{kind}.conf', 'nova-scheduler.conf',
                   'nova', 'nova') for kind in fragments.SETS),
                *((f'placement-{kind}.conf', 'placement.conf', 'placement',
                   '') for kind in fragments.SETS)):
            first = (fragments.DEPLOY / 'kolla-ansible' / file
                     ).read_text().splitlines()[0]
            self.assertEqual(
                '/'.join(filter(None, ('# /etc/kolla/config', service, name))),
                first)
            for _, ansible in self.releases():
                tasks = (ansible / 'roles' / role / 'tasks/config.yml'
                         ).read_text()
                looked = re.findall(r'{{ node_custom_config }}/(\S+)"', tasks)
                self.assertIn(
                    '/'.join(filter(None, (service, name))),
                    [*looked, *(path.replace(
                        '{{ item.key }}', name.removesuffix('.conf'))
                        for path in re.findall(
                            r'{{ node_custom_config }}/(.*?)"', tasks))])

    def test_a_stop_takes_no_longer_than_it_waits(self):
        for _, ansible in self.releases():
            known = variables(ansible)
            self.assertEqual(fragments.kolla_ansible().grace,
                             known['docker_graceful_timeout'])
            # The unit that it writes leaves the rest to systemd: 90 s.
            worker = ansible / 'module_utils/kolla_systemd_worker.py'
            self.assertIn('ExecStop=', worker.read_text())
            self.assertNotIn('TimeoutStop', worker.read_text())

    def test_one_host_after_the_other(self):
        for _, ansible in self.releases():
            self.assertIn("serial: '{{ kolla_serial|default(\"0\") }}'",
                          (ansible / 'nova.yml').read_text())

    def test_hosts_are_mapped_by_service(self):
        for _, ansible in self.releases():
            self.assertIn('discover_hosts --by-service', (
                ansible / 'roles/nova-cell/tasks/discover_computes.yml'
                ).read_text())

    def test_all_controllers_have_one(self):
        for _, ansible in self.releases():
            self.assertIn('[nova-compute-ironic:children]\nnova\n',
                          (ansible / 'inventory/multinode').read_text())

    def test_the_mode_that_is_not_for_us_is_off(self):
        for version, ansible in self.releases():
            # It came with 2026.1.
            self.assertEqual(
                None if int(version.split('.')[0]) < 22 else [],
                variables(ansible).get(
                    'nova_multi_compute_ironic_config'))
