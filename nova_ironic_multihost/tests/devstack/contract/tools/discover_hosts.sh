#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Those that own a node.
nova-manage cell_v2 discover_hosts --verbose
