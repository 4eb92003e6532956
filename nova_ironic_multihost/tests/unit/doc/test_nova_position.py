# SPDX-License-Identifier: Apache-2.0

"""What the documentation quotes of nova stands in nova."""

import pathlib
import re

from nova.conf import ironic
from oslotest import base

PAGE = (pathlib.Path(__file__).resolve().parents[4]
        / 'doc' / 'source' / 'reference' / 'nova-position.rst')

#: An indented paragraph of reStructuredText.
QUOTATION = re.compile(r'(?<=\n\n)(?:    \S.*\n)+')


def words(text):
    return ' '.join(text.split())


class NovaPositionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.quoted = [words(text) for text
                       in QUOTATION.findall(PAGE.read_text())]
        self.options = {option.name: option
                        for option in ironic.ironic_options}

    def test_peer_list(self):
        option = self.options['peer_list']
        self.assertEqual('28.0.0', option.deprecated_since)
        self.assertIn(words(option.deprecated_reason), self.quoted)

    def test_shard(self):
        help_text = words(self.options['shard'].help)
        self.assertEqual(1, sum(text in help_text for text in self.quoted))
