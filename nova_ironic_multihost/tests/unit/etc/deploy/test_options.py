# SPDX-License-Identifier: Apache-2.0

"""Each tool is told options that exist, and all of them the same."""

from nova.conf import opts as nova_opts
from oslo_service import _options as service_opts
from oslotest import base
from placement.conf import opts as placement_opts

from nova_ironic_multihost import conf
from nova_ironic_multihost.tests.unit.etc.deploy import fragments

#: Options that differ from tool to tool, as they are granted other times.
TIMES = ('manager_shutdown_timeout', 'graceful_shutdown_timeout')

#: What may stand in nova.conf. To ask oslo.service in the public way would
#: choose threads for this whole process.
NOVA = [*nova_opts.list_opts(), ('DEFAULT', service_opts.service_opts),
        *conf.list_opts()]

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
                self.parsed(tool.scheduler, NOVA)

    def test_placement_has_them(self):
        for name, tool in self.tools.items():
            with self.subTest(name):
                self.parsed(tool.placement, placement_opts.list_opts())

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
            # YAML has a truth of its own.
            return str((sorted(default.items()), tool.compute['ironic'],
                        sorted((section, sorted(options.items()))
                               for section, options in tool.scheduler.items()),
                        tool.placement)).lower()

        self.assertEqual(1, len(set(map(told, self.tools.values()))),
                         '\n'.join(map(told, self.tools.values())))

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
