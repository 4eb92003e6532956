#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# plugin.sh - what ironic's own plugin does to the nova-computes: they start
# before Ironic does, and once more when its nodes are enrolled; then it waits
# until placement has the nodes, mapping hosts as devstack does, not by service

IRONIC_SHARDS=${IRONIC_SHARDS:-0}
IRONIC_SHARD_1_NAME=${IRONIC_SHARD_1_NAME:-ds_shard_1}
IRONIC_NODE_SHARD_NAME=${IRONIC_NODE_SHARD_NAME:-ds_shard_1}

function wait_for_nodes {
    local count=0
    local i
    for i in $(seq 1 36); do
        count=$(openstack --os-cloud devstack-admin hypervisor list \
            -f value -c ID | wc -l)
        if (( count >= SANDBOX_NODES )); then
            return 0
        fi
        "$TOP_DIR/tools/discover_hosts.sh"
        sleep 5
    done
    die $LINENO "nova has $count nodes"
}

if [[ "$1 $2" == "stack extra" ]]; then
    "$SANDBOX_REPOSITORY/tools/lab" service start ironic
    stop_nova_compute || /bin/true
    start_nova_compute
    wait_for_nodes
fi
