# SPDX-License-Identifier: Apache-2.0

"""Mechanisms that choose by the host alone."""

from lab.experiments.scheduler import stage as stages


def isolated(trial, stage):
    """A host that only some images may use."""
    image = stage.image('isolated', id=stages.ISOLATED_IMAGE)
    trial.lands('an isolated image', stage.of(stage.right), imageRef=image)
    trial.nowhere('an isolated image elsewhere', imageRef=image,
                  availability_zone='lab-left')
    trial.settle()


def disabled(trial, stage):
    """Nodes of a disabled compute can be used again once they have moved."""
    # Nodes do not move from one zone to another.
    stage.disband()
    with stage.disabled(stage.left):
        if not stage.await_leave(stage.left):
            trial.miss(f'nodes stay on {stage.left}, which is disabled')
        # A node that was pulled is offered again by the next audit.
        trial.clear()
        nodes = stage.of(stage.right)
        trial.lands(f'{len(stage.nodes)} servers with one compute disabled',
                    nodes, len(stage.nodes))
        trial.settle()
        trial.clear()
        with stage.disabled(stage.right):
            if not stage.await_barred():
                trial.miss('nodes of disabled computes without the trait')
            trial.nowhere('a server with all computes disabled')
            trial.settle()
    trial.clear()
    trial.lands('a server with all computes enabled', stage.nodes)
    trial.settle()
