# SPDX-License-Identifier: Apache-2.0

"""Two threads of a compute use the driver at the same time."""

import threading
from unittest import mock

from openstack.baremetal.v1 import node as sdk_node

from nova_ironic_multihost.tests.functional.failures import base


class Threaded(base.FailureTestCase):
    """A periodic task dies when another thread touches the node cache.

    nova-compute runs native threads from 34 on. The cache of nodes is read
    by one while another adds or removes a node, without a lock.
    """

    def test(self):
        self.ironic.enroll(3)
        self.fleet.start('host1')
        self.settle()
        self.boot()
        self.fleet.audit()
        other, = self.ironic.enroll(1)
        driver = self.fleet.manager('host1').driver
        inherited = sdk_node.Node.instance_id
        interrupted = threading.Lock()

        class InstanceId:
            """Lets another thread look at another node, once."""

            def __get__(self, node, owner):
                if interrupted.acquire(blocking=False):
                    thread = threading.Thread(
                        target=driver._node_from_cache, args=(other,))
                    thread.start()
                    thread.join()
                return inherited.__get__(node, owner)

            def __set__(self, node, value):
                inherited.__set__(node, value)

        with mock.patch.object(sdk_node.Node, 'instance_id', InstanceId()):
            try:
                self.fleet.reap()
            except RuntimeError as exc:
                self.failure_shown(
                    f'The reaper of deleted servers ended with '
                    f'RuntimeError: {exc}.')
        self.failure_absent('The reaper of deleted servers did its work.')
