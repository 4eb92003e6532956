#!/bin/bash
# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
