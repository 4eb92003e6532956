# SPDX-License-Identifier: Apache-2.0

import itertools
import json
import pathlib
import re

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit.etc import promtool
from nova_ironic_multihost.tests.unit.etc import series

ROOT = pathlib.Path(__file__).resolve().parents[4]
DASHBOARD = ROOT / 'etc' / 'grafana' / 'nova-ironic-multihost.json'

#: Of a panel; Grafana divides its width into 24.
WIDTH = 24

#: What Prometheus adds to each sample.
SCRAPED = {'job', 'instance'}


class DashboardTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.dashboard = json.loads(DASHBOARD.read_text())
        self.panels = [panel for panel in self.dashboard['panels']
                       if panel['type'] != 'row']
        self.targets = [target for panel in self.panels
                        for target in panel['targets']]

    def test_what_grafana_needs(self):
        for field in 'title', 'uid', 'schemaVersion', 'time', 'refresh':
            self.assertTrue(self.dashboard[field], field)
        # Grafana gives it one of its own when it is imported.
        self.assertNotIn('id', self.dashboard)
        for panel in self.panels:
            for field in 'type', 'title', 'description', 'targets':
                self.assertTrue(panel[field], panel)
            references = [target['refId'] for target in panel['targets']]
            self.assertEqual(sorted(set(references)), sorted(references))
        numbers = [panel['id'] for panel in self.panels]
        self.assertEqual(len(numbers), len(set(numbers)))

    def test_no_panel_covers_another(self):
        taken = set()
        for panel in self.dashboard['panels']:
            place = panel['gridPos']
            self.assertLessEqual(place['x'] + place['w'], WIDTH)
            cells = set(itertools.product(
                range(place['x'], place['x'] + place['w']),
                range(place['y'], place['y'] + place['h'])))
            self.assertEqual(set(), taken & cells, panel['title'])
            taken |= cells

    def test_what_needs_a_port_is_below_the_row_that_says_so(self):
        [row] = [panel for panel in self.dashboard['panels']
                 if panel['type'] == 'row']
        self.assertIn('metrics_port', row['title'])
        for panel in self.panels:
            needs = any(re.search(r'nova_ironic_multihost_(?!cloud_)',
                                  target['expr'])
                        for target in panel['targets'])
            self.assertEqual(
                needs, panel['gridPos']['y'] > row['gridPos']['y'],
                panel['title'])

    def test_whoever_looks_chooses_the_prometheus(self):
        chosen = {'type': 'prometheus', 'uid': '${datasource}'}
        for part in self.panels + self.targets:
            self.assertEqual(chosen, part['datasource'])
        variables = {variable['name']: variable for variable
                     in self.dashboard['templating']['list']}
        self.assertEqual('datasource', variables['datasource']['type'])
        used = set(re.findall(r'\$(\w+)', DASHBOARD.read_text()))
        self.assertEqual(
            set(), {name for name in used if not name.startswith('__')}
            - variables.keys())

    def test_it_asks_for_what_there_is(self):
        for expression in self.expressions():
            self.assertEqual([], series.unknown(expression))

    def test_it_shows_all_there_is(self):
        text = ' '.join(target['expr'] for target in self.targets)
        self.assertEqual([], sorted(
            name for name in series.ALL
            # Only an alert can make something of a checksum; the sum of a
            # histogram gives an average, and that hides who waits long.
            if not re.search(rf'{name}\b', text)
            and not name.endswith(('_checksum', '_sum'))))

    def test_legends_name_labels_that_are_there(self):
        for target in self.targets:
            [name] = set(re.findall(r'nova_ironic_multihost_\w+',
                                    target['expr']))
            labels = series.ALL[name] | SCRAPED
            if by := re.search(r' by \(([^)]*)\)', target['expr']):
                labels &= set(by[1].split(', '))
            self.assertLessEqual(
                set(re.findall(r'{{(\w+)}}', target['legendFormat'])),
                labels, target)

    def test_expressions_are_valid(self):
        rules = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'rules.yaml'
        rules.write_text(json.dumps({'groups': [{
            'name': 'dashboard', 'rules': [
                {'record': f'expression_{number}',
                 'expr': expression.replace('$__rate_interval', '5m')}
                for number, expression in enumerate(self.expressions())]}]}))
        promtool.run(self, 'check', 'rules', rules)

    def expressions(self):
        return [target['expr'] for target in self.targets] + [
            annotation['expr'] for annotation
            in self.dashboard['annotations']['list'] if 'expr' in annotation]
