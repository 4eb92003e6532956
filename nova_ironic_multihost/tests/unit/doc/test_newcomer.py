# SPDX-License-Identifier: Apache-2.0

"""A newcomer comes from the README to the page that explains what he saw."""

import pathlib
import re

from oslotest import base

ROOT = pathlib.Path(__file__).resolve().parents[4]
SOURCE = ROOT / 'doc' / 'source'

#: Each page, and how it leads to the next one.
CHAIN = (
    (ROOT / 'README.rst', '/doc/source/user/install.rst>'),
    (SOURCE / 'user' / 'install.rst', 'Next: :doc:`check`'),
    (SOURCE / 'user' / 'check.rst', 'Next: :ref:`kill-one`'),
    (SOURCE / 'user' / 'first-steps.rst', ':doc:`/reference/ownership`'),
    (SOURCE / 'reference' / 'ownership.rst', ':doc:`takeover`'),
)

#: The heading of a step.
STEP = re.compile(r'^\d\. .+\n=+$', re.MULTILINE)

CONSOLE = re.compile(
    r'^ *\.\. code-block:: console$|^ +pip install ', re.MULTILINE)


class NewcomerTestCase(base.BaseTestCase):

    def test_each_page_leads_to_the_next(self):
        self.assertEqual([], [path.name for path, link in CHAIN
                              if link not in path.read_text()])

    def test_each_page_has_a_command(self):
        self.assertEqual([], [path.name for path, _ in CHAIN
                              if not CONSOLE.search(path.read_text())])

    def test_each_step_has_a_command_for_a_cloud_and_for_the_lab(self):
        steps = STEP.split((SOURCE / 'user' / 'first-steps.rst').read_text())
        self.assertEqual(7, len(steps))
        self.assertEqual([2] * 6, [
            step.count('.. code-block:: console') for step in steps[1:]])
        self.assertEqual([1] * 6, [
            step.count('$ tools/lab ') for step in steps[1:]])
