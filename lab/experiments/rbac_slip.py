# SPDX-License-Identifier: Apache-2.0

"""nova's user loses sight of all nodes for five audits, and sees them again.

Someone makes a mistake in Ironic's policy: an empty list instead of all
nodes, and 404 for each of them. Figures: records and providers (how many
there were before, the fewest meanwhile, and after), deleted (nodes whose
record or provider was gone at some moment), recreated (nodes whose record or
provider is another one afterwards), blind (seconds that it lasted),
usable_after (seconds from its end until placement would give each free node
away), moves, quiet and moves_after_quiet, in two audits after that.

Must be: deleted and recreated 0, quiet.
"""

from lab.bench import criteria
from lab import configuration

AUDITS = 5


def run(bench):
    """Hide the nodes, show them, watch; returns the figures."""
    before = bench.recorder.view
    health_probe = Witness(before)
    bench.recorder.listen(health_probe.see)
    hidden = bench.note('nova sees no node')
    _let_nova_see(bench, False)
    try:
        bench.recorder.watch(AUDITS * bench.audit + 1)
    finally:
        _let_nova_see(bench, True)
    shown = bench.note('nova sees all nodes')
    usable = bench.recorder.wait_for(
        _usable, 60 + 3 * bench.audit, 'free nodes being usable again')
    rest = bench.settle()
    after = bench.recorder.view
    return {'records': [len(before.records), health_probe.fewest_records,
                        len(after.records)],
            'providers': [len(before.providers), health_probe.fewest_providers,
                          len(after.providers)],
            'deleted': len(health_probe.deleted),
            'recreated': len(recreated(before, after)),
            'blind': round(shown - hidden, 1),
            'usable_after': round(usable - shown, 1),
            **bench.moved(hidden),
            'quiet': rest.quiet,
            'moves_after_quiet': rest.late}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(
        figures,
        criteria.none('deleted', 'records or providers of {} nodes were '
                      'deleted although Ironic has them'),
        criteria.none('recreated', '{} nodes have another record or provider '
                      'than before'),
        criteria.QUIET)


class Witness:
    """Remembers what was gone at some moment.

    :param before: the Observation in which all was there
    """

    def __init__(self, before):
        self._records = set(before.owner_of)
        self._providers = set(before.provider_of)
        self.fewest_records = len(before.records)
        self.fewest_providers = len(before.providers)
        self.deleted = set()

    def see(self, seen):
        """Look at an Observation."""
        self.fewest_records = min(self.fewest_records, len(seen.records))
        self.fewest_providers = min(self.fewest_providers,
                                    len(seen.providers))
        self.deleted |= self._records - seen.owner_of.keys()
        self.deleted |= self._providers - seen.provider_of.keys()


def recreated(before, after):
    """Nodes whose record or provider is not the one that it was."""
    def identities(seen):
        return ({r.node: r.row for r in seen.records},
                {p.uuid: p.id for p in seen.providers})

    return {node
            for was, is_ in zip(identities(before), identities(after),
                                strict=True)
            for node in was if is_.get(node, was[node]) != was[node]}


def _let_nova_see(bench, whether):
    # Ironic reads the file again when it has changed.
    configuration.write(bench.settings.conf,
                        configuration.ironic_policy(whether))


def _usable(seen):
    free = [n.uuid for n in seen.nodes if not n.instance_uuid]
    providers = [seen.provider_of.get(node) for node in free]
    return (all(p and p.reserved < p.total for p in providers)
            and all(seen.owner_of.get(node) in seen.up_hosts
                    for node in free))
