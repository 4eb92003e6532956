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

"""Instances that were taken over are brought to rest.

In threads of its own, as what they were in the middle of may take minutes: an
audit must not wait for that, and no instance for another's deployment.
"""

import queue
import threading

from oslo_log import log as logging

from nova_ironic_multihost.contract import names
from nova_ironic_multihost.core import takeover

LOG = logging.getLogger(__name__)

#: Instances that are brought to rest at the same time. Those that wait for
#: Ironic to deploy do not count.
WORKERS = 8

#: What its threads are called.
THREAD = 'ironic-multihost-takeover'

_STUCK = ('Instance %(uuid)s was taken over and cannot be brought to rest; it '
          'is tried again when this service starts. If its task state stays: '
          'openstack server set --state active %(uuid)s')


class Recovery:
    """Brings instances to rest that this host has taken over.

    :param instances: :class:`.calls.Instances`.
    :param machines: :class:`.machines.Machines`.
    """

    def __init__(self, instances, machines):
        self._instances = instances
        self._machines = machines
        self._queue = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers = 0

    def add(self, uuids):
        """Bring instances to rest, soon.

        :param uuids: of instances that are this host's.
        """
        for uuid in uuids:
            with self._lock:
                self._queue.put(uuid)
                if self._workers < WORKERS:
                    self._workers += 1
                    _start(self._work)

    def took_over(self, instances):
        """Say which instances were taken over, and bring them to rest.

        :param instances: uuid -> host that it was on before.
        """
        self.add(instances)
        for host in sorted(set(instances.values())):
            uuids = sorted(uuid for uuid, before in instances.items()
                           if before == host)
            LOG.info('Took over %(count)d instances of compute service '
                     '%(host)s, which is down.',
                     {'count': len(uuids), 'host': host})
            # The caller audits, and waits for no bus.
            _start(self._notify, {
                'host': names.CONF.host, 'source_host': host,
                'instances': uuids})

    def _notify(self, payload):
        try:
            self._instances.notify('ironic_multihost.takeover', payload)
        except Exception as exc:  # noqa: BLE001
            LOG.warning('The notification of a take-over was not sent: %s. '
                        'Nothing else depends on it.', exc)

    def start(self, init, instance):
        """Do what is due for an instance at the start of the service.

        An instance that this host was taking over when it ended goes on from
        there. What fails for one instance does not end the service.

        :param init: what nova would do, a function without arguments.
        :param instance: nova.objects.Instance
        """
        if takeover.is_mark(instance.task_state):
            self.add([instance.uuid])
            return
        try:
            init()
        except Exception:
            LOG.exception(
                'What instance %(uuid)s was in the middle of cannot be '
                'finished; it is left as it is. If its task state stays: '
                'openstack server set --state active %(uuid)s',
                {'uuid': instance.uuid})

    def bring_to_rest(self, uuid):
        """Bring one instance to rest.

        :param uuid: of the instance.
        """
        instance = self._instances.read(uuid)
        if instance is None or not takeover.is_mark(instance.task_state):
            return
        before = takeover.marked(instance.task_state)
        machine = self._machines.provision_state(instance)
        step = takeover.step(
            instance.vm_state, before, machine,
            lambda: self._machines.deployed_since(
                instance, self._instances.began(uuid, 'rebuild')))
        if not self._instances.set_states(
                instance, instance.vm_state, before):
            return
        if step is takeover.Step.AWAIT:
            _start(self._await, instance)
        elif step is takeover.Step.FAIL:
            self._instances.fail(
                instance, 'The compute service died while it was '
                f'{before or instance.vm_state}, and ' + (
                    f'Ironic has the node {machine}' if machine
                    else 'no node is reserved for it in Ironic'))
        elif step is takeover.Step.DELETE:
            self._instances.delete(instance)
        elif step is takeover.Step.RESTORE:
            self._instances.restore(instance)
        else:
            self._instances.init(instance)
            self._settle(uuid, before)

    def _await(self, instance):
        try:
            self._machines.wait_until_deployed(instance)
        except Exception as exc:  # noqa: BLE001
            ended, *reason = self._instances.fail, (
                'The compute service died while Ironic deployed, which has '
                f'failed since: {exc}')
        else:
            ended, reason = self._instances.deployed, ()
        try:
            ended(instance, *reason)
        except Exception:
            LOG.exception(_STUCK, {'uuid': instance.uuid})

    def _settle(self, uuid, before):
        """End what nova's own start does not end.

        :param before: the task state that the instance had
        """
        instance = self._instances.read(uuid)
        if (instance is None or before is None
                or instance.task_state != before):
            return
        self._instances.set_states(
            instance, takeover.resting(
                instance.vm_state,
                self._machines.provision_state(instance)), None)

    def _work(self):
        while True:
            with self._lock:
                try:
                    uuid = self._queue.get_nowait()
                except queue.Empty:
                    self._workers -= 1
                    return
            try:
                self.bring_to_rest(uuid)
            except Exception:
                LOG.exception(_STUCK, {'uuid': uuid})


def _start(target, *args):
    threading.Thread(
        target=target, args=args, name=THREAD, daemon=True).start()
