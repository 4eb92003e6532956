# SPDX-License-Identifier: Apache-2.0

"""The state of a compute service in a Guru Meditation Report (SIGUSR2)."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import weakref

from oslo_reports import guru_meditation_report

from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.health import StatusSnapshot
from nova_ironic_multihost.rules import ownership

TITLE = 'Ironic multi-host'

#: The most uuids that are shown of each kind of pending work.
SHOWN = 20

Report = guru_meditation_report.TextGuruMeditation


def text(picture: StatusSnapshot) -> str:
    """Return the text of the section."""
    return '\n'.join(_lines(picture))


def _lines(picture: StatusSnapshot) -> Iterator[str]:
    yield f'Compute service: {picture.host}'
    yield f'Health: {picture.verdict.why}'
    yield from _members(picture)
    yield from _nodes(picture)
    yield from _pending(picture)
    yield 'Work:'
    for work in Work:
        yield f'  {work.value}: {_turns(picture, work)}'
    asking = picture.totals.oldest_asking
    if asking is not None:
        yield (f'  a request to Ironic has been under way for '
               f'{picture.at - asking:.1f} s')
    yield 'Since the process began:'
    for event, number in picture.totals.counts.items():
        yield f'  {number} times {event.value}'


def _members(picture: StatusSnapshot) -> Iterator[str]:
    if picture.view is None:
        yield 'Members: not known yet'
        return
    members = sorted(
        service.host for key, service in picture.view.services.items()
        if picture.view.member(key))
    yield f'Members: {len(picture.view.members)}'
    yield from (f'  {host}' for host in members)


def _nodes(picture: StatusSnapshot) -> Iterator[str]:
    if picture.reasons is None:
        yield 'Nodes: not known yet'
        return
    yield f'Nodes: {len(picture.reasons)}'
    for reason, number in ownership.count_reasons(picture.reasons).items():
        if number:
            yield f'  {number} {reason.value}'
    yield 'In transition:'
    yield from _or_nothing(
        f'  {reason.value}: for example {node}'
        for reason, node in picture.moving().items())
    yield (f'Brake of vanished nodes: engaged, {picture.missing} are missing'
           if picture.braked else 'Brake of vanished nodes: not engaged')


def _pending(picture: StatusSnapshot) -> Iterator[str]:
    for kind in Pending:
        waiting = picture.waiting(kind)
        yield f'{kind.value.capitalize()}: {len(waiting)}'
        yield from (f'  {uuid}, for {seconds:.0f} s'
                    for uuid, seconds in waiting[:SHOWN])


def _turns(picture: StatusSnapshot, work: Work) -> str:
    turns = picture.totals.turns[work]
    if turns.succeeded is None:
        return 'not done yet' + (
            '' if turns.sign is None
            else f', last sign of it {picture.at - turns.sign:.1f} s ago')
    return (f'done {picture.age(work):.1f} s ago, took {turns.seconds:.1f} s, '
            f'last sign of it {picture.at - (turns.sign or 0):.1f} s ago')


def _or_nothing(lines: Iterable[str]) -> list[str]:
    return list(lines) or ['  nothing']


class ReportSection:
    """A section of the report, from :meth:`begin` to :meth:`end`.

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
