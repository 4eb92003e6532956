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

"""The methods of nova's driver that the sources of an audit use."""

import inspect
from unittest import mock

import fixtures

from nova_ironic_multihost.audit import sources as ports
from nova_ironic_multihost.contract import calls
from nova_ironic_multihost.contract import machines
from nova_ironic_multihost.contract import mailbox
from nova_ironic_multihost.contract import names
from nova_ironic_multihost.contract import pages
from nova_ironic_multihost.contract import registration
from nova_ironic_multihost.contract import sources
from nova_ironic_multihost.tests.unit.contract import base


class SignaturesTestCase(base.SignaturesTestCase):

    def test_inherited_methods_of_novas_ironic_driver(self):
        driver = names.IronicDriver
        self.assertParameters(['self', 'version'], driver._can_send_version)
        self.assertParameters(['self'], driver._get_hypervisor_type)
        self.assertParameters(['self', 'node_id'], driver._get_node)

    def test_ports_are_implemented(self):
        for port, adapter in (
                (ports.Sources, sources.NovaSources),
                (ports.Pages, pages.Pages),
                (ports.Writes, sources.NovaWrites),
                (ports.Instances, calls.Instances),
                (ports.Machines, machines.Machines),
                (ports.Registration, registration.Registration),
                (ports.Tracker, calls.Tracker),
                (ports.Mailbox, mailbox.Mailbox),
                (ports.Mailboxes, mailbox.Mailboxes)):
            for name, method in vars(port).items():
                if inspect.isfunction(method) and not name.startswith('_'):
                    self.assertEqual(
                        base.parameters(method),
                        base.parameters(getattr(adapter, name)), name)

    def test_nothing_is_taken_over_by_a_service_that_is_about_to_end(self):
        moved = self.useFixture(fixtures.MockPatchObject(
            calls, 'take_over', return_value=True)).mock
        ending = False
        writes = sources.NovaWrites(lambda: ending)
        self.assertTrue(writes.take_over('uuid', mock.Mock(), 'host'))
        ending = True
        self.assertFalse(writes.take_over('uuid', mock.Mock(), 'host'))
        moved.assert_called_once()
