# SPDX-License-Identifier: Apache-2.0

"""Servers that stay, and what must not happen to them."""


def lost(residents, found):
    """What is not as it was with servers that nobody has touched.

    :param residents: their uuids
    :param found: {uuid: description by nova} of all servers
    :returns: list of sentences
    """
    states = {uuid: found[uuid]['status'] if uuid in found else 'gone'
              for uuid in residents}
    return [f'{uuid} is {state}' for uuid, state in states.items()
            if state != 'ACTIVE']


def placed(seen, name):
    """How many servers a compute has.

    :param seen: an Observation
    """
    return sum(1 for i in seen.instances
               if i.host_key == name.lower() and not i.deleted)


def busiest(bench):
    """Name of the compute that has most servers, then most nodes."""
    seen = bench.recorder.view
    return max(bench.computes.names(), key=lambda name: (
        placed(seen, name), len(seen.owned_by(name))))


class Adoptions:
    """Counts servers that were built and got another compute."""

    def __init__(self):
        self._hosts = {}
        self._excused = None
        self.count = 0

    def excuse(self, host):
        """Do not count servers that this compute loses."""
        self._excused = host.lower()

    def see(self, seen):
        """Learn from an Observation."""
        hosts = {i.uuid: i.host_key for i in seen.instances
                 if i.vm_state in ('active', 'stopped') and i.host_key}
        self.count += sum(
            1 for uuid, host in hosts.items()
            if self._hosts.get(uuid, host) not in (host, self._excused))
        self._hosts |= hosts
