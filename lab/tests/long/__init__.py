# SPDX-License-Identifier: Apache-2.0

"""The real stack, used as a newcomer uses it: by tools/lab."""
