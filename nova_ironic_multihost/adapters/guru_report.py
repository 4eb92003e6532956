# SPDX-License-Identifier: Apache-2.0

"""A section in nova's Guru Meditation Reports (oslo.reports, SIGUSR2)."""

from collections.abc import Callable
import weakref

from oslo_reports import guru_meditation_report

Report = guru_meditation_report.TextGuruMeditation


class ReportSection:
    """A section, from :meth:`begin` to :meth:`end`.

    :param text: bound method, held weakly. A signal handler calls it, so it
        must take no lock.
    """

    def __init__(self, title: str, text: Callable[[], str]) -> None:
        self._title = title
        self._text = weakref.WeakMethod(text)
        self._begun = False

    def begin(self) -> None:
        """Add the section, once."""
        if not self._begun:
            self._begun = True
            Report.register_section(self._title, self._generate)

    def end(self) -> None:
        """Remove the section."""
        if self._begun:
            self._begun = False
            sections = Report.persistent_sections
            sections[:] = [pair for pair in sections
                           if pair[1] != self._generate]

    def _generate(self) -> str:
        text = self._text()
        try:
            return text() if text is not None else 'It has ended.'
        except Exception as exc:  # noqa: BLE001
            return f'This section has failed: {exc!r}'
