# SPDX-License-Identifier: Apache-2.0

"""Each tool is told options that exist, and all of them the same."""

from nova.conf import opts as nova_opts
from oslo_service import _options as service_opts
from oslotest import base
from placement.conf import opts as placement_opts

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import checks
from nova_ironic_multihost import conf
from nova_ironic_multihost.tests.unit.client.upgrade import base as upgrade
from nova_ironic_multihost.tests.unit.etc.deploy import fragments

#: Options that differ from tool to tool, as they are granted other times.
TIMES = ('manager_shutdown_timeout', 'graceful_shutdown_timeout')

#: What may stand in nova.conf. To ask oslo.service in the public way would
#: choose threads for this whole process.
NOVA = [*nova_opts.list_opts(), ('DEFAULT', service_opts.service_opts),
        *conf.list_opts()]

#: The value that the upgrade check advises.
_, _, PARAMETERS = checks.READ_COMMITTED.partition(' = ')

#: Seconds between the end of nova-compute and its SIGKILL.
MARGIN = 5


class OptionsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.tools = {name: read() for name, read in fragments.TOOLS.items()}

    def parsed(self, sections, listed):
        """{(section, option): value} as oslo.config has it.

        :param sections: {section: {option: value}}
        :param listed: what list_opts() of a project returns.
        :raises KeyError: it has no such option.
        :raises ValueError: it may not have that value.
        """
        # A group is an OptGroup, a name or nothing.
        known = {(str(group or 'DEFAULT'), option.dest): option
                 for group, options in listed for option in options}
        return {(section, option): known[section, option].type(value)
                for section, options in sections.items()
                for option, value in options.items()}

    def test_nova_has_them(self):
        for name, tool in self.tools.items():
            with self.subTest(name):
                self.parsed(tool.compute, NOVA)
                for sections in tool.scheduler.values():
                    self.parsed(sections, NOVA)

    def test_placement_has_them(self):
        for name, tool in self.tools.items():
            with self.subTest(name):
                for sections in tool.placement.values():
                    self.parsed(sections, placement_opts.list_opts())

    def test_an_option_that_is_misspelt_is_found(self):
        for section, option, value, error in (
                ('DEFAULT', 'compute_drivre', 'x', KeyError),
                ('ironik', 'timeout', '1', KeyError),
                ('ironic', 'timeout', 'soon', ValueError),
                ('scheduler', 'max_attempts', '0', ValueError)):
            self.assertRaises(
                error, self.parsed, {section: {option: value}}, NOVA)

    def test_the_driver_is_ours(self):
        self.assertEqual(
            dict.fromkeys(self.tools, fragments.OURS),
            {name: tool.compute['DEFAULT']['compute_driver']
             for name, tool in self.tools.items()})

    def test_all_say_the_same(self):
        def told(tool):
            default = {option: value for option, value
                       in tool.compute['DEFAULT'].items()
                       if option not in TIMES}
            return str((sorted(default.items()), tool.compute['ironic']))

        self.assertEqual(1, len(set(map(told, self.tools.values()))),
                         '\n'.join(map(told, self.tools.values())))

    def test_all_have_the_same_two_sets(self):
        shared = {
            ('filter_scheduler', 'shuffle_best_same_weighed_hosts'): True,
            ('scheduler', 'max_attempts'): 10}
        for name, tool in self.tools.items():
            with self.subTest(name):
                scheduler = {kind: self.parsed(sections, NOVA)
                             for kind, sections in tool.scheduler.items()}
                self.assertEqual({
                    'bare-metal-only': shared | {
                        ('filter_scheduler', 'host_subset_size'): 999},
                    'with-vms': shared}, scheduler)
                self.assertEqual(
                    {'bare-metal-only': {'placement': {
                        'allocation_conflict_retry_count': '1'}},
                     'with-vms': {'placement_database': {
                         'connection_parameters': PARAMETERS}}},
                    tool.placement)

    def test_a_stop_ends_before_it_is_killed_and_before_nodes_move(self):
        for name, tool in self.tools.items():
            with self.subTest(name):
                parsed = self.parsed(tool.compute, NOVA)
                limit = parsed['DEFAULT', 'graceful_shutdown_timeout']
                self.assertLessEqual(
                    parsed['DEFAULT', 'manager_shutdown_timeout'], limit)
                self.assertLessEqual(limit + MARGIN, tool.grace)
                # service_down_time as nova has it.
                self.assertLess(limit, 60)


class AcceptedTestCase(upgrade.CheckTestCase):

    CHECK = staticmethod(checks.scheduling)

    def test_the_upgrade_check_accepts_each_set(self):
        for read in fragments.TOOLS.values():
            for kind, sections in read().placement.items():
                path = self.write('placement.conf', ''.join(
                    f'[{section}]\n' + ''.join(
                        f'{option} = {value}\n'
                        for option, value in options.items())
                    for section, options in sections.items()))
                self.assert_silent(
                    placement=self.inputs('--placement-config',
                                          path).placement,
                    seen=cloud_state.CloudState(others=frozenset(
                        {'kvm-1'} if kind == 'with-vms' else ())))
