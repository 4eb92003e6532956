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

"""What hosts see of each other."""

from nova_ironic_multihost.rules import peers


def view(up, dead=(), fenced=(), disabled=(), host='me', **more):
    """Return what a host sees of others that are in these states."""
    services = [peers.ComputeService(name, up=True) for name in up]
    services += [peers.ComputeService(name, up=False) for name in dead]
    services += [peers.ComputeService(name, up=False, forced_down=True)
                 for name in fenced]
    services += [peers.ComputeService(name, up=True, disabled=True)
                 for name in disabled]
    return peers.view(
        services, more.pop('partition', peers.Partition()), host, **more)
