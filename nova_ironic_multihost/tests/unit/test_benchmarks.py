# SPDX-License-Identifier: Apache-2.0

"""The unit tests of the benchmarks, which live with them."""

TOP = '.'
PLACE = 'benchmarks/tests'


def load_tests(loader, tests, pattern):
    """Find them as if the run had begun there, under their own names."""
    return loader.discover(PLACE, top_level_dir=TOP)
