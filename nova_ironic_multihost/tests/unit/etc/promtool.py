# SPDX-License-Identifier: Apache-2.0

"""Prometheus' own tool, which checks rules and plays them."""

import os
import shutil
import subprocess

#: tools/test says here where it is: then the tests that need it are run.
VARIABLE = 'PROMTOOL'


def run(test, *argv):
    """Run it; skip the test if there is none and nobody has promised one.

    :param test: the test case, which fails if it fails
    """
    promised = os.environ.get(VARIABLE)
    program = shutil.which(promised or 'promtool')
    if promised and not program:
        test.fail(f'There is no {promised}. Install promtool, which Debian '
                  'has in the package promtool (12: prometheus), or see why '
                  'tools/test could not fetch it: '
                  '.tools/logs/install-promtool.log')
    if not program:
        test.skipTest('There is no promtool; Debian has it in the package '
                      'promtool (12: prometheus).')
    done = subprocess.run(
        [program, *map(str, argv)], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    test.assertEqual(0, done.returncode, done.stdout)
