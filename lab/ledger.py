# SPDX-License-Identifier: Apache-2.0

"""What became of servers and machines, and who did it.

More than an Observation has: a machine's last change by Ironic, and the
instance actions, in which nova writes down which host did what. Two of these
taken at rest tell whether anything was done in between.
"""

import dataclasses

from lab import view


@dataclasses.dataclass(frozen=True)
class Server:
    """A server as nova has it; ``power`` is nova's number for it."""

    name: str
    host: str | None
    vm_state: str
    task_state: str | None = None
    power: int = 1
    deleted: bool = False


@dataclasses.dataclass(frozen=True)
class Machine:
    """A node as Ironic has it.

    ``changed`` is when Ironic last wrote to it, to the second; it does so
    for each operation, and not while nobody asks for one.
    """

    instance_uuid: str | None
    provision_state: str
    power_state: str | None
    changed: object = None


@dataclasses.dataclass(frozen=True)
class Deed:
    """One event of an instance action: what a host did to a server.

    ``result`` is Success, Error or None while it goes on.
    """

    server: str
    what: str
    host: str
    began: float
    result: str | None = None


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Servers and machines by uuid, and the deeds in their order."""

    servers: dict
    machines: dict
    deeds: tuple = ()


def read(settings, servers, machines):
    """The ledger of some servers and some machines as it is now.

    :param servers: uuids of servers, living or deleted
    :param machines: uuids of Ironic nodes
    """
    marks = _marks(servers)
    found, deeds = view.fetch(
        settings, 'nova_cell1',
        ('SELECT uuid, COALESCE(hostname, uuid), host, vm_state, task_state,'
         ' power_state, deleted FROM instances'
         f' WHERE uuid IN ({marks})', tuple(servers)),
        ("SELECT a.instance_uuid, e.event, COALESCE(e.host, ''),"
         ' e.start_time, e.result FROM instance_actions a'
         ' JOIN instance_actions_events e ON e.action_id = a.id'
         f' WHERE a.instance_uuid IN ({marks})'
         ' ORDER BY e.id', tuple(servers)))
    [nodes] = view.fetch(settings, 'ironic', (
        'SELECT uuid, instance_uuid, provision_state, power_state,'
        f' updated_at FROM nodes WHERE uuid IN ({_marks(machines)})',
        tuple(machines)))
    return Ledger(
        {uuid: Server(name, host, vm_state or '', task_state, power or 0,
                      bool(deleted))
         for uuid, name, host, vm_state, task_state, power, deleted
         in found},
        {uuid: Machine(instance, state or '', power, changed)
         for uuid, instance, state, power, changed in nodes},
        tuple(Deed(server, what, host, view.epoch(began), result)
              for server, what, host, began, result in deeds))


def differences(before, after):
    """What is not as it was, in sentences.

    That Ironic has written to a machine is no difference here; see
    :func:`touched`.
    """
    found = []
    for uuid, was in before.servers.items():
        is_ = after.servers[uuid]
        found += [f'{was.name}: {field} was {old}, is {new}'
                  for field, old, new in _unlike(was, is_)]
    for uuid, was in before.machines.items():
        is_ = after.machines[uuid]
        found += [f'machine {uuid}: {field} was {old}, is {new}'
                  for field, old, new in _unlike(was, is_)
                  if field != 'changed']
    return found


def touched(before, after):
    """Uuids of machines that Ironic has written to in between."""
    return {uuid for uuid, was in before.machines.items()
            if after.machines[uuid].changed != was.changed}


def deeds_of(before, after, host):
    """What a host did, or tried, between two ledgers.

    :param host: any spelling
    :returns: {'event: result': how many}, in the order of time
    """
    found = {}
    for deed in after.deeds[len(before.deeds):]:
        if deed.host.lower() == host.lower():
            key = f'{deed.what}: {deed.result or "not ended"}'
            found[key] = found.get(key, 0) + 1
    return found


def lost(ledger):
    """Servers without their machine, as names.

    A server that is active or stopped has one that Ironic holds for it and
    has deployed.
    """
    held = {machine.instance_uuid for machine in ledger.machines.values()
            if machine.provision_state in ('active', 'rescue')}
    return sorted(server.name for uuid, server in ledger.servers.items()
                  if server.vm_state in ('active', 'stopped', 'rescued')
                  and not server.deleted and uuid not in held)


def _unlike(was, is_):
    for field in dataclasses.fields(was):
        old, new = getattr(was, field.name), getattr(is_, field.name)
        if old != new:
            yield field.name, old, new


def _marks(values):
    return ', '.join(['%s'] * len(values)) or "''"
