# SPDX-License-Identifier: Apache-2.0

"""What etc/deploy says to each tool."""

import configparser
import dataclasses
import pathlib
import tomllib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[5]
DEPLOY = ROOT / 'etc' / 'deploy'

#: The address of the repository.
REPOSITORY = tomllib.loads((ROOT / 'pyproject.toml').read_text())[
    'project']['urls']['Repository']

#: The sets of settings of schedulers and placement.
SETS = ('bare-metal-only', 'with-vms')

OURS = 'ironic_multihost.IronicMultiHostDriver'


def ini(text):
    """{section: {option: value}} of a text that oslo.config reads."""
    parser = configparser.ConfigParser(
        default_section='none', interpolation=None, delimiters='=')
    parser.optionxform = str
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def read(name):
    """A file of etc/deploy, by the parser of what reads it."""
    text = (DEPLOY / name).read_text()
    if name.endswith(('.yml', '.yaml')):
        return yaml.safe_load(text)
    return ini(text)


def sets(pattern):
    """{set: what its file says}, for each of :data:`SETS`."""
    return {name: read(pattern.format(name)) for name in SETS}


def texts(sections):
    """The same with each value as it stands in a file."""
    return {section: {option: str(value) for option, value in options.items()}
            for section, options in sections.items()}


@dataclasses.dataclass(frozen=True)
class Tool:
    """What a tool is told.

    :ivar compute: {section: {option: value}} of nova.conf, of nova-compute
    :ivar scheduler: of nova-scheduler, for each of :data:`SETS`
    :ivar placement: of placement, for each of :data:`SETS`
    :ivar grace: seconds after which a nova-compute that ends is killed
    """

    compute: dict
    scheduler: dict
    placement: dict
    grace: float


def kolla_ansible():
    return Tool(read('kolla-ansible/nova-compute-ironic.conf'),
                sets('kolla-ansible/nova-scheduler-{}.conf'),
                sets('kolla-ansible/placement-{}.conf'),
                # docker_graceful_timeout, see test_kolla_ansible.
                60)


def openstack_ansible():
    told = read('openstack-ansible/user_variables.yml')
    common = texts(told['nova_nova_conf_overrides'])
    own = sets('openstack-ansible/{}.yml')
    shared = common.pop('filter_scheduler')
    scheduler = {
        name: {
            'filter_scheduler': shared | {
                option.removeprefix('nova_scheduler_'): str(value)
                for option, value in one.items()
                if option.startswith('nova_scheduler_')},
            'scheduler': {
                'max_attempts': str(told['nova_scheduler_max_attempts'])}}
        for name, one in own.items()}
    common['DEFAULT']['compute_driver'] = (
        told['nova_virt_types']['ironic']['nova_compute_driver'])
    return Tool(common, scheduler,
                {name: texts(one['placement_placement_conf_overrides'])
                 for name, one in own.items()},
                # TimeoutSec of the unit, see test_openstack_ansible.
                120)


def openstack_helm():
    values = read('openstack-helm/values.yaml')['conf']
    bare_metal = read('openstack-helm/bare-metal-only.yaml')['conf']['nova']
    pod = read('openstack-helm/grace-period.yaml')['spec']['template']['spec']
    return Tool(
        texts(values['nova_ironic']),
        # helm merges the values of its files.
        {'bare-metal-only': texts({
            section: options | bare_metal.get(section, {})
            for section, options in values['nova'].items()}),
         'with-vms': texts(values['nova'])},
        {name: texts(one['conf']['placement']) for name, one in sets(
            'openstack-helm/placement-{}.yaml').items()},
        pod['terminationGracePeriodSeconds'])


def rhoso():
    told = read('rhoso/openstackcontrolplane.yaml')['spec']
    nova = told['nova']['template']
    own = {name: one['spec'] for name, one in sets('rhoso/{}.yaml').items()}
    [compute] = {
        template['customServiceConfig'] for template
        in nova['cellTemplates']['cell1']['novaComputeTemplates'].values()}
    return Tool(
        ini(compute),
        {name: ini(one['nova']['template']['schedulerServiceTemplate'][
            'customServiceConfig']) for name, one in own.items()},
        {name: ini(one['placement']['template']['customServiceConfig'])
         for name, one in own.items()},
        # What Kubernetes grants where nobody says anything.
        30)


def systemd():
    [grace] = {read(f'systemd/{name}')['Service']['TimeoutStopSec']
               for name in ('nova-compute.service', 'stop.conf')}
    return Tool(read('systemd/nova.conf'),
                sets('systemd/nova-scheduler-{}.conf'),
                sets('systemd/placement-{}.conf'), float(grace))


#: Name of the directory -> how it is read.
TOOLS = {'kolla-ansible': kolla_ansible,
         'openstack-ansible': openstack_ansible,
         'openstack-helm': openstack_helm,
         'rhoso': rhoso,
         'systemd': systemd}
