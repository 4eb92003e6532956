# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost import exception


class ConfigurationContradictionTestCase(base.BaseTestCase):

    def test_message_holds_every_sentence(self):
        error = exception.ConfigurationContradiction(['Change a.',
                                                      'Change b.'])
        self.assertIn('Change a. Change b.', str(error))
        self.assertEqual(('Change a.', 'Change b.'), error.contradictions)
