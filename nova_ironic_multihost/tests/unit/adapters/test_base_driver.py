# SPDX-License-Identifier: Apache-2.0

"""Which classes this package's driver may be put in front of."""

import functools
import inspect
import pathlib
import sys
import types

import fixtures
from nova.virt.ironic import driver as ironic_driver
from oslotest import base

from nova_ironic_multihost.adapters import base_driver
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost import driver as multihost

OURS = multihost.IronicMultiHostDriver


class Good(names.IronicDriver):
    """What an operator may write."""

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self.theirs = True

    def prepare_for_spawn(self, instance):
        names.IronicDriver.prepare_for_spawn(self, instance)

    def spawn(self, context, instance, *args, **kwargs):
        pass

    def _label(self):
        return 'acme'


class BasesTestCase(base.BaseTestCase):

    def assert_unfit(self, words, call, *args):
        error = self.assertRaises(base_driver.UnsupportedDriver, call, *args)
        self.assertIn('[ironic_multihost]base_driver: ', str(error))
        for word in words:
            self.assertIn(word, str(error))
        return str(error)


class LoadTestCase(BasesTestCase):

    def setUp(self):
        super().setUp()
        self.module = types.ModuleType('acme_driver')
        self.module.Good = Good
        self.module.thing = 7
        sys.modules['acme_driver'] = self.module
        self.addCleanup(sys.modules.pop, 'acme_driver')

    def test_a_subclass_of_novas(self):
        self.assertIs(Good, base_driver.load('acme_driver.Good'))

    def test_it_cannot_be_imported(self):
        self.assert_unfit(
            ["No module named 'acme'", 'name is complete', 'below nova.virt'],
            base_driver.load, 'acme.driver.Good')
        self.assert_unfit(["no attribute 'Bad'"],
                          base_driver.load, 'acme_driver.Bad')
        self.assert_unfit(['MODULE.CLASS'], base_driver.load, 'Good')

    def test_it_fails_when_it_is_imported(self):
        directory = self.useFixture(fixtures.TempDir()).path
        pathlib.Path(directory, 'acme_broken.py').write_text('1 / 0')
        self.useFixture(fixtures.MonkeyPatch(
            'sys.path', [*sys.path, directory]))
        self.assert_unfit(['ZeroDivisionError'],
                          base_driver.load, 'acme_broken.Good')

    def test_it_does_not_extend_novas(self):
        self.module.Copy = type('Copy', (), {})
        for name in 'Copy', 'thing':
            self.assert_unfit(
                ['subclass of nova.virt.ironic.driver.IronicDriver'],
                base_driver.load, f'acme_driver.{name}')


class ComposeTestCase(BasesTestCase):

    def unfit(self, words, **attributes):
        return self.assert_unfit(
            words, base_driver.compose, OURS,
            type('Bad', (names.IronicDriver,), attributes))

    def test_order(self):
        composed = base_driver.compose(OURS, Good)
        self.assertEqual((composed, OURS, Good, names.IronicDriver),
                         composed.__mro__[:4])
        self.assertEqual('nova_ironic_multihost.driver.IronicMultiHostDriver',
                         f'{composed.__module__}.{composed.__name__}')

    def test_novas_own(self):
        self.assertIs(names.IronicDriver, base_driver.compose(
            OURS, names.IronicDriver).__mro__[2])

    def test_what_is_needed_is_not_called(self):
        def override(self, *args, **kwargs):
            return 'ironic'

        for name in base_driver.NEEDED:
            self.unfit([f'Bad.{name} does not call', f'super().{name}()'],
                       **{name: override})

    def test_what_is_needed_is_not_called_half_way(self):
        class Half(names.IronicDriver):
            def init_host(self, host):
                pass

        class Whole(Half):
            def init_host(self, host):
                super().init_host(host)

        self.assert_unfit(['Half.init_host'], base_driver.compose, OURS, Whole)

    def test_it_is_called_below_a_decorator(self):
        def decorated(function):
            def call(*args, **kwargs):
                return function(*args, **kwargs)
            return call

        class Fine(names.IronicDriver):
            @decorated
            def init_host(self, host):
                super().init_host(host)

            def __init__(self, *args):
                def init():
                    super(Fine, self).__init__(*args)
                init()

        self.assertTrue(issubclass(base_driver.compose(OURS, Fine), Fine))

    def test_it_is_called_below_a_decorator_that_only_names_it(self):
        def init_host(self, host):
            super(fine, self).init_host(host)

        def call(self, host):
            pass

        call.__wrapped__ = init_host
        fine = type('Fine', (names.IronicDriver,), {'init_host': call})
        self.assertTrue(issubclass(base_driver.compose(OURS, fine), fine))

    def test_parameters_that_are_passed(self):
        def destroy(self, context, instance, network_info):
            super().destroy(context, instance, network_info)

        self.unfit(['Bad.destroy', 'destroy_secrets'], destroy=destroy)

    def test_names_of_parameters_that_are_not_passed_by_name(self):
        class Fine(names.IronicDriver):
            def update_provider_tree(self, tree, node, allocs=None):
                super().update_provider_tree(tree, node, allocs)

        self.assertTrue(issubclass(base_driver.compose(OURS, Fine), Fine))

    def test_the_gate_finds_no_instance(self):
        def spawn(*args, **kwargs):
            pass

        self.unfit(['Bad.spawn has no parameter "instance"',
                    'functools.wraps'], spawn=spawn)
        # As it should be.
        wrapped = functools.wraps(names.IronicDriver.spawn)(spawn)
        fine = type('Fine', (names.IronicDriver,), {'spawn': wrapped})
        self.assertTrue(issubclass(base_driver.compose(OURS, fine), fine))

    def test_the_gate_stands_before_methods_only(self):
        self.unfit(['Bad.spawn is no plain method'], spawn=None)

    def test_names_that_both_have(self):
        self.unfit(['rename service'], service=1)

    def test_names_of_what_ours_sets(self):
        def init_host(self, host):
            super(names.IronicDriver, self).init_host(host)
            self.service = self._theirs = self.node_cache = host

        def _window(self):
            # Of something else.
            self.thing.service = 1

        self.unfit(['Bad has names', 'rename service.'],
                   init_host=init_host, _window=_window)
        self.unfit(['rename service.'], service=property(lambda self: 1))

    def test_names_of_what_stands_behind_novas(self):
        class Mixin:

            def service(self):
                pass

        class Mixed(names.IronicDriver, Mixin):
            pass

        self.assert_unfit(
            ['Mixin has names', 'rename service'],
            base_driver.compose,
            OURS,
            Mixed,
        )

    def test_all_is_said_at_once(self):
        self.unfit(['Bad.spawn', 'service'], service=1, spawn=None)

    def test_ours_is_below(self):
        class Mine(OURS):
            pass

        self.assert_unfit(
            ["let it extend nova's"], base_driver.compose, OURS, Mine)

    def test_classes_that_python_cannot_join(self):
        class Meta(type):
            def __new__(cls, name, parents, attributes):
                if OURS in parents:
                    raise TypeError('no heirs')
                return super().__new__(cls, name, parents, attributes)

        class Lonely(names.IronicDriver, metaclass=Meta):
            pass

        self.assert_unfit(['no heirs', 'metaclass'],
                          base_driver.compose, OURS, Lonely)


class RequireKeptTestCase(BasesTestCase):

    def test_attributes(self):
        driver = types.SimpleNamespace(_guard=1, _peer_poller=2, other=3)
        base_driver.require_kept(driver, {'_guard': 1, '_peer_poller': 2})
        self.assert_unfit(
            ['rename _gone, _peer_poller.'], base_driver.require_kept, driver,
            {'_guard': 1, '_peer_poller': 4, '_gone': 5})


class ShadowedTestCase(BasesTestCase):

    def test_what_is_not_called(self):
        class Listing(Good):
            def get_available_nodes(self, refresh=False):
                return super().get_available_nodes(refresh)

            def _get_node_list(self, return_generator=False, **kwargs):
                return []

        class Info(Listing):
            def get_info(self, instance, use_cache=True):
                return None

        self.assertEqual([], base_driver.shadowed(Good))
        self.assertEqual(
            ['Info.get_info', 'Listing._get_node_list',
             'Listing.get_available_nodes'], base_driver.shadowed(Info))

    def test_they_are_those_that_ours_does_not_call(self):
        self.assertEqual(base_driver.ANSWERED, {
            name for name, method in vars(OURS).items()
            if inspect.isfunction(method)
            and hasattr(names.IronicDriver, name)
            and not base_driver.calls_on(method, name)})

    def test_nova_has_all_of_them(self):
        for name in base_driver.SHADOWED:
            self.assertTrue(hasattr(names.IronicDriver, name), name)


class OtherBaseTestCase(BasesTestCase):

    def test_fields_that_are_added(self):
        before = ironic_driver._NODE_FIELDS
        self.addCleanup(setattr, ironic_driver, '_NODE_FIELDS', before)
        ironic_driver._NODE_FIELDS = (*before, 'owner')
        self.assertEqual((*before, 'owner'), names.node_fields())

    def test_the_gate_stands_before_what_nova_does_not_have(self):
        class Pausing(Good):
            def pause(self, instance):
                pass

            def get_diagnostics(self, instance):
                pass

        self.assertEqual(sorted(operations.MUTATIONS),
                         operations.mutations(names.IronicDriver))
        self.assertEqual({*operations.MUTATIONS, 'pause'},
                         set(operations.mutations(Pausing)))
