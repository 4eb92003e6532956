# SPDX-License-Identifier: Apache-2.0

"""A section of our own in nova's Guru Meditation Reports.

nova-compute writes a report when it gets SIGUSR2 (oslo.reports). The sections
belong to a class, which is the only way to have one.
"""

from collections.abc import Callable
import weakref

from oslo_reports import guru_meditation_report

Report = guru_meditation_report.TextGuruMeditation


class ReportSection:
    """A section, from :meth:`begin` to :meth:`end`.

    nova's handler of signals makes the report, in the middle of anything that
    the main thread does: what makes the text must take no lock.

    :param title: what it is called.
    :param text: bound method that returns it. Whose it is, is not kept alive.
    """

    def __init__(self, title: str, text: Callable[[], str]) -> None:
        self._title = title
        self._text = weakref.WeakMethod(text)
        self._begun = False

    def begin(self) -> None:
        """Be in the reports, once."""
        if not self._begun:
            self._begun = True
            Report.register_section(self._title, self._generate)

    def end(self) -> None:
        """Be in no report any more."""
        if self._begun:
            self._begun = False
            # Pairs, of one type or another.
            sections = Report.persistent_sections
            sections[:] = [pair for pair in sections
                           if pair[1] != self._generate]

    def _generate(self) -> str:
        text = self._text()
        try:
            return text() if text is not None else 'It has ended.'
        except Exception as exc:  # noqa: BLE001
            # The rest of the report is wanted all the more.
            return f'It cannot be said: {exc!r}'
