# SPDX-License-Identifier: Apache-2.0

"""What a check has to say: nothing, or complaints.

Each judge of this package takes values and returns complaints. None means
that all is well.
"""

import dataclasses


class Unknown(Exception):
    """What a check has to know cannot be known; says why, and the remedy."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong, or may be: a sentence with the remedy.

    :param fatal: whether it stops an upgrade, or a switch to this driver.
    """

    sentence: str
    fatal: bool = False


def some(names: list[str], shown: int = 5) -> str:
    """Return names, the first few of them if there are many."""
    more = len(names) - shown
    return ', '.join(names[:shown]) + (f' and {more} more' if more > 0
                                       else '')


def counted(number: int, word: str) -> str:
    """Return a number of things: 1 node, 2 nodes."""
    return f'{number} {word}' + ('' if number == 1 else 's')
