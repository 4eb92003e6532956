# SPDX-License-Identifier: Apache-2.0

"""Values that people and programs want in another form."""

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
        """Return what fits into a table."""
        return '-' if self._value is None else f'{self._value:.2f}'


class Percent(columns.FormattableColumn):
    """Percent: a number."""

    def human_readable(self):
        """Return what fits into a table."""
        return f'{self._value:.1f} %'


class Moment(columns.FormattableColumn):
    """Seconds since the epoch, or None if that is not known."""

    def human_readable(self):
        """Return date and time."""
        if self._value is None:
            return 'unknown'
        moment = datetime.datetime.fromtimestamp(self._value, datetime.UTC)
        return f'{moment:%Y-%m-%d %H:%M:%S} UTC'
