# SPDX-License-Identifier: Apache-2.0

"""A compute takes minutes to stop, for its machines take long to deploy.

The experiment judges itself; see ``tools/lab run slow-stop --help``.
"""

from lab.experiments import slow_stop
from lab.tests.stack import command

#: The experiment says itself how patient nova is.
SHAPE = ('--computes', str(command.COMPUTES), '--nodes',
         str(command.MANY_NODES), *command.AUDITS)


class SlowStopTestCase(command.LabTestCase):

    maxDiff = None

    def test_free_nodes_do_not_wait_for_the_end(self):
        figures = self.experiment('slow-stop', shape=SHAPE)
        self.assertEqual((slow_stop.BUILDS, slow_stop.LATER),
                         (figures['own']['active'],
                          figures['later']['active']))
        self.assertGreater(figures['ended_after'], figures['limit'])
