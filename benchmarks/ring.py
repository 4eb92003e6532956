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


"""How even is the ring, and what does that cost?

Prints a table as reStructuredText for numbers of partitions, hosts and nodes:
how much more than its fair share the fullest host gets, with nova's own 32
partitions in the first row. The documentation's table is this output.

    python -m benchmarks.ring
"""

import argparse
import random
import statistics
import sys
import time
import tracemalloc
import uuid

from nova_ironic_multihost.core import ring as hash_ring

PARTITIONS = (32, 128, 512, 1024, 2048, 4096)
HOSTS = (2, 3, 10, 30)
NODES = (30, 300, 1000, 10000, 100000)


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


def cost(host_count, partitions, generator):
    """Return (milliseconds, kibibytes) for one ring; the best of five."""
    names = hosts(host_count, generator)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        hash_ring.Ring(names, partitions)
        seconds.append(time.perf_counter() - start)
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


def main(argv=None):
    """Measure as the command line asks and print a table."""
    parser = argparse.ArgumentParser(
        description='Measure balance, build time and memory of the hash ring '
                    'for several numbers of partitions per host.')
    parser.add_argument('--rounds', type=int, default=10,
                        help='sets of host names for each cell; 100,000 '
                             'nodes take a third of them (default: '
                             '%(default)s)')
    parser.add_argument('--seed', type=int, default=1,
                        help='seed of the names and uuids '
                             '(default: %(default)s)')
    arguments = parser.parse_args(argv)
    generator = random.Random(arguments.seed)
    for host_count in HOSTS:
        print(f'{host_count} hosts\n{"~" * len(f"{host_count} hosts")}\n')
        rows = []
        for partitions in PARTITIONS:
            print(f'{host_count} hosts, {partitions} partitions',
                  file=sys.stderr)
            cells = []
            for node_count in NODES:
                rounds = arguments.rounds
                if node_count >= 100000:
                    rounds = max(1, rounds // 3)
                mean, worst = fullest(host_count, node_count, partitions,
                                      rounds, generator)
                cells.append(f'{mean:.2f} ({worst:.2f})')
            milliseconds, kibibytes = cost(host_count, partitions, generator)
            rows.append([partitions, *cells, f'{milliseconds:.1f}',
                         f'{kibibytes:.0f}'])
        table(['partitions', *(f'{count:,} nodes' for count in NODES),
               'build, ms', 'memory, KiB'], rows)


if __name__ == '__main__':
    main()
