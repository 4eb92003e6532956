# SPDX-License-Identifier: Apache-2.0

"""What an HA tool does: fence computes that died, free them when they return.

The tool watches nova's services. One that nova calls down is made sure to be
dead (here: it has no process) and then forced down in nova, which tells
everybody that nothing of it can act any more. When it was started again and
nova hears from it, the mark is taken away.
"""

FENCE = 'fence'
UNFENCE = 'unfence'


class Watcher:
    """Looks at observations and fences; see :meth:`see`.

    :param is_dead: function of a host: it certainly does not run
    :param act: function that does FENCE or UNFENCE to a host
    """

    def __init__(self, is_dead, act):
        self._is_dead = is_dead
        self._act = act
        self._fenced_at = {}
        self.fenced = 0

    def see(self, seen):
        """Do what is due by an Observation."""
        for action, host in self.due(seen):
            self._act(host, action)
            if action == FENCE:
                self._fenced_at[host] = seen.at
                self.fenced += 1
            else:
                del self._fenced_at[host]

    def due(self, seen):
        """What is to be done now.

        :returns: list of (FENCE or UNFENCE, host)
        """
        found = []
        for service in seen.services:
            since = self._fenced_at.get(service.host)
            if since is None:
                if (not service.up and not service.forced_down
                        and self._is_dead(service.host)):
                    found.append((FENCE, service.host))
            # A sign of life that is not one of the process that died.
            elif (service.seen or 0) > since and not self._is_dead(
                    service.host):
                found.append((UNFENCE, service.host))
        return found
