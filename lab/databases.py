# SPDX-License-Identifier: Apache-2.0

"""The database fails over to a replica, as all that use it see it.

The lab has one server. It does what the others notice: it cuts all
connections, and refuses to write until the replica is the one to write to.
"""

from lab import settings as places


def fail_over(settings, read_only):
    """Cut all connections; who connects again may only read, or write too.

    :param settings: :class:`lab.settings.Settings`
    :param read_only: whether nobody may write from now on
    """
    import pymysql

    account = settings.database('nova_cell1') | {'user': places.OPERATOR}
    with pymysql.connect(**account) as database:
        with database.cursor() as cursor:
            cursor.execute(f'SET GLOBAL read_only = {int(read_only)}')
            cursor.execute(
                f"KILL CONNECTION USER '{places.USER}'@'{places.HOST}'")
