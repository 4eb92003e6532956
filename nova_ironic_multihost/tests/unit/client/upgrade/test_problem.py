# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client.upgrade import conf_settings


class WordsTestCase(base.BaseTestCase):

    def test_a_few_names_of_many(self):
        self.assertEqual('a, b', arguments.some(['a', 'b']))
        self.assertEqual('a, b and 1 more', arguments.some(list('abc'), 2))

    def test_what_is_not_said_to_stop_an_upgrade_does_not(self):
        self.assertFalse(conf_settings.Problem('Do it.').fatal)
