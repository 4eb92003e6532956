#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# plugin.sh - what devstack calls at each phase of stack.sh, unstack.sh and
# clean.sh: source plugin.sh MODE [PHASE]

case "$1 $2" in
    "stack pre-install")
        ironic_multihost_refuse
        ;;
    "stack install")
        echo_summary "Installing nova-ironic-multihost"
        ironic_multihost_install
        ;;
    "stack post-config")
        echo_summary "Configuring nova-ironic-multihost"
        ironic_multihost_configure
        ;;
    "stack extra")
        ironic_multihost_wait
        ironic_multihost_map
        ironic_multihost_enrol
        ;;
    "stack test-config")
        ironic_multihost_post_check
        ;;
    "clean ")
        # Before this, unstack has stopped everything, unless the number of
        # plugins has changed in between.
        stop_nova_hypervisor
        ;;
esac
