# SPDX-License-Identifier: Apache-2.0

"""A lab with its RabbitMQ, for trials that have nothing to do with the rest.

Their queues are their own.
"""

import os
import subprocess

from lab import configuration
from lab import settings as places
from lab.tests.stack import command

#: What makes a run the same each time.
SEED = '--seed', '1'


class BrokerTestCase(command.LabTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.settings = places.load(*command.place().values())
        up = command.Command('up', '--reset', *command.SMALL)
        assert up.status == 0, up.output + up.errors

    def run_trial(self, module, *arguments):
        """Run a trial; return what became of it, a CompletedProcess.

        :param module: what it is called, with its package
        """
        return subprocess.run(
            [self.settings.venv / 'bin' / 'python', '-W', 'ignore', '-m',
             module, '--url', configuration.transport(self.settings),
             *arguments],
            cwd=command.ROOT, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=command.DEADLINE, env={
                **os.environ, 'PYTHONPATH': str(command.ROOT),
                'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'})
