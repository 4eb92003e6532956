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
