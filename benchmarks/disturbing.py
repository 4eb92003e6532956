# SPDX-License-Identifier: Apache-2.0

"""Random changes of nodes through Ironic's API, each noted with its moment."""

import collections
import concurrent.futures
import random
import time

from benchmarks import delays
from lab import enrolment
from lab import errors

#: Kind -> how often it is done, in percent.
KINDS = {'power': 15, 'provision state': 15, 'maintenance': 15, 'traits': 15,
         'properties': 15, 'resource class': 15, 'create': 5, 'delete': 5}

WORKERS = 4

#: Seconds for which a node may be busy, and between two questions about it.
PATIENCE = 120
PAUSE = 0.2

#: Provision state -> what is asked for, what it is afterwards.
_VERBS = {'enroll': ('manage', 'manageable'),
          'available': ('manage', 'manageable'),
          'manageable': ('provide', 'available')}


class Hand:
    """Changes some nodes, one after the other. Nobody else changes them.

    :param ironic: python-ironicclient v1 client.
    :param fields: what there is to know of a node.
    :param nodes: {uuid: content}.
    :param chance: random.Random.
    :param name: prefix of the names of the nodes that it makes.
    :ivar done: :class:`.delays.Change`, in their order.
    """

    def __init__(self, ironic, fields, nodes, chance, name):
        self._ironic = ironic
        self._node = ironic.node
        self._fields = fields
        self._nodes = dict(nodes)
        self._chance = chance
        self._name = name
        self._numbers = iter(range(1_000_000))
        self.done = []

    def change(self):
        """Do something to one of the nodes, or make one."""
        kind, = self._chance.choices(list(KINDS), list(KINDS.values()))
        fit = sorted(
            uuid for uuid, its in self._nodes.items()
            if kind != 'provision state' or not its['maintenance'])
        if kind == 'create' or not fit:
            uuid = enrolment.create(
                self._ironic, f'{self._name}-{next(self._numbers)}')
            self._note('create', uuid, time.time(), self._read(uuid))
            return
        uuid = self._chance.choice(fit)
        if kind == 'delete':
            self._node.delete(uuid)
            self._note(kind, uuid, time.time(), None)
            return
        done = getattr(self, '_' + kind.replace(' ', '_'))(
            uuid, self._nodes[uuid])
        at = time.time()
        self._note(kind, uuid, *(self._until(uuid, done) if done
                                 else (at, self._read(uuid))))

    def _note(self, kind, uuid, at, content):
        self.done.append(delays.Change(kind, uuid, at, content))
        if content is None:
            del self._nodes[uuid]
        else:
            self._nodes[uuid] = content

    def _read(self, uuid):
        return normal(self._node.get(uuid, fields=self._fields).to_dict(),
                      self._fields)

    def _until(self, uuid, done):
        """Wait until something is done; return when it was, and the node."""
        deadline = time.time() + PATIENCE
        while time.time() < deadline:
            at = time.time()
            found = self._read(uuid)
            if done(found):
                return at, found
            time.sleep(PAUSE)
        raise errors.LabError(f'Ironic does not change node {uuid} within '
                              f'{PATIENCE} s: {found}')

    def _power(self, uuid, its):
        wanted = 'off' if its['power_state'] == 'power on' else 'on'
        self._node.set_power_state(uuid, wanted)
        return lambda found: (
            found['power_state'] == f'power {wanted}'
            and found['target_power_state'] is None)

    def _provision_state(self, uuid, its):
        verb, wanted = _VERBS[its['provision_state']]
        self._node.set_provision_state(uuid, verb)
        return lambda found: found['provision_state'] == wanted

    def _maintenance(self, uuid, its):
        self._node.set_maintenance(uuid, not its['maintenance'])

    def _traits(self, uuid, its):
        self._node.set_traits(uuid, [
            f'CUSTOM_BENCH_{number}' for number in
            sorted(self._chance.sample(range(1000), 3))])

    def _properties(self, uuid, its):
        self._patch(uuid, '/properties/bench', str(next(self._numbers)))

    def _resource_class(self, uuid, its):
        self._patch(uuid, '/resource_class',
                    f'bench-{self._chance.randint(1, 20)}')

    def _patch(self, uuid, path, value):
        self._node.update(uuid, [
            {'op': 'add', 'path': path, 'value': value}])


def normal(found, fields):
    """Return what there is to know of a node; traits in their order."""
    return {name: sorted(found[name]) if name == 'traits' else found[name]
            for name in fields}


def disturb(ironic, nodes, fields, count, rate, seed, progress):
    """Make changes; return them, in the order of each node.

    :param nodes: {uuid: content}.
    :param count: of changes.
    :param rate: changes in a second, or fewer if Ironic takes longer.
    """
    uuids = sorted(nodes)
    hands = [Hand(ironic, fields, {
        uuid: nodes[uuid] for uuid in uuids[number::WORKERS]},
        random.Random(seed * WORKERS + number), f'bench-{seed}-{number}')
        for number in range(WORKERS)]
    begin = time.time()

    def work(number):
        for turn in range(number, count, WORKERS):
            time.sleep(max(0, begin + turn / rate - time.time()))
            hands[number].change()
            if turn and not turn % 100:
                progress.note(f'{time.time() - begin:6.1f} s          '
                              f'{turn} of {count} changes')

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    found = collections.defaultdict(list)
    for hand in hands:
        for change in hand.done:
            found[change.node].append(change)
    return dict(found)
