# SPDX-License-Identifier: Apache-2.0

"""A problem that an upgrade check reports."""

import dataclasses


class Unknown(Exception):
    """An input of a check is not known; the message names the remedy."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A real or possible problem: a sentence with the remedy.

    :param fatal: it stops an upgrade, or a switch to this driver.
    """

    sentence: str
    fatal: bool = False


def some(names: list[str], shown: int = 5) -> str:
    """Return names in words, only the first few of many."""
    more = len(names) - shown
    return ', '.join(names[:shown]) + (f' and {more} more' if more > 0
                                       else '')


def counted(number: int, word: str) -> str:
    """Return a number with its noun: 1 node, 2 nodes."""
    return f'{number} {word}' + ('' if number == 1 else 's')
