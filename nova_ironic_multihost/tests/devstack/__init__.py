# SPDX-License-Identifier: Apache-2.0

"""A machine that devstack stacks, without the rest of devstack."""
