# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
