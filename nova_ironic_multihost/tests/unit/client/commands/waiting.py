# SPDX-License-Identifier: Apache-2.0

"""A cloud in which time passes while a command waits."""

import datetime
import functools

import fixtures

from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests.unit.client.commands import base


class WaitingTestCase(base.ShellTestCase):
    """Of east, which has n-0 with s-0, and n-1, and of west.

    :ivar now: seconds that have passed
    """

    def setUp(self):
        super().setUp()
        self.now = 0
        self._events = []
        self.useFixture(fixtures.MockPatchObject(
            services, 'looks', functools.partial(
                services.looks, clock=lambda: self.now, sleep=self._sleep)))

    def _sleep(self, seconds):
        self.now += seconds
        due = [event for event in self._events if event[0] <= self.now]
        self._events = [e for e in self._events if e not in due]
        for _, function in due:
            function()

    def after(self, seconds, function, *arguments, **named):
        """Do something when so much time has passed."""
        self._events.append(
            (seconds, functools.partial(function, *arguments, **named)))

    def east(self, **changes):
        """Change what nova has of east."""
        self.cloud.services[0].update(changes)

    def west(self, **changes):
        """Change what nova has of west."""
        self.cloud.services[1].update(changes)

    def move(self, *nodes):
        """Let west have nodes, and the servers on them."""
        for record in self.cloud.hypervisors:
            if record['id'] in nodes:
                record['service'] = {'host': 'west'}
        for server in self.cloud.servers:
            if server['OS-EXT-SRV-ATTR:hypervisor_hostname'] in nodes:
                server['OS-EXT-SRV-ATTR:host'] = 'west'

    def beat(self):
        """Let nova hear from east."""
        moment = (datetime.datetime(2026, 1, 1, 1)
                  + datetime.timedelta(seconds=self.now))
        self.east(updated_at=moment.isoformat())
