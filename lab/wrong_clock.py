# SPDX-License-Identifier: Apache-2.0

"""Run a Python program with a clock that is wrong.

``python -m lab.wrong_clock SECONDS PROGRAM ARGUMENT...``. The program reads
the time of day from ``time.time`` and ``oslo_utils.timeutils``, as nova does;
both are SECONDS ahead, or behind if that is negative. How long something takes
is measured with the monotonic clock, which is right.

The library libfaketime does the same to any program, but ``time.sleep`` of
Python 3.11 fails under it.
"""

import datetime
import runpy
import sys
import time

from oslo_utils import timeutils


def shift(seconds):
    """Shift the time of day of this process.

    :param seconds: by so many, ahead or, if negative, behind
    """
    right_time, right_now = time.time, timeutils.utcnow

    def now(*args, **options):
        return right_now(*args, **options) + datetime.timedelta(
            seconds=seconds)

    time.time = lambda: right_time() + seconds
    timeutils.utcnow = now


def main(argv):
    """Shift the time and become the program.

    :param argv: seconds, path of the program, its arguments
    """
    seconds, program, *arguments = argv
    shift(int(seconds))
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name='__main__')


if __name__ == '__main__':
    main(sys.argv[1:])
