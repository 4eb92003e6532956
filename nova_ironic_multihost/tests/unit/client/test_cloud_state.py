# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests import views


class ObservationTestCase(base.BaseTestCase):

    def test_of_two_spellings_the_one_that_is_at_work_counts(self):
        old = cloud_state.Service('East', up=False, seen=1)
        for new in (cloud_state.Service('east'),
                    # It is fenced.
                    cloud_state.Service('east', up=False, seen=2)):
            for pair in (old, new), (new, old):
                seen = cloud_state.CloudState(services=pair)
                self.assertEqual({'east': new}, seen.service_of)


class UsageTestCase(base.BaseTestCase):

    def usage(self, seen, index=0):
        found = seen.usage(seen.nodes[index])
        return found.value, found.stray

    def test_free(self):
        self.assertEqual(('free', False), self.usage(views.consistent(), 1))

    def test_used(self):
        self.assertEqual(('used', False), self.usage(views.consistent()))

    def test_server_that_is_deleted(self):
        seen = views.changed(views.consistent(), 'instances', 0, deleted=True)
        self.assertEqual(('leaked', True), self.usage(seen))

    def test_server_that_nova_does_not_know(self):
        seen = views.without(views.consistent(), 'instances', 0)
        self.assertEqual(('unknown server', True), self.usage(seen))

    def test_active_for_nobody(self):
        seen = views.changed(views.consistent(), 'nodes', 1,
                             provision_state='active')
        self.assertEqual(('no server', True), self.usage(seen, 1))


class TaskTestCase(base.BaseTestCase):

    def test_task_states_and_marks(self):
        seen = views.consistent()
        for state, words in (
                (None, ''), ('spawning', 'spawning'),
                (takeover.taken('spawning', host_key('compute-2')),
                 'taken over by compute-2, was spawning'),
                (takeover.taking(None, host_key('nix')),
                 'taken over by somebody')):
            self.assertEqual(words, seen.task(dataclasses.replace(
                seen.instances[0], task_state=state)))
