# SPDX-License-Identifier: Apache-2.0

"""InstanceHA of RHOSO, by what its documentation and its source say it does.

It is no package of an index, so that what stands here is a model of its
decisions about one compute service, as of infra-operator in 2026.
"""

from oslotest import base
import yaml

from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.tests import clouds
from nova_ironic_multihost.tests.fencing import recipes

CONFIG = recipes.FENCING / 'instanceha' / 'config.yaml'


def evacuates(service, aggregates):
    """Whether it powers off and evacuates, with TAGGED_AGGREGATES."""
    return (service['status'] == 'enabled' and not service['forced_down']
            and service['state'] == 'down'
            and any(service['host'] in hosts and tags.get('evacuable')
                    for hosts, tags in aggregates))


def enables(service):
    """Whether it takes the mark away at its next poll, tagged or not."""
    if service['status'] == 'enabled':
        return service['forced_down']
    return 'evacuation complete' in (service['disabled_reason'] or '')


def adopts(service):
    """Whether it evacuates after its own start, tagged or not."""
    return (service['forced_down'] and service['state'] == 'down'
            and service['status'] == 'enabled')


class InstanceHaTestCase(base.BaseTestCase):
    """It polls at each moment at which nova has something else."""

    def setUp(self):
        super().setUp()
        self.apis = self.useFixture(clouds.FakeCloud())
        self.east = self.apis.services[0]
        self.east['state'] = 'down'
        self.polls = []

    def polled(self):
        self.polls.append(enables(self.east) or adopts(self.east))

    def change(self, **body):
        """Change it in nova, as a client does with one request."""
        self.east.update(body)
        self.polled()

    def test_a_fence_stays(self):
        fencing.declare(self.apis.survey(), 'east')
        self.assertEqual(1, len(self.apis.changes))
        self.polled()
        self.assertEqual([False], self.polls)

    def test_forced_down_alone_does_not_stay(self):
        self.change(forced_down=True)
        self.assertEqual([True], self.polls)

    def test_two_requests_have_a_moment_between_them(self):
        self.change(forced_down=True)
        self.change(status='disabled')
        self.assertEqual([True, False], self.polls)

    def test_unfenced_in_one_request(self):
        service, _ = fencing.declare(self.apis.survey(), 'east')
        self.change(forced_down=False, status='enabled', state='up')
        self.assertEqual([False], self.polls)

    def test_what_it_has_evacuated_itself_it_enables(self):
        self.change(status='disabled',
                    disabled_reason='instanceha evacuation complete')
        fencing.declare(self.apis.survey(), 'east')
        self.polled()
        self.assertTrue(self.polls[-1])

    def test_it_leaves_bare_metal_alone(self):
        settings = yaml.safe_load(CONFIG.read_text())['config']
        self.assertEqual('true', settings['TAGGED_AGGREGATES'])
        kvm = (['kvm'], {'evacuable': 'true'})
        self.assertFalse(evacuates(self.east, [kvm, (['east'], {})]))
        self.assertTrue(evacuates(
            self.east, [(['east'], {'evacuable': 'true'})]))
