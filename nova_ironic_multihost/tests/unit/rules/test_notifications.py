# SPDX-License-Identifier: Apache-2.0

"""The notifications that this package sends, each with a version."""

import json

from oslotest import base

from nova_ironic_multihost.rules import notifications
from nova_ironic_multihost.rules.notifications import DrainProgress

#: Of every one: (type, name, version, fields). Whoever changes one raises
#: its version, and doc/source/reference/notifications.rst.
SENT = (
    (notifications.takeover('new', 'old', ['i2', 'i1']), (
        'ironic_multihost.takeover', 'TakeoverPayload', '1.0', {
            'host': 'new', 'source_host': 'old', 'instances': ['i1', 'i2']})),
    (notifications.brake('me', True, 7), (
        'ironic_multihost.brake', 'BrakePayload', '1.0', {
            'host': 'me', 'engaged': True, 'missing': 7})),
    (notifications.drain('me', DrainProgress.DRAINING, 3, 2), (
        'ironic_multihost.drain', 'DrainPayload', '1.0', {
            'host': 'me', 'state': 'draining', 'free': 3, 'served': 2})),
)


class EventsTestCase(base.BaseTestCase):

    def test_types_versions_and_fields(self):
        for event, (kind, name, version, fields) in SENT:
            self.assertEqual(kind, event.kind)
            self.assertEqual({
                'ironic_multihost_object.name': name,
                'ironic_multihost_object.namespace': 'ironic_multihost',
                'ironic_multihost_object.version': version,
                'ironic_multihost_object.data': fields},
                json.loads(json.dumps(event.payload)))

    def test_drain_goes_on_while_a_node_is_free(self):
        self.assertIs(
            DrainProgress.IN_SERVICE, notifications.drained(False, 0))
        self.assertIs(
            DrainProgress.IN_SERVICE, notifications.drained(False, 3))
        self.assertIs(DrainProgress.DRAINING, notifications.drained(True, 3))
        self.assertIs(DrainProgress.DRAINED, notifications.drained(True, 0))
