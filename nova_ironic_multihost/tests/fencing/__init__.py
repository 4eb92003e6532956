# SPDX-License-Identifier: Apache-2.0

"""The recipes in etc/fencing, with what they are made for."""
