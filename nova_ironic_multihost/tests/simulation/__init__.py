# SPDX-License-Identifier: Apache-2.0

"""The protocol in a model of nova, placement and Ironic."""
