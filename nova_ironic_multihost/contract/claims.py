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

"""How a build claims its node, and what it may write from then on.

It writes only over what it wrote itself.

All that nova writes of a build it writes on the condition that the task state
is what the build has left there, but one (ComputeManager._build_resources:
that it attaches volumes). That would take the mark off which says that another
compute service takes the instance over (:mod:`.core.takeover`), or let a build
look begun that is to begin again.
"""

from __future__ import annotations

from collections.abc import Callable
import functools

from nova.compute import task_states
from nova.compute import vm_states
from nova import exception
from nova import objects


def claim(gate) -> Callable:
    """Return how a build claims its node, see :func:`.operations.wrapped`.

    :param gate: :class:`nova_ironic_multihost.gate.Gate`.
    """
    def around(name, instance, act):
        if not gate.building:
            return gate.claim(name, instance, act)

        def claim_what_is_nobodys():
            save = instance.save
            # Whoever has claimed it has another task state soon after.
            instance.save = functools.partial(
                save, expected_vm_state=[vm_states.BUILDING],
                expected_task_state=[instance.task_state])
            try:
                return act()
            finally:
                instance.save = save

        result = gate.claim(name, instance, claim_what_is_nobodys)
        write_over_its_own(instance)
        return result

    return around


def give_back(gate) -> Callable:
    """Return how nova takes the host off the object of an instance.

    It writes that soon after, whatever is there. It is how a claim is given
    back that it does not abort: one that it could only write half, say.

    :param gate: :class:`nova_ironic_multihost.gate.Gate`.
    """
    def around(name, instance, act):
        return (gate.give_back(name, instance, act, patient=True)
                if gate.building else act())

    return around


def write_over_its_own(instance: objects.Instance) -> None:
    """Have that one task state saved only over what was saved before it.

    If another one is there it fails as nova lets a build fail elsewhere, with
    UnexpectedTaskStateError. All else is saved as ever: what nova writes when
    an answer was lost is its own matter.
    """
    save = instance.save
    last = instance.task_state

    @functools.wraps(save)
    def save_if_it_is_the_last(*args, **kwargs):
        nonlocal last
        if 'task_state' not in instance.obj_what_changed():
            # The object has what is there then, whoever wrote it.
            return save(*args, **kwargs)
        unconditional = (
            not args and not kwargs
            and instance.task_state == task_states.BLOCK_DEVICE_MAPPING)
        if unconditional:
            kwargs = {'expected_task_state': [last]}
        try:
            result = save(*args, **kwargs)
        except exception.UnexpectedTaskStateError:
            if unconditional:
                # The next one saves something else, and would save this, too.
                instance.obj_reset_changes(['task_state', 'vm_state'])
            raise
        last = instance.task_state
        return result

    instance.save = save_if_it_is_the_last
