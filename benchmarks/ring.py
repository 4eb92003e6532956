# SPDX-License-Identifier: Apache-2.0

"""How even is the ring, and what does that cost?

Prints a table as reStructuredText for numbers of partitions, hosts and nodes:
how much more than its fair share the fullest host gets, with nova's own 32
partitions in the first row. The documentation's tables are this output. At the
end: which part of the nodes moves when a host joins or leaves.

    tools/bench ring
"""

import random
import statistics
import sys
import time
import tracemalloc
import uuid

from nova_ironic_multihost.rules import ring as hash_ring

PARTITIONS = (32, 128, 512, 1024, 2048, 4096)
HOSTS = (2, 3, 10, 30)
NODES = (30, 300, 1000, 10000, 100000)

#: Where what moves is counted: nodes, partitions.
MOVED = 10000
COMPARED = (32, 1024)


def hosts(count, generator):
    """Return host names as operators give them, another set each time."""
    prefix = ''.join(generator.choices('abcdefghijklmnopqrstuvwxyz', k=6))
    return [f'{prefix}-compute-{number}' for number in range(count)]


def node_uuids(count, generator):
    """Return random uuids as Ironic makes them."""
    return [str(uuid.UUID(int=generator.getrandbits(128), version=4))
            for _ in range(count)]


def fullest(host_count, node_count, partitions, rounds, generator):
    """Return the fullest host's nodes over the mean: (mean, worst)."""
    ratios = []
    for _ in range(rounds):
        ring = hash_ring.Ring(hosts(host_count, generator), partitions)
        shares = ring.shares(node_uuids(node_count, generator))
        ratios.append(max(shares.values()) * host_count / node_count)
    return statistics.mean(ratios), max(ratios)


def moved(host_count, node_count, partitions, generator):
    """Return which parts of the nodes move when a host joins.

    :returns: (to the new host, between the others); when that host leaves
        the same nodes move back.
    """
    names = hosts(host_count + 1, generator)
    before = hash_ring.Ring(names[:-1], partitions)
    after = hash_ring.Ring(names, partitions)
    nodes = node_uuids(node_count, generator)
    news = [after.host_for(node) for node in nodes
            if after.host_for(node) != before.host_for(node)]
    came = news.count(names[-1])
    return came / node_count, (len(news) - came) / node_count


def cost(host_count, partitions, generator):
    """Return (milliseconds of CPU, kibibytes) for one ring; best of five."""
    names = hosts(host_count, generator)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        hash_ring.Ring(names, partitions)
        seconds.append(time.process_time() - start)
    tracemalloc.start()
    ring = hash_ring.Ring(names, partitions)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del ring
    return min(seconds) * 1000, size / 1024


def table(heading, rows):
    """Print a reStructuredText list-table."""
    print('.. list-table::\n   :header-rows: 1\n')
    for row in [heading, *rows]:
        for position, cell in enumerate(row):
            print(f'   {"  " if position else "* "}- {cell}')
    print()


def measure(rounds, seed):
    """Print the tables.

    :param rounds: sets of host names for each cell.
    :param seed: of the names and uuids.
    """
    generator = random.Random(seed)
    for host_count in HOSTS:
        print(f'{host_count} hosts\n{"~" * len(f"{host_count} hosts")}\n')
        table(['partitions', *(f'{count:,} nodes' for count in NODES),
               'build, ms', 'memory, KiB'],
              [_row(host_count, partitions, rounds, generator)
               for partitions in PARTITIONS])
    print('A host joins, or leaves\n~~~~~~~~~~~~~~~~~~~~~~~\n')
    table(['hosts', 'partitions', 'fair share', 'moves to or from it',
           'between others'], [
        [host_count, partitions, f'{100 / (host_count + 1):.1f} %',
         *(f'{100 * part:.1f} %' for part in moved(
             host_count, MOVED, partitions, generator))]
        for host_count in HOSTS for partitions in COMPARED])


def _row(host_count, partitions, rounds, generator):
    print(f'{host_count} hosts, {partitions} partitions', file=sys.stderr)
    cells = []
    for node_count in NODES:
        some = max(1, rounds // 3) if node_count >= 100000 else rounds
        mean, worst = fullest(host_count, node_count, partitions, some,
                              generator)
        cells.append(f'{mean:.2f} ({worst:.2f})')
    milliseconds, kibibytes = cost(host_count, partitions, generator)
    return [partitions, *cells, f'{milliseconds:.1f}', f'{kibibytes:.0f}']
