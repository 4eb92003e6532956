# SPDX-License-Identifier: Apache-2.0

"""Run an experiment on a lab that is up, judge it, keep what was seen."""

import json
import time

from lab.bench import bench as benches
from lab.bench import criteria
from lab import errors
from lab import timeline
from nova_ironic_multihost.client import findings as consistency

SETTLE = 90
# Seconds before the first event that a timeline shows.
LEAD = 4.0


def measure(name, module, settings, progress, shape, choices):
    """Run an experiment; returns its figures, those of all, the verdict.

    The timeline, a picture of it and the figures are kept below the lab's
    directory.

    :param name: of the experiment
    :param module: of the experiment
    :param settings: :class:`lab.settings.Settings`
    :param progress: :class:`lab.progress.Progress`
    :param shape: what :meth:`lab.stack.Stack.shape` returned
    :param choices: keyword arguments of its ``run``
    :raises LabError: when the lab is not fit for it, or the experiment does
        not come to its end
    """
    from lab import computes
    from lab import view

    services = computes.Computes(settings)
    cold = getattr(module, 'COLD', False)
    if not cold:
        _be_ready(settings, services)
    kept = settings.directory / 'timelines' / (
        f'{name}-{shape["driver"]}-{time.strftime("%Y%m%d-%H%M%S")}.json')
    with timeline.recorder(settings) as recorder:
        bench = benches.of_lab(settings, progress.note, recorder,
                               shape['driver'], shape['options'])
        # Nodes may have moved just now: for an audit more their old owners
        # take them for theirs.
        if not cold and not bench.settle().quiet:
            progress.note('Nodes have moved all the time so far; the '
                          'experiment begins nevertheless.')
        started = time.monotonic()
        begin = max(0.0, bench.recorder.now() - LEAD)
        servers = sum(1 for i in recorder.view.instances if not i.deleted)
        conditions = {
            'experiment': name, 'release': shape['release'],
            'driver': shape['driver'], 'computes': len(shape['computes']),
            'nodes': shape['nodes'],
            'servers_before': servers, 'options': list(shape['options'])}
        try:
            figures = module.run(bench, **choices)
        except timeline.NeverHappened as error:
            timeline.save(recorder.timeline.since(begin), kept, **conditions)
            raise errors.LabError(
                f'{error}. What was seen until then: {kept}') from error
        seconds = time.monotonic() - started
        _, found = consistency.wait(lambda: view.read(settings), SETTLE)
        leaked = len(recorder.view.leaked())
        recorded = recorder.timeline
    result = {**conditions, 'seconds': round(seconds, 1), **figures,
              'leaked': leaked, 'consistent': not found,
              'findings': _by_kind(found)}
    result |= verdict(module, result)
    timeline.save(recorded.since(begin), kept, **conditions)
    result['timeline'] = str(kept)
    result['picture'] = _draw(recorded.since(begin), kept, name, shape)
    kept.with_suffix('.figures.json').write_text(json.dumps(result) + '\n')
    for finding in found:
        progress.note(f'{finding.kind}: {finding.sentence}')
    return result


def verdict(module, figures):
    """Whether an experiment's figures are what they must be.

    :param module: the experiment
    :param figures: dict of name to value
    :returns: dict of verdict ('pass' or 'fail') and failed, sentences
    """
    failed = [*module.failures(figures),
              *criteria.unmet(figures, criteria.CONSISTENT)]
    return {'verdict': 'fail' if failed else 'pass', 'failed': failed}


def _be_ready(settings, services):
    """Insist on a lab in which nothing is broken yet."""
    from lab import view

    for name in services.names():
        state = services.process_state(name)
        if state != 'running':
            raise errors.LabError(
                f'{name} is {state}; an experiment begins with all computes '
                f'running: tools/lab compute start {name} (or resume), or '
                'take the lab down and let the experiment bring up its own')
    _, found = consistency.wait(lambda: view.read(settings), SETTLE)
    if found:
        raise errors.LabError(
            f'The lab is not consistent to begin with '
            f'({found[0].sentence}). Start afresh with: tools/lab down')


def is_ready(settings):
    """Whether nothing is broken in a lab that is up."""
    from lab import computes

    try:
        _be_ready(settings, computes.Computes(settings))
    except errors.LabError:
        return False
    return True


def _by_kind(found):
    kinds = {}
    for finding in found:
        kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
    return kinds


def _draw(recorded, kept, name, shape):
    from lab import picture

    title = (f'{name}: {len(shape["computes"])} computes, '
             f'{shape["nodes"]} nodes, driver: {shape["driver"]}')
    return str(picture.draw(recorded, kept.with_suffix('.png'), title))
