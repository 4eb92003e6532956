# SPDX-License-Identifier: Apache-2.0

"""Which compute the hash ring prefers for a node, as the lab reckons it.

What the drivers compute for themselves is computed here once more from what
nova says of its services, so that an experiment can tell a move that the
ring asks for from one that nobody needs.
"""

import warnings

from lab import configuration

# What nova's own driver has, and no option of it.
STOCK_PARTITIONS = 32


def partitions(driver, options=()):
    """Points per member on the ring.

    :param driver: 'ours' or 'stock'
    :param options: 'SECTION.OPTION=VALUE' strings that nova was given
    """
    if driver == 'stock':
        return STOCK_PARTITIONS
    from nova_ironic_multihost import conf

    [option] = [o for o in conf.OPTS if o.name == 'ring_partitions']
    return configuration.number(
        options, 'ironic_multihost', option.name, option.default)


class Preference:
    """Rings of a number of partitions, each made when it is first needed."""

    def __init__(self, points):
        self._partitions = points
        self._rings = {}

    def __call__(self, members, node):
        """The member that the ring prefers for a node.

        :param members: host names in lower case, a frozenset
        :param node: uuid of an Ironic node
        :returns: a host name, None without members
        """
        if not members:
            return None
        if members not in self._rings:
            self._rings[members] = self._ring(members)
        return self._rings[members].host_for(node)

    def _ring(self, members):
        with warnings.catch_warnings(record=True):
            # The logging library imports eventlet, which warns about itself
            # and resets the filters to be heard.
            from nova_ironic_multihost.rules import ring

        return ring.Ring(members, self._partitions)
