# SPDX-License-Identifier: Apache-2.0

"""What a failure of nova's own driver is shown with."""

import os

from nova_ironic_multihost.tests.functional import base
from nova_ironic_multihost.tests.functional import proxy

#: Which driver the scenarios are played with, by the name in the environment.
DRIVERS = {'ours': base.OURS, 'stock': base.STOCK}
DRIVER_VARIABLE = 'MULTIHOST_COMPARE_DRIVER'

LISTING = '/v1/nodes(/detail)?'
RESERVATION = {'method': 'PATCH', 'path': '/v1/nodes/[^/]+',
               'body': '/instance_uuid'}


class FailureShown(AssertionError):
    """The failure is there; the message says what was seen."""


class FailureTestCase(base.MultiHostTestCase):
    """One scenario: it fails when the driver has the failure.

    The first paragraph of a scenario's docstring is the failure as a user
    meets it. Its one test ends with :meth:`failure_shown` or with
    :meth:`failure_absent`; any other end is an error of the scenario.

    :ivar proxy: the :class:`.proxy.Proxy` between nova and Ironic.
    """

    compute_driver = DRIVERS[os.environ.get(DRIVER_VARIABLE, 'ours')]

    # After a test nova takes from it all that has no underscore.
    _end = None
    _seen = None

    def setUp(self):
        super().setUp()
        self.proxy = self.useFixture(proxy.Proxy(self.ironic.endpoint))
        self.flags(endpoint_override=self.proxy.endpoint, group='ironic')

    @property
    def end(self):
        """'shown' or 'absent'; None before the end."""
        return self._end

    @property
    def seen(self):
        """What was seen, in a sentence; None before the end."""
        return self._seen

    def failure_shown(self, seen):
        """End the scenario: the failure is there.

        :raises FailureShown: always.
        """
        self._end, self._seen = 'shown', seen
        raise FailureShown(seen)

    def failure_absent(self, seen):
        """Say at the end of the scenario that the failure is not there."""
        self._end, self._seen = 'absent', seen

    def watch(self, rounds, *hosts):
        """Audit these hosts, or all, this many times in turn.

        :returns: {node: [the hosts that it had, one after the other]}.
        """
        history = {node: [host] for node, host in self.fleet.records().items()}
        for _ in range(rounds):
            for host in hosts or self.fleet.hosts:
                self.fleet.audit(host)
                self._note(history)
        return history

    def _note(self, history):
        for node, host in self.fleet.records().items():
            hosts = history.setdefault(node, [])
            if hosts[-1:] != [host]:
                hosts.append(host)


def moves(history):
    """Count how often nodes changed their owner.

    :param history: what :meth:`FailureTestCase.watch` returned.
    """
    return sum(len(hosts) - 1 for hosts in history.values())
