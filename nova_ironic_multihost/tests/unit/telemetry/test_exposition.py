# SPDX-License-Identifier: Apache-2.0

"""The metrics, as Prometheus reads them."""

import pathlib
import re

from oslotest import base
import prometheus_client
from prometheus_client import parser

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.telemetry import exposition
from nova_ironic_multihost.tests.unit.telemetry import pictures

PAGE = (pathlib.Path(__file__).resolve().parents[4]
        / 'doc/source/reference/metrics.rst')


def parsed(text):
    """Return {(name, labels without their names...): value} of a scrape."""
    return {(sample.name.removeprefix('nova_ironic_multihost_'),
             *sample.labels.values()): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples}


class ExpositionTestCase(base.BaseTestCase):

    def text(self, *args, **fields):
        return exposition.Exposition(
            lambda: pictures.of(*args, **fields), '1.2.3').text().decode()

    def read(self, *args, **fields):
        return parsed(self.text(*args, **fields))

    def test_nothing_is_said_of_what_is_not_known_yet(self):
        found = self.read()
        waits = {key for key in found if key[0].startswith('wait_seconds')}
        self.assertEqual({0}, {found.pop(key) for key in waits})
        self.assertEqual({
            ('info', '1.2.3'): 1,
            ('moves_total', 'adopted'): 0, ('moves_total', 'pulled'): 0,
            ('moves_total', 'failed'): 0, ('takeovers_total', 'done'): 0,
            ('takeovers_total', 'failed'): 0, ('peer_polls_failed_total',): 0,
            ('operations_refused_total',): 0,
            ('takeover_oldest_pending_seconds',): 0,
            ('listing_age_seconds',): 60, ('audit_age_seconds',): 60},
            found)

    def test_members_are_those_that_share_the_nodes(self):
        self.assertEqual(2, self.read(view=pictures.VIEW)['members',])

    def test_other_members_have_another_checksum(self):
        def read(*hosts):
            return self.read(view=peers.view(
                [peers.ComputeService(host, up=True) for host in hosts],
                peers.Partition(), 'a'))

        found, again, others = read('a', 'b'), read('b', 'a'), read('a', 'c')
        self.assertEqual(found, again)
        self.assertEqual(found['members',], others['members',])
        self.assertNotEqual(found['members_checksum',],
                            others['members_checksum',])

    def test_nodes_of_each_reason(self):
        found = self.read(reasons={
            'n1': Reason.KEPT, 'n2': Reason.KEPT, 'n3': Reason.OTHER_ZONE})
        self.assertEqual(
            {reason.name.lower() for reason in Reason},
            {labels[0] for name, *labels in found if name == 'nodes'})
        self.assertEqual(2, found['nodes', 'kept'])
        self.assertEqual(1, found['nodes', 'other_zone'])
        self.assertEqual(0, found['nodes', 'pulled'])

    def test_brake(self):
        self.assertEqual(0, self.read(reasons={})['brake_engaged',])
        self.assertEqual(
            1, self.read(reasons={}, braked=True)['brake_engaged',])

    def test_events_are_counted_each_for_itself(self):
        some = counters.Counters()
        for number, event in enumerate(Event, 1):
            some = some.counted(event, number)
        found = self.read(some)
        self.assertEqual(
            {('moves_total', 'adopted'): Event.ADOPTED,
             ('moves_total', 'pulled'): Event.PULLED,
             ('moves_total', 'failed'): Event.MOVE_FAILED,
             ('takeovers_total', 'done'): Event.TAKEN_OVER,
             ('takeovers_total', 'failed'): Event.TAKEOVER_FAILED,
             ('peer_polls_failed_total',): Event.PEER_POLL_FAILED,
             ('operations_refused_total',): Event.REFUSED},
            {key: list(Event)[int(value) - 1] for key, value in found.items()
             if key[0].endswith('_total')})

    def test_take_overs_that_are_pending(self):
        some = counters.Counters().with_pending(Pending.REST, {'i1'}, 70)
        self.assertEqual(
            30, self.read(some)['takeover_oldest_pending_seconds',])

    def test_waits_are_a_histogram(self):
        some = counters.Counters()
        for seconds in 0.5, 45, 1e6:
            some = some.waited(Wait.TAKEOVER, seconds)
        found = self.read(some)
        self.assertEqual(
            {'1.0': 1, '30.0': 1, '60.0': 2, '14400.0': 2, '+Inf': 3},
            {bound: found['wait_seconds_bucket', bound, 'takeover']
             for bound in ('1.0', '30.0', '60.0', '14400.0', '+Inf')})
        self.assertEqual((3, 1000045.5), (
            found['wait_seconds_count', 'takeover'],
            found['wait_seconds_sum', 'takeover']))
        self.assertEqual(
            {'build', 'delete', 'move', 'takeover'},
            {labels[0] for name, *labels in found
             if name == 'wait_seconds_count'})

    def test_work_by_how_long_it_took_and_when(self):
        some = counters.Counters().with_turns(
            Work.LISTING, RunStats(90, 90, 90, 2)).with_turns(
                Work.AUDIT, RunStats(95, 95, 80, 7))
        found = self.read(some)
        self.assertEqual(
            (2, 10, 7, 20),
            tuple(found[name,] for name in (
                'listing_seconds', 'listing_age_seconds', 'audit_seconds',
                'audit_age_seconds')))

    def test_what_grows_old_is_not_said_at_the_end(self):
        """It may take an hour, with nobody to tell that anything is wrong."""
        before = self.read(view=pictures.VIEW, reasons={})
        found = self.read(view=pictures.VIEW, reasons={}, ending=True)
        self.assertEqual(
            {('members',), ('members_checksum',), ('listing_age_seconds',),
             ('audit_age_seconds',)},
            before.keys() - found.keys())

    def test_picture_is_taken_once_for_each_reader(self):
        taken = []
        one = exposition.Exposition(
            lambda: taken.append(1) or pictures.of(), '1')
        self.assertEqual([], taken)
        one.text()
        self.assertEqual([1], taken)

    def test_registry_of_others_is_left_alone(self):
        self.text()
        self.assertNotIn(b'nova_ironic_multihost', (
            prometheus_client.generate_latest(prometheus_client.REGISTRY)))

    def test_each_metric_is_documented_with_its_type(self):
        text = self.text(
            counters.Counters().with_turns(
                Work.LISTING, RunStats(1, 1, 1, 1)).with_turns(
                    Work.AUDIT, RunStats(1, 1, 1, 1)),
            view=pictures.VIEW, reasons={})
        types = dict(re.findall(
            r'^# TYPE nova_ironic_multihost_(\w+) (\w+)$', text, re.M))
        # The text says that an info is a gauge.
        self.assertEqual(types, dict(re.findall(
            r'^   ``(\w+?)(?:\{\w+\})?``,(\w+),', PAGE.read_text(), re.M)))
