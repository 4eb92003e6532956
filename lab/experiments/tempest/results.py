# SPDX-License-Identifier: Apache-2.0

"""Results of tests, and how two runs of them differ.

Pure. A run is a dict of name to :class:`Result`. When the preparation of a
class of tests fails, or the class is skipped, there is one result for all of
them: ``setUpClass (NAME)``.
"""

import collections
import dataclasses
import json
import re

PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'
#: In words of this module; what is neither, such as a test that never ended,
#: has failed.
_STATUS = {'success': PASSED, 'xfail': PASSED, 'skip': SKIPPED}
_PREPARATION = re.compile(r'\w+Class \((?P<name>.+)\)')
# "{0} tempest.api.x.Y.test_z [1.2s] ... ok", and without the seconds if the
# preparation was skipped.
_LINE = re.compile(r'\{\d+\} .* \.\.\. (?P<outcome>ok|FAILED|SKIPPED)\b')
# Of a message: what tells it from others stands at its beginning.
_LENGTH = 200


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a test.

    :ivar start: in seconds since the epoch, like stop
    :ivar worker: that ran it
    :ivar text: why it was skipped, or its traceback
    """

    status: str
    start: float = 0.0
    stop: float = 0.0
    worker: str = ''
    text: str = ''

    @property
    def reason(self):
        """The last line of the text, which says what went wrong."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        # Indented lines belong to a message of several lines.
        said = [line for line in lines if not line.startswith(' ')]
        return (said or lines or [''])[-1].strip()[:_LENGTH]


def parse(lines):
    """The run that :mod:`lab.experiments.tempest.stream` has printed."""
    found = {}
    for line in lines:
        row = json.loads(line)
        if row['status'] == 'exists':
            continue
        # In brackets are an id and attributes.
        name = row['id'].partition('[')[0]
        stop = row['stop'] or row['start'] or 0.0
        found[name] = Result(
            _STATUS.get(row['status'], FAILED), row['start'] or stop, stop,
            row['worker'], row['text'])
    return found


def progress(lines):
    """How many tests are over and how many failed, by what stestr prints.

    :returns: (number, number)
    """
    outcomes = [match['outcome'] for match in map(_LINE.match, lines)
                if match]
    return len(outcomes), outcomes.count('FAILED')


def tally(run):
    """How many passed, failed, were skipped."""
    counts = collections.Counter(result.status for result in run.values())
    return {status: counts[status] for status in (PASSED, FAILED, SKIPPED)}


def failed(run):
    """{name: reason} of what failed."""
    return {name: result.reason for name, result in sorted(run.items())
            if result.status == FAILED}


def worse(run, other):
    """Where a run came to less than another one.

    :returns: {name: reason} of what failed and did not fail in the other
        one, or passed there and neither passed nor failed
    """
    found = {name: reason for name, reason in failed(run).items()
             if name not in other or other[name].status != FAILED}
    unprepared = {class_of(name) for name in found if is_preparation(name)}
    for name, result in sorted(other.items()):
        if result.status != PASSED or class_of(name) in unprepared:
            continue
        if name not in run:
            found[name] = 'was not run'
        elif run[name].status == SKIPPED:
            found[name] = f'skipped: {run[name].reason}'
    return found


def class_of(name):
    """Name of the class that a test, or a preparation, belongs to."""
    match = _PREPARATION.fullmatch(name)
    return match['name'] if match else name.rpartition('.')[0]


def is_preparation(name):
    """Whether it is a result of a class and of no test."""
    return bool(_PREPARATION.fullmatch(name))


def in_flight(run, begin, end):
    """Classes of tests that were at work at some moment of a time.

    Tests of a class share servers. A class is at work from the end of the
    test before it, on the same worker, to its own last end: its preparation
    is not among the results.

    :param begin: seconds since the epoch
    :param end: likewise
    :returns: set of names
    """
    found = set()
    workers = collections.defaultdict(list)
    for name, result in run.items():
        workers[result.worker].append((result.stop, name))
    for results in workers.values():
        since = float('-inf')
        for stop, name in sorted(results):
            if since <= end and stop >= begin:
                found.add(class_of(name))
            since = stop
    return found
