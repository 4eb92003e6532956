# SPDX-License-Identifier: Apache-2.0

"""Values that tables show in another form than JSON."""

import datetime

from cliff import columns


class YesNo(columns.FormattableColumn):
    """True, False or None: yes, no or unknown."""

    def human_readable(self):
        """Return a word."""
        if self._value is None:
            return 'unknown'
        return 'yes' if self._value else 'no'


class Number(columns.FormattableColumn):
    """A number with two digits, or None: -."""

    def human_readable(self):
        """Return two digits, or -."""
        return '-' if self._value is None else f'{self._value:.2f}'

    def machine_readable(self):
        """Return the number rounded, or None."""
        return self._value if self._value is None else round(self._value, 2)


class Percent(columns.FormattableColumn):
    """A number of percent."""

    def human_readable(self):
        """Return one digit and the sign."""
        return f'{self._value:.1f} %'

    def machine_readable(self):
        """Return the number rounded."""
        return round(self._value, 1)


class Moment(columns.FormattableColumn):
    """Seconds since the epoch, or None if not known."""

    def _text(self, layout, unknown):
        if self._value is None:
            return unknown
        moment = datetime.datetime.fromtimestamp(self._value, datetime.UTC)
        return moment.strftime(layout)

    def human_readable(self):
        """Return date and time."""
        return self._text('%Y-%m-%d %H:%M:%S UTC', 'unknown')

    def machine_readable(self):
        """Return the time by ISO 8601, or None."""
        return self._text('%Y-%m-%dT%H:%M:%SZ', None)


class Coloured(columns.FormattableColumn):
    """A state or status in the colour of a terminal: red, yellow or none."""

    _COLOURS = {'down': 31, 'gone': 31, 'unknown': 31, 'fenced, alive': 31,
                'fenced': 33, 'disabled': 33, 'ending': 33, 'ended': 33}

    def human_readable(self):
        """Return the word between the codes of its colour."""
        colour = self._COLOURS.get(self._value)
        return (f'\x1b[{colour}m{self._value}\x1b[0m' if colour
                else self._value)


def plain(cell, layout):
    """Return a cell for a program.

    :param layout: json, yaml or csv; CSV has no null: None stays empty there
    """
    if isinstance(cell, columns.FormattableColumn):
        cell = cell.machine_readable()
    if layout == 'csv' and isinstance(cell, bool):
        return str(cell).lower()
    return None if cell == '' else cell
