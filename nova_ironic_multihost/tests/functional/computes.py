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

"""The nova-computes of one test, each a host of its own in one process."""

import contextlib
import datetime

import nova.conf
from nova import context
from nova.db.main import api as db
from nova import objects
from oslo_utils import timeutils

CONF = nova.conf.CONF


@contextlib.contextmanager
def as_host(host):
    """Let ``CONF.host`` be this host.

    There is one CONF in a process and code inherited from the stock driver
    asks it who it is.
    """
    before = CONF.host
    CONF.set_override('host', host)
    try:
        yield
    finally:
        CONF.set_override('host', before)


class Computes:
    """Starts, audits and stops computes; time passes only when it is told.

    Audits run when the test asks for one, in the order that it asks for.
    """

    def __init__(self, test, cell):
        """Have no computes yet.

        :param test: the nova.test.TestCase that runs them.
        :param cell: CellMapping of the cell that they live in.
        """
        self._test = test
        self._cell = cell
        self._running = {}

    @property
    def hosts(self):
        """The hosts that run, in the order in which they were started."""
        return list(self._running)

    def start(self, *hosts):
        """Start a nova-compute on each host, for the first time or again."""
        for host in hosts:
            self._discover(host)
            with as_host(host):
                service = self._test.start_service('compute', host=host)
            self._running[host] = service
            self._report(service)

    def _discover(self, host):
        # What ``nova-manage cell_v2 discover_hosts --by-service`` does, and
        # start_service does only for a host that has a node.
        if host in self._test.host_mappings:
            return
        mapping = objects.HostMapping(
            context.get_context(), host=host, cell_mapping=self._cell)
        mapping.create()
        self._test.host_mappings[host] = mapping

    def _report(self, service):
        # The first heartbeat, which nova sends five seconds after the start.
        service.service_ref.report_count += 1
        service.service_ref.save()

    def audit(self, *hosts):
        """Run one audit on each of these hosts, or on all that run."""
        for host in hosts or self.hosts:
            with as_host(host), self._in_cell() as ctxt:
                self._running[host].manager.update_available_resource(ctxt)

    def stop(self, host):
        """Stop a compute; for ``service_down_time`` nova believes it is up."""
        self._running.pop(host).stop()

    def kill(self, host):
        """Stop a compute and let nova know that it is down."""
        self.stop(host)
        seen = timeutils.utcnow() - datetime.timedelta(
            seconds=2 * CONF.service_down_time)
        with self._in_cell() as ctxt:
            service = objects.Service.get_by_compute_host(ctxt, host)
            db.service_update(ctxt, service.id, {'last_seen_up': seen})

    @contextlib.contextmanager
    def _in_cell(self):
        with context.target_cell(
                context.get_admin_context(), self._cell) as ctxt:
            yield ctxt
