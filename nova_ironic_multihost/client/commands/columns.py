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


class Percent(columns.FormattableColumn):
    """A number of percent."""

    def human_readable(self):
        """Return one digit and the sign."""
        return f'{self._value:.1f} %'


class Moment(columns.FormattableColumn):
    """Seconds since the epoch, or None if not known."""

    def human_readable(self):
        """Return date and time."""
        if self._value is None:
            return 'unknown'
        moment = datetime.datetime.fromtimestamp(self._value, datetime.UTC)
        return f'{moment:%Y-%m-%d %H:%M:%S} UTC'
