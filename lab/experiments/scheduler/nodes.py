# SPDX-License-Identifier: Apache-2.0

"""Mechanisms that choose by what a node is or has."""

import json

from lab.experiments.scheduler import stage as stages


def capabilities(trial, stage):
    """A capability of the node itself."""
    trial.lands('rack r1', [stage.rack],
                flavorRef=stage.flavor(capabilities__lab_rack='r1'))
    trial.nowhere('rack r9',
                  flavorRef=stage.flavor(capabilities__lab_rack='r9'))
    trial.settle()


def traits(trial, stage):
    """Traits that a node must have, and must not have."""
    def flavor(trait, what):
        return stage.flavor(**{f'trait:{trait}': what})

    trial.lands('a trait that one node has', [stage.gpu],
                flavorRef=flavor(stages.TRAIT_ONE, 'required'))
    trial.lands('not a trait that all but one have', [stage.new],
                flavorRef=flavor(stages.TRAIT_MOST, 'forbidden'))
    trial.nowhere('a trait that none has',
                  flavorRef=flavor(stages.TRAIT_NONE, 'required'))
    trial.nowhere('not a trait that all have',
                  flavorRef=flavor(stages.TRAIT_ALL, 'forbidden'))
    trial.settle()


def image_properties(trial, stage):
    """What the image asks of the node."""
    trial.lands('an image for aarch64', [stage.arm],
                imageRef=stage.image('arm', hw_architecture='aarch64'))
    trial.nowhere('an image for ppc64le',
                  imageRef=stage.image('power', hw_architecture='ppc64le'))
    trial.settle()


def query(trial, stage):
    """The node by its name."""
    def named(node):
        return {'query': json.dumps(['=', '$hypervisor_hostname', node])}

    trial.lands('one node by name', [stage.new], hints=named(stage.new))
    trial.nowhere('a node that does not exist',
                  hints=named(stages.ISOLATED_IMAGE))
    trial.settle()
