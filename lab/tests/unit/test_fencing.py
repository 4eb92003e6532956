# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from lab import fencing
from nova_ironic_multihost.tests import views


class WatcherTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.dead = set()
        self.done = []
        self.watcher = fencing.Watcher(
            self.dead.__contains__,
            lambda host, action: self.done.append((host, action)))

    def look(self, at, **service):
        """One look, with the service of compute-1 changed."""
        seen = views.changed(views.consistent(), 'services', 0, **service)
        self.watcher.see(views.dataclasses.replace(seen, at=at))

    def die(self):
        """compute-1 dies and is fenced."""
        self.dead.add('compute-1')
        self.look(views.NOW + 10, up=False)

    def test_nothing_to_do(self):
        self.look(views.NOW)
        self.assertEqual([], self.done)

    def test_what_died_is_fenced_once(self):
        self.die()
        self.look(views.NOW + 11, up=False, forced_down=True)
        self.assertEqual([('compute-1', fencing.FENCE)], self.done)
        self.assertEqual(1, self.watcher.fenced)

    def test_not_before_nova_calls_it_down(self):
        self.dead.add('compute-1')
        self.look(views.NOW)
        self.assertEqual([], self.done)

    def test_what_may_be_alive_is_left_alone(self):
        self.look(views.NOW + 10, up=False)
        self.assertEqual([], self.done)

    def test_what_others_have_fenced_is_left_alone(self):
        self.dead.add('compute-1')
        self.look(views.NOW + 10, up=False, forced_down=True)
        self.dead.clear()
        self.look(views.NOW + 20, up=False, forced_down=True,
                  seen=views.NOW + 20)
        self.assertEqual([], self.done)

    def test_freed_when_nova_hears_of_it_again(self):
        self.die()
        self.dead.clear()
        self.look(views.NOW + 20, up=False, forced_down=True)
        self.assertEqual(1, len(self.done))
        self.look(views.NOW + 22, up=False, forced_down=True,
                  seen=views.NOW + 21)
        self.assertEqual(('compute-1', fencing.UNFENCE), self.done[-1])

    def test_dead_again_before_it_is_freed(self):
        self.die()
        self.look(views.NOW + 22, up=False, forced_down=True,
                  seen=views.NOW + 21)
        self.assertEqual(1, len(self.done))

    def test_fenced_again_when_it_dies_again(self):
        self.die()
        self.dead.clear()
        self.look(views.NOW + 22, up=False, forced_down=True,
                  seen=views.NOW + 21)
        self.dead.add('compute-1')
        self.look(views.NOW + 40, up=False)
        self.assertEqual(
            [fencing.FENCE, fencing.UNFENCE, fencing.FENCE],
            [action for _, action in self.done])
