# SPDX-License-Identifier: Apache-2.0

"""What came of the demo: told in sentences, and judged."""

import dataclasses

from lab.bench import criteria
from lab.bench import takeover


@dataclasses.dataclass
class Story:
    """What was measured; seconds unless it says otherwise.

    Filled in as the demo goes on, told at its end.
    """

    computes: int = 0
    nodes: int = 0
    servers: int = 0
    stack_up: float = 0.0
    split: tuple = ()
    boot: float = 0.0
    killed: str = ''
    free: int = 0            # nodes of the killed compute without a server
    stranded: int = 0        # servers of the killed compute
    noticed: float = 0.0
    arrived: float = 0.0
    moves: int = 0           # changes of owner after the kill
    again: float = 0.0
    again_on: str = ''
    taken: float | None = None       # from the fence; None: never
    taken_by: dict = dataclasses.field(default_factory=dict)
    rebooted: str = ''       # server that was to be rebooted
    waited: float | None = None      # until the first request was given up,
    #                                  from the fence; None: never
    rebooted_on: str = ''    # its compute at the second request
    reboot: float | None = None      # the second request; None: not done
    reboot_why: str = ''     # what happened instead
    reboots: list = dataclasses.field(default_factory=list)   # who did it
    up_again: float = 0.0
    returned: int = 0        # free nodes that it owns at the end
    moves_back: int = 0      # changes of owner after the start
    on_dead: int = 0         # free nodes on a compute that was not up
    after_return: dict = dataclasses.field(default_factory=lambda: {
        'changed': [], 'touched': [], 'deeds': {}})
    moved: dict = dataclasses.field(default_factory=dict)

    def lines(self):
        """The story in sentences."""
        yield (f'{self.computes} nova-computes shared {self.nodes} Ironic '
               f'nodes: {", ".join(map(str, self.split))}. The stack was up '
               f'in {self.stack_up:.0f} s.')
        yield f'{self.servers} servers were ACTIVE after {self.boot:.1f} s.'
        yield (f'{self.killed} was killed, with {_count(self.stranded)} on '
               f'it. nova noticed after {self.noticed:.1f} s, and '
               f'{self.arrived:.1f} s after the kill its {self.free} free '
               f'nodes belonged to live computes, in {self.moves} moves.')
        yield (f'With it still dead, another server was ACTIVE after '
               f'{self.again:.1f} s, on {self.again_on}.')
        if self.taken is not None:
            yield from self._taken_over()
        yield (f'{self.killed} was started again and up after '
               f'{self.up_again:.1f} s; in the end it had {self.returned} '
               f'free nodes, in {self.moves_back} moves. Meanwhile '
               + (f'up to {self.on_dead} free nodes were' if self.on_dead
                  else 'no free node was')
               + ' recorded on a compute that was not up.')
        if not self.failures():
            yield (f'Nothing happened twice: {self.killed} did not carry out '
                   'the first reboot, which was still in its queue, and '
                   'touched no machine of its former servers. No node moved '
                   'more than once when it went and once when it came back.')

    def failures(self):
        """What is not as it must be, in sentences."""
        found = []
        if self.taken is None:
            found.append(f'the servers of {self.killed} were not taken over '
                         'in time')
        else:
            if self.waited is None:
                found.append(f'the first reboot of {self.rebooted} was '
                             'neither done nor given up')
            if self.reboot is None:
                found.append(f'{self.rebooted} could not be rebooted on '
                             f'{self.rebooted_on}: {self.reboot_why}')
            elif self.reboots != [self.rebooted_on]:
                found.append(f'{self.rebooted} was rebooted by '
                             f'{", then ".join(self.reboots) or "nobody"}, '
                             f'and not once by {self.rebooted_on}')
            found += takeover.undisturbed(self.after_return, 'returned: ')
        if self.moved:
            found += criteria.unmet(self.moved, *criteria.MOVES)
        return found

    def _taken_over(self):
        shares = ', '.join(f'{host} has {count} of them' for host, count
                           in sorted(self.taken_by.items()))
        yield (f'{self.killed} was fenced, and {self.taken:.1f} s after that '
               f'its {_count(self.stranded)} had been taken over: {shares}.')
        if self.waited is not None:
            yield (f'A reboot of {self.rebooted}, asked for before anybody '
                   f'knew that {self.killed} was dead, was given up '
                   f'{self.waited:.1f} s after the fence.')
        if self.reboot is not None:
            yield (f'Asked for again, {self.rebooted} was rebooted by '
                   f'{self.rebooted_on}, its new compute, and ACTIVE after '
                   f'{self.reboot:.1f} s.')


def _count(servers):
    return f'{servers} server{"" if servers == 1 else "s"}'
