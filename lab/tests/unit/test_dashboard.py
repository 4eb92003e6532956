# SPDX-License-Identifier: Apache-2.0

import datetime
import math
import pathlib

from oslotest import base

from lab import dashboard
from lab import settings

REPOSITORY = pathlib.Path(settings.__file__).parents[1]


class DashboardTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.asked = []

    def ask(self, path, parameters):
        self.asked.append((path, parameters))
        return {'result': [{'metric': {'host': 'compute-1'},
                            'values': [[100, '1'], [105, '0.5']]}]}

    def test_each_panel_can_be_drawn(self):
        drawn = [panel['type'] for panel, _
                 in dashboard.panels(dashboard.read(REPOSITORY))]
        self.assertLessEqual(set(drawn), {'row', *dashboard._KINDS})

    def test_series_have_the_names_and_values_that_grafana_shows(self):
        [(name, times, values)] = dashboard.series(self.ask, {'targets': [
            {'expr': 'up', 'legendFormat': '{{host}} {{state}}'}]}, 100, 5)
        self.assertEqual(('compute-1', [1, 0.5]), (name, values))
        self.assertEqual([100, 105], [each.timestamp() for each in times])
        [(path, parameters)] = self.asked
        self.assertEqual(('query_range', 'up', 100, 5), (
            path, *(parameters[name] for name in ('query', 'start', 'step'))))

    def test_no_line_crosses_a_gap(self):
        at = datetime.datetime.fromtimestamp
        times, values = dashboard.with_gaps(
            [at(100), at(105), at(120), at(125)], [1.0, 2.0, 3.0, 4.0])
        self.assertEqual(5, len(times))
        self.assertEqual([False, False, True, False, False],
                         [math.isnan(value) for value in values])

    def test_variables_of_grafana_have_a_value(self):
        for panel, _ in dashboard.panels(dashboard.read(REPOSITORY)):
            for target in panel.get('targets', ()):
                self.assertNotIn('$', dashboard.expression(target, 60))
        self.assertEqual(
            'sum(increase(moves{instance=~".*"}[60s]))',
            dashboard.expression({'expr': 'sum(increase(moves{instance=~'
                                  '"$instance"}[$__rate_interval]))'}, 60))
