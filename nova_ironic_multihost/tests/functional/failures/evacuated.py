# SPDX-License-Identifier: Apache-2.0

"""A server is evacuated while its compute is down and no machine is free."""

from nova_ironic_multihost.tests.functional.failures import base


class Evacuated(base.FailureTestCase):
    """Evacuating a server puts it into ERROR when no other machine is free.

    nova accepts the evacuation, although no server over Ironic can be
    evacuated.
    """

    def test(self):
        self.ironic.enroll(3)
        self.fleet.start('host1', 'host2')
        self.settle()
        server = self.boot()
        self.fleet.kill(self.host_of(server))
        self.fleet.audit()
        for _ in range(2):
            self.boot()

        self.admin_api.post_server_action(server['id'], {'evacuate': {}})
        self._wait_for_migration_status(server, ['error'])
        self._wait_for_state_change(server, 'ERROR')
        # With nova's own driver there is nobody to do it.
        self.fleet.refuse()

        seen = self.show(server)
        if seen['status'] == 'ERROR':
            self.failure_shown(
                'The server was in ERROR: '
                f'{seen["fault"]["message"].strip()}')
        self._wait_for_migration_status(server, ['failed'])
        self.failure_absent(
            f'The server was {seen["status"]} again within minutes; the '
            'list of its events said why it was not evacuated.')
