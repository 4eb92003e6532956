# SPDX-License-Identifier: Apache-2.0

"""The objects for the Prometheus operator."""

import os
import pathlib

from oslotest import base
import yaml

from nova_ironic_multihost import conf

ETC = pathlib.Path(__file__).resolve().parents[4] / 'etc'
RULES = ETC / 'prometheus/nova-ironic-multihost-rules.yaml'
OBJECT = ETC / 'kubernetes/prometheusrule.yaml'

HEAD = """\
---
# The alerts of etc/prometheus, for the Prometheus operator. A test compares
# them, and writes this file with WRITE_EXAMPLES=1.
"""


class KubernetesTestCase(base.BaseTestCase):

    def test_the_rules_are_those_of_prometheus(self):
        rule = {
            'apiVersion': 'monitoring.coreos.com/v1',
            'kind': 'PrometheusRule',
            'metadata': {'name': 'nova-ironic-multihost',
                         'namespace': 'openstack'},
            'spec': yaml.safe_load(RULES.read_text())}
        if 'WRITE_EXAMPLES' in os.environ:
            OBJECT.write_text(HEAD + yaml.safe_dump(rule, sort_keys=False))
        self.assertEqual(rule, yaml.safe_load(OBJECT.read_text()))

    def test_each_nova_compute_is_scraped(self):
        monitor = yaml.safe_load(
            (ETC / 'kubernetes/podmonitor.yaml').read_text())
        self.assertEqual(
            ('monitoring.coreos.com/v1', 'PodMonitor'),
            (monitor['apiVersion'], monitor['kind']))
        [endpoint] = monitor['spec']['podMetricsEndpoints']
        self.assertEqual({'path': '/metrics', 'portNumber': 9106}, endpoint)
        [port] = [option for option in conf.OPTS
                  if option.name == 'metrics_port']
        port.type(endpoint['portNumber'])
