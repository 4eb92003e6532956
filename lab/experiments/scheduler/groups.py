# SPDX-License-Identifier: Apache-2.0

"""Mechanisms that choose by the servers of a group."""


def anti_affinity(trial, stage):
    """Each server of the group on a host of its own."""
    hints = stage.group('anti-affinity')
    trial.lands('the first of a group', stage.nodes, hints=hints)
    for node in trial.settle():
        other = stage.right if node in stage.of(stage.left) else stage.left
        trial.lands('the second on the other host', stage.of(other),
                    hints=hints)
        trial.settle()
        trial.nowhere('the third with two hosts', hints=hints)
        trial.settle()


def affinity(trial, stage):
    """All servers of the group on one host."""
    hints = stage.group('affinity')
    trial.lands('the first of a group', stage.of(stage.left), hints=hints,
                availability_zone='lab-left')
    trial.settle()
    trial.nowhere('the second on another host', hints=hints,
                  availability_zone='lab-right')
    trial.settle()
    if len(stage.of(stage.left)) > 1:
        trial.lands('the second', stage.of(stage.left), hints=hints)
        trial.settle()
