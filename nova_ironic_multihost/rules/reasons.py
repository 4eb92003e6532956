# SPDX-License-Identifier: Apache-2.0

"""The rules in words: who owns a node.

:mod:`.ownership` implements them, and the documentation's table is made from
them. They are tried in this order; "I" is the host that decides. Only members
are preferred, so a host that is disabled, forced down or cut off keeps its
nodes (rules 1 and 4 to 6) and takes nothing.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Rule:
    """One row of the table; the documentation uses the emphasised word."""

    instance: str
    owner: str
    preferred: str
    outcome: str


#: Number -> rule.
RULES = {
    1: Rule('an instance of mine', 'any', 'any', 'mine'),
    2: Rule('an instance of another live compute service', 'any', 'any',
            'not mine'),
    3: Rule('an instance of a compute service that is down',
            'any but a live one that takes it itself',
            'I am its takeover target',
            'mine: *take over*, if ``[ironic_multihost]instance_takeover`` '
            'says so; else not mine'),
    4: Rule('an instance that nova has deleted',
            'me; or none, or a dead one', 'any; or yes',
            "mine, *leaked*: in use, and named to nova's reaper"),
    5: Rule('an instance that nova does not know',
            'me; or none, or a dead one', 'any; or yes',
            'mine, in use, never touched, warned about'),
    6: Rule('none, or one that is on no compute service', 'me', 'any',
            'mine: *keep*'),
    7: Rule('none', 'no record', 'yes', 'mine: *create*'),
    8: Rule('none', 'a dead one', 'yes',
            'mine: *adopt*, unless a build was sent there: it waits for that '
            'compute service, or for the request of the build to be '
            'forwarded to me'),
    9: Rule('none',
            'a live one of this partition, or of one that cannot have the '
            'node', 'yes',
            'mine: *pull*, if the node is idle'),
    10: Rule('none',
             'a live one of another partition that may have the node', 'any',
             'not mine, warned about'),
    11: Rule('anything else', '', '', 'not mine'),
}
