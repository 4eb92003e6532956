# SPDX-License-Identifier: Apache-2.0

"""What can go wrong in a way that a person can mend."""


class LabError(Exception):
    """One sentence for the person at the terminal, with the remedy.

    The command line prints it without a traceback and exits non-zero.
    """
