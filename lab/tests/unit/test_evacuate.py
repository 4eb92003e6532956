# SPDX-License-Identifier: Apache-2.0

"""What evacuate must come to."""

from oslotest import base

from lab.experiments import evacuate


def figures(**changes):
    return {'fenced_to_last_taken_over': 20.0, 'status': {'a': 'active'},
            'moved': [], 'surplus': 0, 'error': 0, 'stuck': 0, 'leaked': 0,
            **changes}


class FailuresTestCase(base.BaseTestCase):

    def test_good(self):
        self.assertEqual([], evacuate.failures(figures()))

    def test_each_bad_figure_has_its_sentence(self):
        for changes in ({'fenced_to_last_taken_over': None},
                        {'status': {'a': 'error'}}, {'moved': ['a']},
                        {'surplus': 1}, {'error': 1}, {'stuck': 1},
                        {'leaked': 1}):
            with self.subTest(changes):
                self.assertEqual(1, len(evacuate.failures(
                    figures(**changes))))
