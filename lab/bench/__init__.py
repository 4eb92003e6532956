# SPDX-License-Identifier: Apache-2.0

"""What experiments share: the lab under test, its instruments, the judgement.

Nothing here knows an experiment, and no experiment knows another one.
"""
