# SPDX-License-Identifier: Apache-2.0

"""A real OpenStack with several nova-computes and one Ironic, locally.

The package is the implementation of ``tools/lab``; start reading there.
Imports go one way: cli, then runner and demo, then experiments, then bench
(what those share), then all that brings the stack up and looks at it.
"""
