# SPDX-License-Identifier: Apache-2.0

"""Play scenarios and print what came of each, as one line of JSON.

``name``; ``end``: 'shown', 'absent' or 'error'; ``seen``: what was seen, in a
sentence, or the error; ``seconds``. What went wrong in detail is on stderr.
"""

import importlib
import json
import sys
import time
import unittest

from nova_ironic_multihost.tests.functional.failures import base


def scenario(name):
    """Return the scenario of a module, ready to run."""
    module = importlib.import_module(f'{__package__}.{name}')
    case, = (
        member for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, base.FailureTestCase))
    return case('test')


def play(name):
    """Play a scenario; return what is printed of it."""
    case = scenario(name)
    result = unittest.TestResult()
    start = time.monotonic()
    case.run(result)
    seconds = time.monotonic() - start

    if case.end == 'absent' and result.wasSuccessful():
        end, seen = case.end, case.seen
    elif case.end == 'shown' and not result.errors:
        end, seen = case.end, case.seen
    else:
        report = '\n'.join(
            text for _, text in (*result.errors, *result.failures))
        print(f'{name}:\n{report}', file=sys.stderr, flush=True)
        end, seen = 'error', report.strip().rpartition('\n')[2]
    return {'name': name, 'end': end, 'seen': seen,
            'seconds': round(seconds, 1)}


def main():
    """Play the scenarios that the command line names."""
    for name in sys.argv[1:]:
        print(json.dumps(play(name)), flush=True)


main()
