# SPDX-License-Identifier: Apache-2.0

"""The patch of the page "Your first change" still applies."""

import pathlib
import re

from oslotest import base

ROOT = pathlib.Path(__file__).resolve().parents[4]
PATCH = ROOT / 'doc' / 'source' / 'contributor' / 'first-change.patch'


class FirstChangeTestCase(base.BaseTestCase):

    def test_patch_applies(self):
        files = re.split(r'^diff --git a/(\S+) .*\n', PATCH.read_text(),
                         flags=re.MULTILINE)[1:]
        self.assertTrue(files)
        for name, diff in zip(files[::2], files[1::2]):
            text = (ROOT / name).read_text()
            for hunk in re.split(r'^@@.*\n', diff, flags=re.MULTILINE)[1:]:
                before = ''.join(
                    line[1:] for line in hunk.splitlines(keepends=True)
                    if line[0] in ' -')
                self.assertIn(before, text)
