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


"""The options of this package: one group, ``[ironic_multihost]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'ironic_multihost',
    title='Several nova-compute services over one Ironic',
    help="""
Options of the virt driver ``ironic_multihost.IronicMultiHostDriver``, read by
nova-compute.
""")

OPTS = [
    cfg.IntOpt(
        'ring_partitions',
        default=1024,
        min=1,
        max=65536,
        help="""
Number of points that each compute service has on the hash ring.

More points spread the nodes more evenly and cost memory and time whenever a
compute service joins or leaves. Every compute service that shares nodes must
use the same number, or they disagree about who prefers which node.
"""),
]


def register_opts(conf):
    """Register the group and its options; again does nothing.

    :param conf: an oslo.config ConfigOpts, usually nova's.
    """
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts():
    """Return what oslo-config-generator asks for: [(group, options)]."""
    return [(GROUP, OPTS)]
