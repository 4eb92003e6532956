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
