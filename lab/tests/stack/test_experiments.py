# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What happens to nodes when computes come, go, hang and lose their sight.

Each experiment judges itself by the criteria that it explains with
``tools/lab run NAME --help``. They share one lab, which is brought up by the
first one and whenever the one before has failed: what that left behind says
nothing about the next one.
"""

from lab.tests.stack import command

COMPUTES = 3
NODES = 24

#: Shorter than the lab's own, which are for people who watch.
INTERVALS = ('DEFAULT.update_resources_interval=4',
             'DEFAULT.service_down_time=6', 'DEFAULT.report_interval=1')

#: With twice as many, and with fencing, in lab/tests/long.
CYCLES = 10

SHAPE = ('--computes', str(COMPUTES), '--nodes', str(NODES),
         *(word for option in INTERVALS for word in ('--set', option)))


class ExperimentsTestCase(command.LabTestCase):

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # What an interrupted run may have left.
        command.Command('down')
        cls.addClassCleanup(command.Command, 'down')

    def experiment(self, name, *arguments):
        """Run one that has to pass; returns its figures."""
        done = command.Command('run', name, *SHAPE, '--keep', '--assert',
                               '--json', *arguments)
        if done.status:
            self.lab('down')
        self.assertEqual(0, done.status, f'{done.errors}{done.output}')
        figures = done.answer
        self.assertEqual(('pass', []),
                         (figures['verdict'], figures['failed']))
        return figures

    # Its name makes it the first one: it begins with a lab of its own.
    def test_a_cold_start(self):
        self.lab('down')
        figures = self.experiment('coldstart')
        self.assertGreaterEqual(figures['created'], NODES)
        self.assertEqual(NODES, sum(figures['split']))

    def test_add(self):
        figures = self.experiment('add')
        self.assertEqual(COMPUTES + 1, len(figures['split']))
        self.assertGreater(figures['moves'], 0)
        rows = self.lab('status', '--json').answer['computes']
        self.assertEqual(COMPUTES, len(rows))

    def test_churn(self):
        figures = self.experiment('churn', '--cycles', str(CYCLES))
        self.assertEqual(CYCLES, figures['cycles'])
        self.assertGreater(figures['active'], CYCLES)

    def test_drain(self):
        figures = self.experiment('drain')
        self.assertEqual(0, figures['disabled']['left'])
        self.assertEqual(figures['its_nodes'],
                         figures['disabled']['moved_nodes'])
        self.assertEqual(figures['its_nodes'], figures['enabled']['left'])

    def test_fence_alive(self):
        figures = self.experiment('fence-alive')
        self.assertEqual(0, figures['forced_down']['left'])
        self.assertEqual(figures['its_nodes'], figures['freed']['left'])

    def test_freeze(self):
        figures = self.experiment('freeze')
        self.assertEqual(figures['its_nodes'], figures['moved_nodes'])

    def test_rbac_slip(self):
        figures = self.experiment('rbac-slip')
        self.assertEqual([NODES] * 3, figures['records'])
        self.assertEqual([NODES] * 3, figures['providers'])

    def test_reaction(self):
        figures = self.experiment('reaction')
        for interval in (10, 600):
            some = figures[f'every_{interval}_s']
            self.assertEqual(some['its_free_nodes'], some['moved_nodes'])

    def test_restart(self):
        figures = self.experiment('restart')
        self.assertEqual(figures['its_nodes'], figures['moved_nodes'])
