# SPDX-License-Identifier: Apache-2.0

"""A user who goes on when nova's API is away."""

from oslotest import base

from lab import steadfast


class Refusal(Exception):
    """What a request may end with."""


class Missing(Refusal):
    """There is no such server."""


class Clock:
    """Seconds that pass when somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Cloud:
    """nova with servers by id; answers or errors that come first.

    :param answers: {method: list of errors, or None for one that is taken}
    """

    def __init__(self, **answers):
        self.answers = answers
        self.servers = {}
        self.taken = []

    def _next(self, method):
        answers = self.answers.get(method)
        return answers.pop(0) if answers else None

    def create(self, name):
        error = self._next('create')
        if not isinstance(error, Missing):
            self.servers[name] = {'id': name, 'name': name,
                                  'status': 'ACTIVE',
                                  'OS-EXT-STS:task_state': None}
            self.taken.append('create')
        if error:
            raise error
        return name

    def nova(self, method, path, json=None):
        error = self._next(method)
        if error:
            raise error
        server = path.removeprefix('/servers').strip('/').partition('/')[0]
        if not server:
            return {'servers': list(self.servers.values())}
        if server not in self.servers:
            raise Missing()
        if method != 'GET':
            self.taken.append(method)
        if method == 'DELETE':
            del self.servers[server]
        return {'server': self.servers.get(server)}


class UserTestCase(base.BaseTestCase):

    def user(self, **answers):
        clock = Clock()
        self.insist = steadfast.Insistence(
            (Refusal,), 10, clock=clock, sleep=clock.sleep)
        self.cloud = Cloud(**answers)
        return steadfast.User(self.cloud, self.insist, Missing)

    def test_nothing_is_refused(self):
        user = self.user()
        server = user.create('one')
        self.assertEqual('ACTIVE', user.settled(server)['status'])
        self.assertEqual('ACTIVE', user.reboot(server)['status'])
        self.assertTrue(user.delete(server))
        self.assertEqual(['create', 'POST', 'DELETE'], self.cloud.taken)
        self.assertEqual(0, self.insist.refused)

    def test_asks_again_and_counts_what_is_refused(self):
        user = self.user(GET=[Refusal()], POST=[Refusal(), Refusal()],
                         DELETE=[Refusal()])
        server = user.create('one')
        self.assertEqual('ACTIVE', user.settled(server)['status'])
        self.assertEqual('ACTIVE', user.reboot(server)['status'])
        self.assertTrue(user.delete(server))
        self.assertEqual(4, self.insist.refused)

    def test_a_request_that_failed_and_left_a_server_makes_no_second_one(self):
        user = self.user(create=[Refusal()])
        self.assertEqual('one', user.create('one'))
        self.assertEqual(['create'], self.cloud.taken)

    def test_a_request_that_failed_for_good_is_made_again(self):
        user = self.user(create=[Missing()])
        self.assertEqual('one', user.create('one'))
        self.assertEqual(1, self.insist.refused)

    def test_whoever_never_answers_is_given_up(self):
        user = self.user(POST=[Refusal()] * 100)
        server = user.create('one')
        self.assertRaises(Refusal, user.reboot, server)

    def test_a_server_whose_build_fails_late_is_not_rebooted(self):
        user = self.user()
        server = user.create('one')
        self.cloud.servers[server]['status'] = 'ERROR'
        self.assertEqual('ERROR', user.reboot(server)['status'])
        self.assertEqual(['create'], self.cloud.taken)

    def test_what_stays_in_the_middle_is_told_and_not_asked_again(self):
        user = self.user()
        server = user.create('one')
        self.cloud.servers[server] |= {
            'status': 'BUILD', 'OS-EXT-STS:task_state': 'rebooting_hard'}
        self.assertEqual('STUCK', steadfast.outcome(user.settled(server)))
        self.assertFalse(steadfast.is_at_rest(user.reboot(server)))
        self.assertEqual(['create', 'POST'], self.cloud.taken)

    def test_a_server_that_went_though_the_request_failed(self):
        user = self.user()
        server = user.create('one')
        del self.cloud.servers[server]
        self.assertTrue(user.delete(server))
