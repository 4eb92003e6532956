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
