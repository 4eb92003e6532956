# SPDX-License-Identifier: Apache-2.0

"""nova's Ironic unit tests, minus the excluded ones."""

import unittest

from nova_ironic_multihost.tests.upstream import exclusions

#: What to load: modules of nova, and the one test elsewhere in nova that
#: builds the Ironic driver.
SUITES = (
    'nova.tests.unit.virt.ironic.test_driver',
    'nova.tests.unit.virt.ironic.test_patcher',
    'nova.tests.unit.compute.test_compute.ComputeTestCase'
    '.test_require_nw_info_update_for_baremetal',
)


def flatten(suite):
    """Yield each test case of a suite, however deep.

    :param suite: a unittest.TestSuite.
    """
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def load_tests(loader, standard_tests, pattern):
    """Put nova's tests in the place of this module's (unittest protocol)."""
    excluded = exclusions.for_installed_nova()
    return unittest.TestSuite(
        test for test in flatten(loader.loadTestsFromNames(SUITES))
        if test.id() not in excluded)
