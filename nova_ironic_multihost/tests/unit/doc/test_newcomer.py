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
        of_hosts = [step for step in steps if '# systemctl ' in step]
        self.assertEqual(3, len(of_hosts))
        for step in of_hosts:
            self.assertIn('   $ tools/lab ', step)
        for step in steps[1:]:
            self.assertTrue(step in of_hosts
                            or '   $ nova-ironic-multihost ' in step, step)

    def test_it_ends_with_a_fence_and_an_unfence(self):
        text = (SOURCE / 'user' / 'first-steps.rst').read_text()
        self.assertEqual(['fence', 'unfence'], re.findall(
            r'\n   \$ nova-ironic-multihost (\w*fence) compute-1 --wait 600\n'
            r'   compute-1 is ', text))
