# SPDX-License-Identifier: Apache-2.0

"""A section of our own in nova's Guru Meditation Reports."""

import pathlib
import re

import nova
from oslo_reports import guru_meditation_report
from oslotest import base

from nova_ironic_multihost.telemetry import status_server


class Version:
    """What nova's version module offers to a report."""

    vendor_string = product_string = version_string_with_package = (
        staticmethod(lambda: 'v'))


class Owner:
    """Whose text it is."""

    text = 'what is seen'
    error = None

    def say(self):
        if self.error is not None:
            raise self.error
        return self.text


class SectionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.owner = Owner()
        self.section = status_server.ReportSection('Ours', self.owner.say)
        self.addCleanup(self.section.end)

    def report(self):
        """Return the sections that were registered, in text."""
        one = status_server.Report(Version())
        one._readd_sections()
        # They are the last ones. That of green threads looks at all objects,
        # and fails over a weakref.proxy that another test has left.
        registered = len(
            getattr(status_server.Report, 'persistent_sections', ()))
        first = len(one.sections) - registered
        return [text for text in map(str, one.sections[first:])
                if re.match(r'=+\n=+ +Ours +=+\n', text)]

    def test_it_is_in_the_report_of_nova_compute(self):
        # To import it is to choose a kind of threads.
        main = pathlib.Path(nova.__file__).parent / 'cmd' / 'compute.py'
        self.assertIn('gmr.TextGuruMeditation.setup_autorun(',
                      main.read_text())
        self.assertIs(guru_meditation_report.TextGuruMeditation,
                      status_server.Report)
        self.section.begin()
        self.section.begin()
        [text] = self.report()
        self.assertIn('what is seen', text)

    def test_it_is_as_of_the_report(self):
        self.section.begin()
        self.owner.text = 'another'
        self.assertIn('another', self.report()[0])

    def test_it_ends(self):
        self.section.begin()
        self.section.end()
        self.section.end()
        self.assertEqual([], self.report())

    def test_nobody_is_kept_alive_for_it(self):
        self.section.begin()
        del self.owner
        self.assertIn('It has ended.', self.report()[0])

    def test_what_fails_leaves_the_rest_of_the_report(self):
        self.section.begin()
        self.owner.error = OSError('no text')
        self.assertIn('has failed', self.report()[0])
