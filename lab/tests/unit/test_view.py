# SPDX-License-Identifier: Apache-2.0

import datetime
import socket
import threading

from oslotest import base

from lab import view
from nova_ironic_multihost.rules import liveness


class ViewTestCase(base.BaseTestCase):

    def test_unreachable_database_is_told_with_the_remedy(self):
        class Settings:
            def database(self, name):
                return {'host': '127.0.0.1', 'port': 1, 'user': 'lab',
                        'password': 'lab', 'database': name}

        error = self.assertRaises(view.ViewError, view.read, Settings())
        self.assertIn('tools/lab up', str(error))

    def test_database_that_ends_connections_is_asked_again(self):
        server = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(server.close)
        port = server.getsockname()[1]

        class Settings:
            def database(self, name):
                return {'host': '127.0.0.1', 'port': port, 'user': 'lab',
                        'password': 'lab', 'database': name}

        def end_connections():
            for _ in range(3):
                server.accept()[0].close()

        thread = threading.Thread(target=end_connections, daemon=True)
        thread.start()
        pauses = []
        error = self.assertRaises(view.ViewError, view.fetch, Settings(),
                                  'nova', sleep=pauses.append)
        self.assertIn('Lost connection', str(error))
        thread.join(30)
        self.assertFalse(thread.is_alive())
        self.assertEqual([1.0, 1.0], pauses)

    def test_what_a_service_says_when_it_is_told_to_end(self):
        now = datetime.datetime.now(datetime.UTC)
        words = liveness.stop_marker_text(now)
        for until, over in (-1, False), (1, True):
            self.assertEqual(
                {'stop_marker': words, 'over': over},
                view.said(words, now.timestamp() + until))
        for words in None, 'maintenance':
            self.assertEqual({'stop_marker': '', 'over': False},
                             view.said(words, now.timestamp()))
