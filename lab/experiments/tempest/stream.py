# SPDX-License-Identifier: Apache-2.0

"""Print what a subunit stream says of tests, one line of JSON for each.

The Python of Tempest's environment runs this as a script: the lab has no
subunit.
"""

import json
import sys

import subunit
import testtools


def row(test):
    """The events of a test.

    :param test: what testtools.StreamToDict makes of it
    :returns: dict of id, status, start and stop (seconds since the epoch,
        None if the stream does not say), worker, and text: why it was
        skipped, or the traceback
    """
    start, stop = (time and time.timestamp() for time in test['timestamps'])
    text = '\n'.join(
        content.as_text() for name, content in sorted(
            test['details'].items()) if name.startswith(
                ('reason', 'traceback')))
    workers = [tag for tag in test['tags'] if tag.startswith('worker-')]
    return {'id': test['id'], 'status': test['status'], 'start': start,
            'stop': stop, 'worker': min(workers, default=''), 'text': text}


def main(stream, output):
    """Read a stream to its end."""
    result = testtools.StreamToDict(
        lambda test: print(json.dumps(row(test)), file=output))
    result.startTestRun()
    subunit.ByteStreamToStreamResult(
        stream, non_subunit_name='stdout').run(result)
    result.stopTestRun()


if __name__ == '__main__':
    main(sys.stdin.buffer, sys.stdout)
