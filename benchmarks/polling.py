# SPDX-License-Identifier: Apache-2.0

"""What a peer poll costs: who is there, and that somebody has died.

One compute service of several looks, in the cloud of :mod:`.listing`: at rest,
and when the last of the hosts has just died. What follows from that is done:
records of free nodes are moved. Their audits come later.

Figures are requests to nova's conductor, placement and Ironic, seconds of wall
clock and of CPU, and how many nodes came.
"""

from benchmarks import filling
from benchmarks import measured

#: Seconds that are longer than it takes anybody to start: nova is told to take
#: who is silent for up for a day.
LONG = 100_000

#: The services that a peer poll asks.
ASKED = ('conductor', 'placement', 'ironic', 'keystone')


def measure(settings, options, progress, nodes, hosts):
    """Return what is measured in a cloud of a size.

    :param nodes: how many.
    :param hosts: how many compute services.
    """
    names = [f'compute-{number}' for number in range(1, hosts + 1)]
    filled = filling.Filling(settings, progress)
    machines = filling.machines(nodes, names)
    filled.fill(machines, names)
    found = {}
    with measured.Measured(
            settings, 'ours', (*options, *filling.HEARTBEATS)) as ask:
        with progress.step('two audits'):
            ask('audit')
            ask('audit')
        # The first one sees everybody for the first time.
        ask('peer_poll')
        with progress.step('a peer poll at rest'):
            found['rest'] = counted(ask('peer_poll'), settings)
        filled.kill(names[-1])
        ask('notice')
        filled.outlive()
        ask('later', LONG)
        with progress.step('a peer poll when a host has died'):
            found['death'] = counted(ask('peer_poll'), settings)
        with progress.step('the peer poll after that'):
            found['after'] = counted(ask('peer_poll'), settings)
    return {'nodes': nodes, 'hosts': hosts, 'died': sum(
        machine.owner == names[-1] for machine in machines), **found}


def counted(its, settings):
    """Return the figures of a peer poll, with the services by name.

    :param its: what :class:`.measured.Measured` returned.
    """
    asked = its.pop('asked')
    return {**{name: asked.get('conductor' if name == 'conductor' else str(
        settings.port(name)), 0) for name in ASKED},
        **{name: its[name] for name in ('wall', 'cpu', 'megabytes')},
        'Ironic CPU': its['ironic'], 'given': its['result']}


def table(found):
    """Return the figures as lines of text."""
    columns = (*ASKED, 'given')
    lines = [f'{found["died"]} nodes are recorded on the host that died',
             f'{"":8}' + ''.join(f'{name:>11}' for name in columns)
             + f'{"wall s":>9}{"client s":>10}{"Ironic s":>10}']
    lines += [f'{case:8}' + ''.join(f'{found[case][name]:11}'
                                    for name in columns)
              + f'{found[case]["wall"]:9.2f}{found[case]["cpu"]:10.3f}'
              f'{found[case]["Ironic CPU"]:10.2f}'
              for case in ('rest', 'death', 'after')]
    return lines
