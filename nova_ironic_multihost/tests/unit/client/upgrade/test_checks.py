# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math
from unittest import mock

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import checks
from nova_ironic_multihost.client.upgrade import inputs
from nova_ironic_multihost.tests.unit.client.upgrade import base
from nova_ironic_multihost.tests import views

UNIT = 'nova-compute.service'
STOCK = f'compute_driver = {checks.STOCK}\n'
VIRTUAL = frozenset({'kvm-1', 'kvm-2'})


def units(*timeouts):
    return [inputs.Unit(UNIT, *one) for one in timeouts]


def loaded(**more):
    return {**base.LOADED, **more}


class DriverTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.driver)

    def test_loaded_and_set(self):
        self.assert_silent()

    def test_error(self):
        # Some errors are sentences.
        for stop in '', '.':
            self.assert_found(
                "cannot load the driver: ImportError: No module named "
                "'tooz'. Mend that", fatal=True, probe=loaded(
                    error=f"ImportError: No module named 'tooz'{stop}"))

    def test_methods_of_the_base_that_are_not_called(self):
        self.assert_found(
            ('Acme.get_info, Acme.is_node_deleted of '
             '[ironic_multihost]base_driver', 'A driver of your own'),
            probe=loaded(shadowed=['Acme.get_info', 'Acme.is_node_deleted']))

    def test_controller(self):
        self.assert_found('mine.conf sets no compute_driver', driver='')

    def test_not_switched_yet(self):
        self.assert_found(
            ('To switch, set [DEFAULT]compute_driver = '
             'ironic_multihost.IronicMultiHostDriver in ', 'mine.conf'),
            driver=STOCK)

    def test_another_driver(self):
        for name in ('ironic_multihost.IronicMultihostDriver',
                     'libvirt.LibvirtDriver', 'acme.AcmeIronicDriver'):
            self.assert_found(
                (name, 'name it in [ironic_multihost]base_driver'),
                driver=f'compute_driver = {name}\n', fatal=True)


class ReleaseTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.release)

    def test_supported(self):
        for version in '31.0.0', '34.0.1', '34.0.0.0rc1':
            self.assert_silent(nova=version)

    def test_others(self):
        for version in '30.2.0', '35.0.0', 'of-today':
            self.assert_found((f'nova is {version}', '31 to 34'),
                              nova=version, fatal=True)

    def test_lacking(self):
        self.assert_found(
            'nova 34.0.0 has no ComputeManager._init_instance', fatal=True,
            probe=loaded(lacking=['ComputeManager._init_instance']))


class SettingsTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.settings)

    def test_contradictions(self):
        self.assert_found('update_resources_interval is negative',
                          'update_resources_interval = -1\n', fatal=True)

    def test_invalid_value_of_ours(self):
        self.assert_found('Correct [ironic_multihost]ring_partitions',
                          '[ironic_multihost]\nring_partitions = 0\n',
                          fatal=True)

    def test_retries(self):
        """Those that end before a silent host counts as dead are well."""
        def text(**options):
            return '[ironic]\n' + ''.join(
                f'{name} = {value}\n' for name, value in options.items())

        self.assert_silent(text(connect_retries=12, connect_retry_delay=5))
        self.assert_found(
            '[ironic]connect_retries lets each request wait 65 s',
            text(connect_retries=13, connect_retry_delay=5))
        # keystoneauth's own delay.
        self.assert_found(
            ('wait 184 s', 'remove [ironic]status_code_retries and '
             '[ironic]status_code_retry_delay'), text(status_code_retries=9))

    def test_dead_before_others_take_over(self):
        def text(after):
            return ('[ironic_multihost]\ninstance_takeover = down\n'
                    f'takeover_after = {after}\n')

        self.assert_silent(text(270), units=units((30, 30)))
        self.assert_silent(text(269), units=units((30, 0)))
        self.assert_found(('takeover_after is 269 s', 'within 270 s'),
                          text(269), units=units((30, 30)), fatal=True)


class AccountTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.account)

    PROJECT = '[ironic]\nproject_name = service\n'

    def test_before_the_release_that_enforces_scope(self):
        self.assert_found(('project service', 'the role service',
                           'system_scope = all'), self.PROJECT, nova='33.0.0')
        self.assert_silent(self.PROJECT)

    def test_another_scope(self):
        self.assert_silent(nova='33.0.0')
        self.assert_silent(f'{self.PROJECT}system_scope = all\n',
                           nova='33.0.0')


class StopTimeTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.stop_time)

    def text(self, limit, waits=None, down=60):
        return f'graceful_shutdown_timeout = {limit}\n' + (
            f'manager_shutdown_timeout = {waits}\n' if waits else ''
        ) + f'service_down_time = {down}\n'

    def test_more_than_it_takes(self):
        for limit, seconds in (60, 70), (180, math.inf), (0, math.inf):
            self.assert_silent(self.text(limit), units=units((seconds,)))

    def test_less_than_it_takes(self):
        self.assert_found(
            (f'{UNIT} is killed 90 s', 'may take 180 s', 'TimeoutStopSec=190'),
            self.text(180), units=units((90,)))
        self.assert_found('TimeoutStopSec=70', self.text(60),
                          units=units((60,)))
        self.assert_found('may take for ever', self.text(0),
                          units=units((90,)))

    def test_with_a_watchdog_it_gets_more_time(self):
        self.assert_silent(self.text(180), units=units((30, 30)))

    def test_nobody_knows_what_runs_it(self):
        self.assert_found(
            ('No unit of systemd', '--unit', 'may take 60 s',
             'docker_graceful_timeout'), self.text(60))
        self.assert_silent(self.text(25))

    def test_nova_33_is_away_for_longer_than_it_is_waited_for(self):
        self.known()
        if 'manager_shutdown_timeout' not in self.known().settings.conf:
            self.assert_silent(self.text(180), nova='33.0.0',
                               units=units((190,)))
            return
        self.assert_found(
            ('takes 160 s', 'service_down_time, 60 s',
             '[DEFAULT]manager_shutdown_timeout to 40'),
            self.text(180, 160), nova='33.0.0', units=units((190,)))
        for version in '32.0.0', '34.0.0', 'today':
            self.assert_silent(self.text(180, 160), nova=version,
                               units=units((190,)))
        self.assert_silent(self.text(50, 40), nova='33.0.0',
                           units=units((90,)))

    def test_a_controller_has_no_compute_service(self):
        self.assert_silent(self.text(180), driver='')


class WatchdogTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.watchdog)

    TEXT = '[ironic_multihost]\ninstance_takeover = down\n'

    def test_with_a_watchdog(self):
        self.assert_silent(self.TEXT, units=units((30, 30)))

    def test_without_a_watchdog(self):
        self.assert_found(('may only be cut off', 'forced_down'),
                          self.TEXT, units=units((90,)))
        self.assert_found('no unit of systemd', self.TEXT)

    def test_longer_to_end_than_the_watchdog_waits(self):
        for seconds in 31, math.inf:
            self.assert_found(('TimeoutStopSec', '30 s'), self.TEXT,
                              units=units((seconds, 30)))

    def test_somebody_has_to_say_that_it_is_dead(self):
        for when in 'forced_down', 'never':
            self.assert_silent(self.TEXT.replace('down', when))

    def test_a_controller_takes_nothing_over(self):
        self.assert_silent(self.TEXT, driver='')


class CellsTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.cells)

    def new(self, **more):
        return views.with_more(
            views.consistent(), 'services',
            cloud_state.Service('compute-4', **{'mapped': None, **more}))

    def test_all_have_nodes_that_are_shown(self):
        self.assert_silent()
        # nova-ironic-multihost check tells of a node without a record.
        self.assert_silent(seen=views.without(
            views.consistent(), 'records', 1))

    def test_one_that_is_not_mapped(self):
        self.assert_found(
            ('compute-4', 'discover_hosts --by-service'),
            seen=self.new(mapped=False), fatal=True)

    def test_one_of_which_it_is_not_known(self):
        self.assert_found('no node of compute-4', seen=self.new())
        # Its nodes may be those without a record.
        self.assert_found('no node of compute-4', seen=views.without(
            self.new(up=False), 'records', 1))

    def test_one_that_takes_no_nodes_anyway(self):
        self.assert_silent(seen=self.new(up=False))
        self.assert_silent(seen=self.new(disabled=True))


class NamesTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.names)

    def renamed(self, **more):
        return views.with_more(views.consistent(), 'services',
                               cloud_state.Service('Compute-2', **more))

    def test_one_spelling_for_each(self):
        self.assert_silent()

    def test_two_that_are_up(self):
        self.assert_found('Compute-2, compute-2 are up', seen=self.renamed(),
                          fatal=True)

    def test_one_that_was_left_behind(self):
        self.assert_found(
            ('Compute-2, compute-2 are one host', 'service delete',
             'discover_hosts --by-service'), seen=self.renamed(up=False))

    def test_this_host(self):
        self.assert_silent(host='Compute-4')
        self.assert_found('set [DEFAULT]host = compute-1', host='Compute-1')
        self.assert_silent(host='Compute-1', driver='')


class PartitionTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.partition)

    def text(self, *peers, options='conductor_group = g'):
        return f'[ironic]\n{options}\npeer_list = {",".join(peers)}\n'

    def known(self, *args, seen=None, grouped=base.ALL, sharded=(), **more):
        """Inputs of a host.

        :param grouped: the nodes in group g
        :param sharded: the nodes in shard s
        """
        seen = seen or views.consistent()
        return super().known(*args, seen=dataclasses.replace(seen, nodes=tuple(
            dataclasses.replace(
                node, conductor_group='g' * (node.uuid in grouped),
                shard='s' * (node.uuid in sharded))
            for node in seen.nodes)), **more)

    def test_peers_that_have_all_the_nodes(self):
        self.assert_silent(self.text('compute-1', 'Compute-2', 'compute-3'))
        for options in 'shard = S', 'conductor_group = G\nshard = s':
            self.assert_silent(self.text(options=options),
                               sharded={'node-0', 'node-3'})

    def test_all_nodes_are_of_all(self):
        self.assert_silent()

    def test_a_peer_that_nova_does_not_have(self):
        self.assert_found('names compte-4', self.text(
            'compute-1', 'compute-2', 'compute-3', 'compte-4'))

    def test_a_host_that_is_not_named_has_nodes(self):
        text = self.text('compute-1', 'compute-2')
        self.assert_found(('2 nodes', 'recorded on compute-3'), text)
        # Those of a dead one come back.
        self.assert_silent(text, seen=views.changed(
            views.consistent(), 'services', 2, up=False))

    def test_no_nodes(self):
        for options, more in (('conductor_group = g', {'grouped': ()}),
                              ('shard = s', {}),
                              ('conductor_group =', {})):
            self.assert_found('Ironic has no node',
                              self.text(options=options), **more)

    def test_peers_without_group_and_shard(self):
        self.assert_found('[ironic]peer_list has no effect',
                          self.text('compute-1', options=''))


class ZonesTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.zones)

    def of(self, *names):
        return {f'compute-{number}': zone
                for number, zone in enumerate(names, 1) if zone}

    def test_no_zones_or_one(self):
        self.assert_silent()
        self.assert_silent(zones=self.of('z', 'z', 'z'))

    def test_a_single_host(self):
        seen = views.consistent()
        self.assert_silent(zones=self.of('z'), seen=cloud_state.CloudState(
            services=seen.services[:1]))

    def test_one_that_is_alone_in_its_zone(self):
        self.assert_found('compute-3 is alone in availability zone y',
                          zones=self.of('z', 'z', 'y'))
        self.assert_silent(
            '[ironic_multihost]\nmove_across_zones = true\n',
            zones=self.of('z', 'z', 'y'))

    def test_names_are_compared_in_lower_case(self):
        self.assert_silent(
            zones=self.of('z', 'z', 'z'), seen=views.changed(
                views.consistent(), 'services', 2, host='Compute-3'))

    def test_some_without_a_zone(self):
        for zones in ('z', 'z', None), ('z', 'y', None):
            self.assert_found('compute-3 is in no availability zone',
                              zones=self.of(*zones))


class SharedSettingsTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.shared_settings)

    def others(self, text='', host='compute-2', more=()):
        """Compute-2 has this text, compute-3 its default."""
        return {host: base.OURS + text, 'compute-3': base.OURS, **dict(more)}

    def test_equal_on_all(self):
        self.assert_silent(others=self.others())

    def test_something_else_on_one(self):
        self.assert_found(
            '[DEFAULT]service_down_time is 60 on compute-1, compute-3; 120 '
            'on compute-2', others=self.others('service_down_time = 120\n'),
            fatal=True)

    def test_invalid_values_are_told_by_others(self):
        self.assert_silent(others=self.others(
            '[ironic_multihost]\nring_partitions = 0\n'))

    def test_other_settings_for_other_nodes(self):
        self.assert_silent(
            '[ironic]\nshard = s\npeer_list = compute-1,compute-3\n',
            others={'compute-2': f'{base.OURS}service_down_time = 120\n'
                    '[ironic]\nshard = t\n',
                    'compute-3': f'{base.OURS}[ironic]\nshard = s\n'
                    'peer_list = COMPUTE-3,compute-1\n'})

    def test_nodes_of_two_partitions(self):
        self.assert_found(
            ('compute-1 serves all nodes',
             'compute-2 conductor group "g" and shard "s"'),
            others=self.others('[ironic]\nconductor_group = g\nshard = s\n'))

    def test_same_nodes_and_no_peers(self):
        text = '[ironic]\nshard = s\n'
        self.assert_found(
            'compute-1, compute-2, compute-3 serve the same nodes and '
            '[ironic]peer_list is empty', text, others=dict.fromkeys(
                ('compute-2', 'compute-3'), base.OURS + text), fatal=True)

    def test_two_of_one_name(self):
        self.assert_found(
            ('a.conf', 'compute-2.conf are of one host, compute-2'),
            others=self.others(more={'a': f'{base.OURS}host = Compute-2\n'}),
            fatal=True)

    def test_a_controller_is_not_compared(self):
        self.assert_silent(driver='', host='controller', others={
            'compute-1': base.OURS, **self.others()})

    def test_some_are_not_collected(self):
        self.assert_found(
            ('The settings of compute-2, compute-3 are not', '--collected'))
        with mock.patch.object(inputs, '_collected', return_value=[]):
            self.assert_found('settings of compute-1, compute-2', driver='')


class DriversTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.drivers)

    def test_all_have_the_same(self):
        self.assert_silent(others={'compute-2': base.OURS})
        self.assert_silent(driver=STOCK, others={'compute-2': STOCK})
        self.assert_silent(driver='', others={'compute-2': base.OURS})

    def test_some_are_switched(self):
        self.assert_found(
            ('compute-1, compute-3 is not', 'compute-2 is'), driver=STOCK,
            others={'compute-2': base.OURS, 'compute-3': STOCK})

    def test_nodes_of_one_are_not_marked(self):
        bare = {'node-1', 'node-4'}
        self.assert_found(('2 nodes of compute-2', 'OWNER_NOVA', 'Switch it'),
                          marked=base.ALL - bare)
        self.assert_silent(marked=base.ALL - bare, seen=views.changed(
            views.consistent(), 'services', 1, up=False))
        self.assert_silent(marked=base.ALL - {'node-1'}, seen=views.without(
            views.consistent(), 'providers', 1))


class PlacementTestCase(base.CheckTestCase):

    CHECK = staticmethod(checks.scheduling)

    def of(self, retries, stale, others=frozenset()):
        return {'placement': ('p.conf', retries, stale),
                'seen': cloud_state.CloudState(others=others)}

    def test_as_it_comes(self):
        self.assert_found(
            ('With p.conf', 'allocation_conflict_retry_count = 1 ('),
            **self.of(10, True))
        self.assert_found(f'set {checks.READ_COMMITTED} (',
                          **self.of(10, True, VIRTUAL))

    def test_it_tries_once(self):
        self.assert_silent(**self.of(1, True))
        self.assert_found(
            ('p.conf has', 'kvm-1, kvm-2', f'set {checks.READ_COMMITTED}'),
            **self.of(1, False, VIRTUAL))

    def test_it_reads_what_is_committed(self):
        for others in frozenset(), VIRTUAL:
            self.assert_silent(**self.of(10, False, others))

    def test_host_subset_size(self):
        def text(size):
            return f'[filter_scheduler]\nhost_subset_size = {size}\n'

        others = {'placement': ('p.conf', 10, False),
                  'seen': cloud_state.CloudState(others=VIRTUAL)}
        self.assert_silent(text(999))
        self.assert_silent(text(checks.MOST), **others)
        self.assert_found(
            ('mine.conf has [filter_scheduler]host_subset_size = 999',
             'kvm-1, kvm-2', 'remove it on'), text(999), **others)


class WordsTestCase(base.UpgradeTestCase):

    def test_a_few_names_of_many(self):
        self.assertEqual('a, b', arguments.some(['a', 'b']))
        self.assertEqual('a, b and 1 more', arguments.some(list('abc'), 2))
