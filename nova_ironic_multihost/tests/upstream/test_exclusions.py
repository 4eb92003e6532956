# SPDX-License-Identifier: Apache-2.0

"""Each exclusion is still needed."""

import re
import unittest

from nova_ironic_multihost.tests.upstream import exclusions


def complaint(test_id, shows=''):
    """Say why a test of nova need not be excluded, or not for that reason.

    :param test_id: the id, i.e. module, class and method.
    :param shows: regular expression for what it ends with.
    :returns: a sentence, or None if the test fails as it should.
    """
    # The loader does not raise for a name it cannot find; it returns a test
    # that fails, which here would pass for a needed exclusion.
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromName(test_id)
    if loader.errors:
        return f'nova has no test {test_id}: remove its exclusion.'
    result = unittest.TestResult()
    suite.run(result)
    if result.wasSuccessful():
        return f'{test_id} passes against our driver: remove its exclusion.'
    text = (result.errors + result.failures)[0][1].rstrip()
    if not re.search(shows, text):
        return (f'{test_id} fails, and not with "{shows}": say in its '
                f'exclusion why.\n{text}')
    return None


class ExclusionsTestCase(unittest.TestCase):
    """One more test method for each excluded test is added below."""

    def test_passing_test_is_noticed(self):
        self.assertIn('passes', complaint(
            'nova.tests.unit.virt.ironic.test_driver.IronicDriverTestCase.'
            'test_validate_driver_loading'))

    def test_another_reason_is_noticed(self):
        test_id, exclusion = next(
            iter(exclusions.for_installed_nova().items()))
        self.assertIn('and not with', complaint(test_id, 'no such text'))
        self.assertIsNone(complaint(test_id, exclusion.shows))

    def test_vanished_test_is_noticed(self):
        self.assertIn('no test', complaint(
            'nova.tests.unit.virt.ironic.test_driver.IronicDriverTestCase.'
            'test_that_nova_never_had'))

    def test_exclusions_have_reasons(self):
        for test_id, exclusion in exclusions.EXCLUSIONS.items():
            self.assertTrue(exclusion.reason.endswith('.'), test_id)


def _make_test(test_id, exclusion):
    def test(self):
        problem = complaint(test_id, exclusion.shows)
        if problem:
            self.fail(problem)
    return test


for _id, _exclusion in exclusions.for_installed_nova().items():
    setattr(ExclusionsTestCase, 'test_needed_' + _id.replace('.', '_'),
            _make_test(_id, _exclusion))
