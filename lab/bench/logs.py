# SPDX-License-Identifier: Apache-2.0

"""What the computes log in the course of an experiment."""

import collections
import re

_LEVEL = re.compile(r' (ERROR|WARNING) ')
# Of a line: what differs between two of the same.
_REQUEST = re.compile(r'\[(None )?(req-|-)[^]]*\] ?')
_UUID = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_NUMBER = re.compile(r'\b\d+(\.\d+)?\b')
#: How much of a line tells one from another.
_LENGTH = 160


class Logs:
    """The logs of all computes that there are, from now on.

    :param computes: :class:`lab.computes.Computes`
    """

    def __init__(self, computes):
        self._sizes = {log: log.stat().st_size if log.exists() else 0
                       for log in map(computes.log, computes.names())}

    def text(self):
        """What has been written since, log after log."""
        return ''.join(map(self._since, self._sizes))

    def _since(self, log):
        if not log.exists():
            return ''
        with open(log, errors='replace') as text:
            text.seek(self._sizes[log])
            return text.read()


def without_uuids(text):
    """The same text for things that differ in their uuids alone."""
    return _UUID.sub('UUID', text)


def error_lines(text):
    """How many lines of a log tell of errors, and how many tracebacks."""
    return {'ERROR': len(list(_of_level(text, 'ERROR'))),
            'Traceback': sum('Traceback' in line
                             for line in text.splitlines())}


def messages(text, level):
    """What a log says on one level, each message with its number.

    :param level: 'ERROR' or 'WARNING'
    :returns: dict of message, without what differs from one to the next, to
        number, the most frequent first
    """
    found = collections.Counter()
    for line in _of_level(text, level):
        message = _REQUEST.sub('', without_uuids(line))
        found[_NUMBER.sub('N', message)[:_LENGTH]] += 1
    return dict(found.most_common())


def _of_level(text, level):
    """Yield what follows the level in lines of that level."""
    for line in text.splitlines():
        if (match := _LEVEL.search(line)) and match.group(1) == level:
            yield line[match.end():]
