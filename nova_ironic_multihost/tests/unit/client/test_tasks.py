# SPDX-License-Identifier: Apache-2.0

"""What servers are in the middle of, in words."""

import dataclasses

from oslotest import base

from nova_ironic_multihost.client import tasks
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests import views


class WordsTestCase(base.BaseTestCase):

    def test_task_states_and_marks(self):
        seen = views.consistent()
        for state, words in (
                (None, ''), ('spawning', 'spawning'),
                (takeover.taken('spawning', host_key('compute-2')),
                 'taken over by compute-2, was spawning'),
                (takeover.taking(None, host_key('nix')),
                 'taken over by somebody')):
            self.assertEqual(words, tasks.words(seen, dataclasses.replace(
                seen.instances[0], task_state=state)))
