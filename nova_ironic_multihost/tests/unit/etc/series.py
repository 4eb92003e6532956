# SPDX-License-Identifier: Apache-2.0

"""The series that there are, for those who ask for them in etc/."""

import re

from nova_ironic_multihost.client.commands import exporter
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.telemetry import status_server
from nova_ironic_multihost.tests.unit.telemetry import pictures
from nova_ironic_multihost.tests import views

#: What each nova-compute tells, with its labels.
OF_COMPUTES = {
    sample.name: set(sample.labels)
    for family in status_server.Exposition(lambda: pictures.of(
        pictures.TURNS, view=pictures.VIEW, reasons={}), '1').collect()
    for sample in family.samples}

#: What the exporter tells.
OF_CLOUD = {
    sample.name: set(sample.labels) for series in (
        *exporter.cloud_metrics(views.consistent(), []),
        *exporter.survey_metrics(True, 0)) for sample in series.samples}

ALL = OF_COMPUTES | OF_CLOUD

_NAME = re.compile(r'\bnova_ironic_multihost_\w+')
_KIND = re.compile(r'kind(?:=|!=|=~|!~)"([^"]*)"')


def unknown(expression):
    """What an expression names and does not exist: series and kinds."""
    kinds = {kind for one in _KIND.findall(expression)
             for kind in one.split('|')}
    return sorted((set(_NAME.findall(expression)) - ALL.keys())
                  | (kinds - set(findings.KINDS)))
