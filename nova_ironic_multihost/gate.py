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


"""What a former owner of an instance does: nothing.

A compute service that returns finds in its queue what it was asked before it
died, and goes on where it was frozen. Meanwhile its instances may be on other
compute services. So it reads where an instance is

- before it carries out an operation on it: at the *gate*, which stands before
  all that nova does for an operation, so that one that is not carried out
  leaves no trace on the instance;
- before each change of the machine, as an operation may take long;
- before it writes down that an operation has failed.

What cannot be read is not taken for granted: the machine is left alone.
"""

import contextlib
import threading

from oslo_log import log as logging

from nova_ironic_multihost.core.host import host_key
from nova_ironic_multihost import exception

LOG = logging.getLogger(__name__)


class Cancelled(BaseException):
    """Ends an operation whose instance has moved on.

    No :class:`Exception`, for the reason that :class:`asyncio.
    CancelledError` is none: it is no failure. Whatever nova does when an
    operation fails (put the instance into ERROR, clear its task state, free
    its ports and its allocation) would be done to the new owner's instance.
    It never leaves the gate.
    """


def elsewhere(state, host):
    """Whether an instance is on another compute service.

    One that is on none, as its build has not begun or has failed, is not.

    :param state: :class:`.facts.InstanceState` as nova has it now, or None if
        nova does not have it.
    :param host: this host.
    """
    return state is not None and state.host_key not in (None, host)


def may_change_machine(state, owner, host):
    """Whether this host may change the machine of an instance.

    Where an instance is says nothing any more when it is deleted; its machine
    is then a matter of the owner of the node.

    :param state: as for :func:`elsewhere`.
    :param owner: owner of its node, or None; needed only if the
        instance is deleted or nova does not have it.
    :param host: this host.
    """
    if state is None or state.deleted:
        return owner in (None, host)
    return not elsewhere(state, host)


class Gate:
    """Lets in operations on the instances of one compute service.

    An instance is anything with ``uuid`` and ``node``. What is to be done,
    ``act``, is a function without arguments.

    :param host: the compute service.
    :param sources: an :class:`.audit.sources.Sources`, asked for
        ``instance_states`` and ``records``.
    """

    def __init__(self, host, sources):
        self._host = host_key(host)
        self._sources = sources
        self._thread = threading.local()

    def operate(self, name, instance, act, otherwise=lambda: None):
        """Carry out an operation if the instance is here.

        :param name: what the operation is called.
        :param otherwise: function without arguments that answers, or raises,
            in place of an operation that is not carried out.
        :returns: what ``act`` returns, or ``otherwise``.
        :raises Exception: it cannot be known; nothing was done.
        """
        if self._inside:
            # Part of an operation that has been let in.
            return act()
        if self._is_elsewhere(instance):
            LOG.info('%(name)s is not carried out: instance %(instance)s is '
                     'on another compute service now.',
                     {'name': name, 'instance': instance.uuid})
            return otherwise()
        with self._entered():
            try:
                return act()
            except Cancelled as exc:
                LOG.info('%(name)s of instance %(instance)s ends here: '
                         '%(exc)s', {'name': name, 'exc': exc,
                                     'instance': instance.uuid})
                return otherwise()

    def attempt(self, name, instance, act):
        """Carry out a part of an operation that is cleaned up after.

        :raises Cancelled: it failed and the cleaning up is another's.
        """
        try:
            return act()
        except Exception as exc:
            if self._may_be_elsewhere(instance):
                raise Cancelled(f'{name} has failed: {exc}') from exc
            raise

    def clean_up(self, name, instance, act):
        """Do what is done after a failure, unless it is another's instance.

        :raises Cancelled: it is, and this is part of an operation.
        """
        if not self._may_be_elsewhere(instance):
            return act()
        if self._inside:
            raise Cancelled(_left(name))
        LOG.info('%(name)s is left to the compute service that instance '
                 '%(instance)s is on now.',
                 {'name': name, 'instance': instance.uuid})
        return None

    def change_machine(self, name, instance, act):
        """Change the machine of an instance if it is this host's to change.

        :raises Cancelled: it is not, and this is part of an operation.
        :raises InstanceElsewhere: it is not.
        :raises Exception: it cannot be known; nothing was done.
        """
        self._require(name, instance)
        before = self._changing
        self._thread.changing = name, instance
        try:
            return act()
        finally:
            self._thread.changing = before

    def ask_again(self):
        """Ask again in the middle of :meth:`change_machine`: it may take long.

        :raises Exception: as :meth:`change_machine` does.
        """
        if self._changing is not None:
            self._require(*self._changing)

    def present(self, instances):
        """Return the uuids of those of the instances that are here.

        :param instances: uuids.
        """
        instance_states = self._sources.instance_states(instances)
        return frozenset(
            instance for instance in instances
            if not elsewhere(instance_states.get(instance), self._host))

    def _require(self, name, instance):
        state = self._instance_state(instance)
        owner = None
        if state is None or state.deleted:
            owner = self._owner(instance.node)
        if may_change_machine(state, owner, self._host):
            return
        if self._inside:
            raise Cancelled(_left(name))
        raise exception.InstanceElsewhere(name=name, instance=instance.uuid)

    @property
    def _inside(self):
        return getattr(self._thread, 'inside', False)

    @property
    def _changing(self):
        """(name, instance) of what this thread changes, or None."""
        return getattr(self._thread, 'changing', None)

    @contextlib.contextmanager
    def _entered(self):
        self._thread.inside = True
        try:
            yield
        finally:
            self._thread.inside = False

    def _instance_state(self, instance):
        return self._sources.instance_states(
            [instance.uuid]).get(instance.uuid)

    def _is_elsewhere(self, instance):
        return elsewhere(self._instance_state(instance), self._host)

    def _may_be_elsewhere(self, instance):
        try:
            return self._is_elsewhere(instance)
        except Exception as exc:  # noqa: BLE001
            # What is to be written cannot be written either, but ports and
            # allocations are out of the conductor's hands.
            LOG.warning('It cannot be known where instance %(instance)s is, '
                        'so nothing is cleaned up: %(exc)s',
                        {'instance': instance.uuid, 'exc': exc})
            return True

    def _owner(self, node):
        record = next(iter(self._sources.records([node])), None)
        return record and record.owner


def _left(name):
    return f'{name} is left to the compute service that the instance is on'
