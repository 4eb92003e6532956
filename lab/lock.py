# SPDX-License-Identifier: Apache-2.0

"""One command at a time changes a lab."""

import contextlib
import fcntl
import os
import signal
import time

from lab import errors


@contextlib.contextmanager
def hold(path, what, interrupt=False, patience=60, wait=False):
    """Hold the lock of a lab.

    The kernel frees it when its holder dies, however it dies.

    :param path: the lock file
    :param what: name of the command, for the message to others
    :param interrupt: end the holder as Ctrl-C would, and wait for it
    :param patience: seconds to wait for an interrupted holder
    :param wait: wait until the holder is done, however long that takes
    :raises LabError: when another command holds it
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'a+') as lock:
        if wait:
            fcntl.flock(lock, fcntl.LOCK_EX)
        elif not _taken(lock):
            pid, command = _lease_renewer(lock)
            if interrupt and pid:
                os.kill(pid, signal.SIGTERM)
                deadline = time.monotonic() + patience
                while not _taken(lock):
                    if time.monotonic() > deadline:
                        raise errors.LabError(
                            f'"{command}" (process {pid}) does not end; end '
                            f'it with "kill -9 {pid}" and try again.')
                    time.sleep(0.1)
            else:
                raise errors.LabError(
                    f'"{command}" (process {pid}) is changing this lab; '
                    'wait for it, or run "tools/lab down", which ends it.')
        lock.seek(0)
        lock.truncate()
        lock.write(f'{os.getpid()} {what}')
        lock.flush()
        yield


def _taken(lock):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lease_renewer(lock):
    """(pid, command); pid is 0 when the holder has not signed yet."""
    lock.seek(0)
    pid, _, command = lock.read().partition(' ')
    return int(pid or 0), command or 'another command'
