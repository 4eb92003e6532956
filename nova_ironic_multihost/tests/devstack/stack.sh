#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# stack.sh - what devstack's stack.sh, unstack.sh and clean.sh do with a plugin
# and with nova-compute, in their order, and nothing of the rest
#
# Usage: stack.sh stack|unstack|clean [LAST-PHASE]
#
# Everything else of a cloud is there already. TOP_DIR is a directory made by
# sandbox.py: the functions in it are devstack's own or those of contract/.

set -o errexit

mode=$1
last=${2:-test-config}
TOP_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FILES=$TOP_DIR/files

# shellcheck disable=SC1091
{
    source "$TOP_DIR/functions"
    extract_localrc_section "$TOP_DIR/local.conf" "$TOP_DIR/localrc" \
        "$TOP_DIR/.localrc.auto"
    source "$TOP_DIR/stackrc"
}
exec 6>&1
function echo_summary {
    echo "== $*" >&6
}
disable_negated_services

# Ends the run after the phase that was asked for.
function phase {
    run_phase stack "$1"
    if [[ "$1" == "$last" ]]; then
        echo_summary "stopped after $1"
        exit 0
    fi
}

function sources {
    run_phase override_defaults
    # shellcheck disable=SC1091
    {
        source "$TOP_DIR/lib/apache"
        source "$TOP_DIR/lib/tls"
        source "$TOP_DIR/lib/nova"
    }
    run_phase source
}

# In stack.sh neutron's part of nova.conf is written in the background while
# plugins are at their post-config; here so slowly that it undoes whatever
# they do to the file at the same time.
function configure_neutron_nova {
    local copy="$NOVA_CONF.copy"
    cp "$NOVA_CONF" "$copy"
    sleep 1
    iniset "$copy" neutron service_metadata_proxy True
    mv "$copy" "$NOVA_CONF"
}

function stack {
    mkdir -p "$DEST" "$DATA_DIR"
    async_init
    GetDistro
    # shellcheck disable=SC1091
    {
        source "$TOP_DIR/lib/database"
        source "$TOP_DIR/lib/rpc_backend"
    }
    sources
    echo_summary "report_interval $NOVA_SERVICE_REPORT_INTERVAL"
    phase pre-install
    export PATH="$DEVSTACK_VENV/bin:$PATH"
    setup_develop "$NOVA_DIR"
    mkdir -p "$NOVA_CONF_DIR"
    cp "$NOVA_CONF_OF_THE_CLOUD" "$NOVA_CONF"
    configure_nova_hypervisor
    phase install
    async_runfunc configure_neutron_nova
    phase post-config
    merge_config_group "$TOP_DIR/local.conf" post-config
    async_wait configure_neutron_nova
    start_nova_compute
    save_stackenv
    phase extra
    is_nova_ready
    service_check
    "$TOP_DIR/tools/discover_hosts.sh"
    phase test-config
}

function unstack {
    sources
    run_phase unstack
    if is_service_enabled nova; then
        stop_nova_compute
        cleanup_nova
    fi
}

function clean {
    "${BASH_SOURCE[0]}" unstack
    sources
    run_phase clean
    rm -rf "$NOVA_CONF_DIR" "$DATA_DIR/nova"
    find "$SYSTEMD_DIR" -type f -name '*devstack@*service' -delete
    $SYSTEMCTL daemon-reload
}

"$mode"
