# SPDX-License-Identifier: Apache-2.0

"""The options of nova.conf, as plain values."""

import inspect

from oslo_config import fixture as config_fixture
from oslo_messaging import conffixture as messaging_fixture
from oslo_service import periodic_task
from oslotest import base

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost import conf
from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover


class SettingsTestCase(base.BaseTestCase):

    def test_partition_is_read_from_nova_conf(self):
        config = self.useFixture(config_fixture.Config(names.CONF))
        names.CONF([], project='nova', default_config_files=[])
        self.assertEqual(peers.Partition(),
                         settings.partition())
        config.config(group='ironic', conductor_group='G', shard='s',
                      peer_list=['a', 'b'])
        self.assertEqual(
            peers.Partition(conductor_group='g', shard='s',
                            peer_list=('a', 'b')),
            settings.partition())

    def configure(self, **options):
        config = self.useFixture(config_fixture.Config(names.CONF))
        names.CONF([], project='nova', default_config_files=[])
        conf.register_opts(names.CONF)
        # As nova has them when it calls its conductor.
        self.useFixture(messaging_fixture.ConfFixture(names.CONF))
        config.config(**options)
        return config

    def test_bounds_of_health_follow_the_intervals_of_nova(self):
        self.configure()
        self.assertEqual(
            health.HealthLimits(1082, 330, 300), settings.bounds())
        config = self.configure(
            update_resources_interval=600, periodic_fuzzy_delay=0,
            report_interval=5, service_down_time=30, rpc_response_timeout=90)
        config.config(api_max_retries=9, api_retry_interval=3, group='ironic')
        self.assertEqual(health.bounds(600, 5, 90, 30), settings.bounds())
        self.assertIn(
            'DEFAULT_INTERVAL = 60.0', inspect.getsource(periodic_task))
        self.assertEqual(60, settings.DEFAULT_INTERVAL)

    def test_terms_of_the_lease(self):
        self.configure(service_down_time=30, rpc_response_timeout=90)
        self.assertEqual(health.LeaseTiming(90, 30), settings.terms())

    def test_no_bound_for_audits_that_nova_does_not_make(self):
        config = self.configure(update_resources_interval=-1)
        self.assertIsNone(settings.bounds().audit)
        config.config(update_resources_interval=60, periodic_enable=False)
        self.assertIsNone(settings.bounds().audit)

    def test_metrics_are_nowhere_unless_there_is_a_port(self):
        config = self.configure()
        self.assertIsNone(settings.metrics())
        config.config(group='ironic_multihost', metrics_port=9106)
        self.assertEqual(('127.0.0.1', 9106), settings.metrics())
        config.config(group='ironic_multihost', metrics_address='::')
        self.assertEqual(('::', 9106), settings.metrics())

    def test_notifications_go_where_those_of_nova_go(self):
        config = self.configure()
        self.assertIsNone(settings.topics())
        for kind in 'versioned', 'both':
            config.config(group='notifications', notification_format=kind)
            self.assertEqual(['versioned_notifications'], settings.topics())

    def test_each_option_is_read_as_it_is_now(self):
        config = self.useFixture(config_fixture.Config(names.CONF))
        names.CONF([], project='nova', default_config_files=[])
        conf.register_opts(names.CONF)
        config.config(host='Compute-1')
        self.assertEqual(audit_state.Settings(
            'Compute-1', policy=takeover.Policy(takeover.FORCED_DOWN, 300)),
            settings.read())
        config.config(group='ironic', shard='s')
        config.config(
            group='ironic_multihost', ring_partitions=1, pulls_per_audit=2,
            move_across_zones=True, max_vanished_percent=4,
            instance_takeover='down', takeover_after=5, audit_interval=60)
        self.assertEqual(
            audit_state.Settings(
                host='Compute-1', partition=peers.Partition(shard='s'),
                points=1, pulls_per_audit=2, move_across_zones=True,
                max_vanished_percent=4, policy=takeover.Policy('down', 5),
                audit_interval=60),
            settings.read())
