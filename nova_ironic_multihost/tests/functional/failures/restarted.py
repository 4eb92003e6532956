# SPDX-License-Identifier: Apache-2.0

"""A dead compute is started again."""

from nova_ironic_multihost.tests.functional.failures import base


class Restarted(base.FailureTestCase):
    """A compute that starts takes nodes before it is up, and loses them.

    The others do not see it as up before its first heartbeat and take the
    nodes back; after the heartbeat they change hands once more.
    """

    def test(self):
        self.ironic.enroll(8)
        self.fleet.start('host2', 'host6', 'host7')
        self.settle()
        self.fleet.kill('host7')
        before = self.settle()

        self.fleet.start('host7', heartbeat=False)
        early = len(self.nodes_of('host7'))
        history = self.watch(1, 'host2', 'host6')
        for node, hosts in history.items():
            hosts.insert(0, before[node])
        self.fleet.beat('host7')
        for node, hosts in self.watch(5).items():
            history[node] += hosts
        most = max(map(changes, history.values()))

        if early or most > 1:
            self.failure_shown(
                f'{early} nodes were on host7 before it was up; a node '
                f'changed its owner {most} times because of one restart.')
        back = len(self.nodes_of('host7'))
        self.assertTrue(back)
        self.failure_absent(
            f'Nothing moved before host7 was up; then {back} nodes came back, '
            f'each in one move.')


def changes(hosts):
    """Count how often the owner changes in a list of owners."""
    return sum(one != other for one, other in zip(hosts, hosts[1:]))
