# SPDX-License-Identifier: Apache-2.0

"""A machine that devstack has stacked, as its plugin's tests want it.

With devstack's own functions where DEVSTACK_DIR names a checkout, and says so;
elsewhere with functions that do what devstack documents.
"""

import os
import platform
import shutil
import sys

from lab import settings
from lab.tests.stack import command
from nova_ironic_multihost.tests.devstack import sandbox

NODES = command.FEW_NODES

COMPUTES = command.ROOT / 'devstack' / 'tools' / 'computes'
HOST = platform.node()

#: Seconds that everything has to settle; far above what it needs.
REST = 240


class StackedTestCase(command.LabTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ.update(command.place())
        checkout = sandbox.checkout()
        print('the plugin runs with', f'devstack in {checkout}' if checkout
              else 'what devstack documents: DEVSTACK_DIR names no checkout',
              file=sys.stderr)
        up = command.Command(
            'up', '--cold', '--reset', '--nodes', str(NODES))
        if up.status:
            raise RuntimeError(up.errors)
        lab = settings.load()
        # In there, for paths that stay the same.
        top = lab.directory / 'devstack'
        shutil.rmtree(top, ignore_errors=True)
        cls.machine = sandbox.Stackable(
            top, lab, checkout or sandbox.CONTRACT)
        cls.addClassCleanup(cls.machine.devstack, 'clean')

    def setUp(self):
        super().setUp()
        # It starts in its turn, after nova-compute.
        self.lab('service', 'stop', 'ironic')

    def stack(self, *lines, **plugins):
        self.machine.configure(f'SANDBOX_NODES={NODES}', *lines, **plugins)
        return self.done(self.machine.devstack('stack'))

    def done(self, process):
        """Fail unless a program of the machine has ended well."""
        self.assertEqual(0, process.returncode, process.stdout[-10000:])
        return process.stdout

    def computes(self, *arguments):
        """Restart nova-compute, other than by stacking."""
        self.done(self.machine.run(
            COMPUTES, *arguments,
            DEVSTACK_DIR=str(self.machine.top / 'devstack')))

    def check(self, *hosts):
        """Return {host: number of nodes}, each node owned by one."""
        program = (
            'nova-ironic-multihost', '--os-cloud', 'devstack-admin',
            '--os-baremetal-cloud', 'devstack-system-admin')
        self.done(self.machine.run(
            *program, 'check', '--allocations', '--wait', REST,
            *(word for host in hosts for word in ('--host', host))))
        rows = self.done(self.machine.run(
            *program, 'list', '-f', 'value', '-c', 'Host', '-c', 'Nodes'))
        return {host: int(nodes) for host, nodes in (
            row.split() for row in rows.splitlines())}

    def processes(self, *names):
        self.assertEqual(sorted(names), self.machine.units())

    def driver_of(self, file):
        return self.machine.option(file, 'DEFAULT', 'compute_driver')

    def nothing_is_left(self):
        self.assertEqual([], self.machine.units())
        self.assertEqual(
            [], list(self.machine.etc.glob('nova-cpu-[0-9]*')))
        units = self.machine.top.glob('home/.local/share/systemd/user/*')
        self.assertEqual([], [unit.name for unit in units
                              if 'n-cpu-' in unit.name])
        self.assertFalse((self.machine.top / 'data' / 'nova').exists())
