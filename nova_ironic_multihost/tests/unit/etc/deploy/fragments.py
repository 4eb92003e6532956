# SPDX-License-Identifier: Apache-2.0

"""What etc/deploy says to each tool."""

import configparser
import dataclasses
import pathlib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[5]
DEPLOY = ROOT / 'etc' / 'deploy'

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


def texts(sections):
    """The same with each value as it stands in a file."""
    return {section: {option: str(value) for option, value in options.items()}
            for section, options in sections.items()}


@dataclasses.dataclass(frozen=True)
class Tool:
    """What a tool is told.

    :ivar compute: {section: {option: value}} of nova.conf, of nova-compute
    :ivar scheduler: of nova-scheduler
    :ivar placement: of placement
    :ivar grace: seconds after which a nova-compute that ends is killed
    """

    compute: dict
    scheduler: dict
    placement: dict
    grace: float


def kolla_ansible():
    return Tool(read('kolla-ansible/nova-compute-ironic.conf'),
                read('kolla-ansible/nova-scheduler.conf'),
                read('kolla-ansible/placement.conf'),
                # docker_graceful_timeout, see test_kolla_ansible.
                60)


def openstack_ansible():
    told = read('openstack-ansible/user_variables.yml')
    common = texts(told['nova_nova_conf_overrides'])
    scheduler = {
        'filter_scheduler': common.pop('filter_scheduler') | {
            'host_subset_size': str(told['nova_scheduler_host_subset_size'])},
        'scheduler': {
            'max_attempts': str(told['nova_scheduler_max_attempts'])}}
    common['DEFAULT']['compute_driver'] = (
        told['nova_virt_types']['ironic']['nova_compute_driver'])
    return Tool(common, scheduler,
                texts(told['placement_placement_conf_overrides']),
                # TimeoutSec of the unit, see test_openstack_ansible.
                120)


def openstack_helm():
    values = read('openstack-helm/values.yaml')['conf']
    pod = read('openstack-helm/grace-period.yaml')['spec']['template']['spec']
    return Tool(
        texts(values['nova_ironic']), texts(values['nova']),
        texts(read('openstack-helm/placement-values.yaml')[
            'conf']['placement']),
        pod['terminationGracePeriodSeconds'])


def rhoso():
    told = read('rhoso/openstackcontrolplane.yaml')['spec']
    nova = told['nova']['template']
    [compute] = {
        template['customServiceConfig'] for template
        in nova['cellTemplates']['cell1']['novaComputeTemplates'].values()}
    return Tool(
        ini(compute),
        ini(nova['schedulerServiceTemplate']['customServiceConfig']),
        ini(told['placement']['template']['customServiceConfig']),
        # What Kubernetes grants where nobody says anything.
        30)


def systemd():
    [grace] = {read(f'systemd/{name}')['Service']['TimeoutStopSec']
               for name in ('nova-compute.service', 'stop.conf')}
    return Tool(read('systemd/nova.conf'), read('systemd/nova-scheduler.conf'),
                read('systemd/placement.conf'), float(grace))


#: Name of the directory -> how it is read.
TOOLS = {'kolla-ansible': kolla_ansible,
         'openstack-ansible': openstack_ansible,
         'openstack-helm': openstack_helm,
         'rhoso': rhoso,
         'systemd': systemd}
