# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
