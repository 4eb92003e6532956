# SPDX-License-Identifier: Apache-2.0

"""What is replaced in nova: the table, and how it is applied."""

import ast
import pathlib
import types
from unittest import mock

from nova.compute import build_results
from nova.compute import manager
from nova.compute import resource_tracker
from nova import objects
from nova.scheduler.client import report
from nova import service
from oslo_messaging._drivers import impl_rabbit
from oslotest import base

import nova_ironic_multihost
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import table

PACKAGE = pathlib.Path(nova_ironic_multihost.__file__).parent

#: Private modules that are imported, besides those of the targets.
PRIVATE_MODULES = {
    'oslo_messaging._drivers.amqp', 'oslo_messaging._drivers.common',
    'nova_ironic_multihost._nova_virt'}

#: Rows that tests break, each in one of three ways.
BROKEN = (
    ('manager', '_init_instance'), ('manager', '_get_compute_nodes_in_db'),
    ('manager', '_do_build_and_run_instance'), ('manager', 'post_start_hook'),
    ('manager', '_update_available_resource_for_node'),
    ('tracker', '_update'), ('tracker', '_init_compute_node'),
    ('tracker', '_set_instance_host_and_node'),
    ('tracker', 'clean_compute_node_cache'), ('manager', '_instance_update'))


def targets():
    compute = object.__new__(manager.ComputeManager)
    starting = object.__new__(service.Service)
    starting.manager = compute
    return {
        'manager': compute,
        'tracker': object.__new__(resource_tracker.ResourceTracker),
        'client': object.__new__(report.SchedulerReportClient),
        'driver': object.__new__(names.IronicDriver),
        'service': starting,
        'transport': object.__new__(impl_rabbit.RabbitDriver)}


class TableTestCase(base.BaseTestCase):

    def test_this_nova_is_as_the_table_says(self):
        self.assertEqual([], table.lacking())
        self.assertEqual([], table.mismatches())

    def test_each_row_stands_once(self):
        listed = [(row.target, row.label, bool(row.layer))
                  for row in table.rows()]
        self.assertEqual(sorted(set(listed)), sorted(listed))

    def test_rows_of_a_release(self):
        def stop(release):
            return [row.target for row in table.rows(release)
                    if row.label in ('stop', 'set_shutdown_in_progress')]

        self.assertEqual((['service'], ['manager'], ['manager']),
                         (stop(33), stop(34), stop(35)))

    def test_nova_is_known_by_what_it_has(self):
        for owner, target in ((mock.Mock(spec=[]), 'service'),
                              (mock.Mock(), 'manager')):
            with mock.patch.object(table.nova_manager, 'Manager', owner):
                self.assertIn((target, 'stop_driver'), [
                    (row.target, row.layer.__name__)
                    for row in table.rows() if row.layer
                    and row.target in ('service', 'manager')])

    def test_all_rows_are_applied(self):
        applied = targets()
        before = {target: set(vars(one)) for target, one in applied.items()}
        apply.apply(table.rows(), applied, mock.Mock())
        self.assertCountEqual(
            [(target, name) for target, one in applied.items()
             for name in vars(one).keys() - before[target]],
            [(row.target, name) for row in table.rows() if row.layer
             for name in row.names(type(applied[row.target]))])

    def test_what_a_service_has_not_is_left_out(self):
        applied = {'manager': targets()['manager']}
        apply.apply(table.rows(), applied, mock.Mock())
        self.assertIn('_init_instance', vars(applied['manager']))


class MismatchTestCase(base.BaseTestCase):

    def break_row(self, target, label, way):
        """Break a row as a nova would that has renamed it, say."""
        row = next(row for row in table.rows()
                   if (row.target, row.label) == (target, label)
                   and row.layer)
        behaviour = {'new': 'text'}
        if way == 'parameters':
            behaviour = {'new': lambda self, other: None}
        return mock.patch.object(row.owner, label, **behaviour)

    def test_broken_rows(self):
        for number, (target, label) in enumerate(BROKEN):
            for way in ('no method', 'parameters'):
                if way == 'parameters' and not next(
                        row.parameters for row in table.rows()
                        if row.label == label and row.layer):
                    continue
                with self.break_row(target, label, way):
                    [sentence] = table.mismatches()
                    self.assertRegex(
                        sentence,
                        rf'^In nova \d+\.\S+ \w+\.{label} (is no method any '
                        r'more|has no parameter [\w, ]+): install nova 31 to '
                        r'34, or a nova-ironic-multihost that supports this '
                        r'one\.$')
                    self.assertEqual(1, len(table.lacking()), number)

    def refuse(self, what):
        self.assertIn(what, ' '.join(table.mismatches()))

    def test_what_is_not_replaced_is_checked_as_well(self):
        for owner, name, what in (
                (objects.Instance, 'save', 'Instance.save is no method'),
                (names.IronicDriver, 'failed_spawn_cleanup',
                 'IronicDriver.failed_spawn_cleanup is no method'),
                (impl_rabbit.RabbitDriver, 'listen',
                 'RabbitDriver.listen is no method')):
            with mock.patch.object(owner, name, 'text'):
                self.refuse(what)
        with mock.patch.object(
                report.SchedulerReportClient, '_refresh_and_get_inventory',
                lambda self, context, rp_uuid, more: None):
            self.refuse('SchedulerReportClient._refresh_and_get_inventory '
                        'needs more')

    def test_class_that_is_gone(self):
        gone = mock.patch.dict(table.TARGETS, node=('nova.gone:Node',))
        with gone:
            self.refuse('Node._max_microversion is gone')


class LayersTestCase(base.BaseTestCase):
    """The order in which a build passes the layers."""

    def setUp(self):
        super().setUp()
        self.done = []
        self.instance = mock.Mock(uuid='i1')
        self.compute = object.__new__(manager.ComputeManager)
        parts = mock.Mock(**{
            'nodes.adopt': self.noting('adopt', False),
            'backups.keep': self.noting('copy'),
            'backups.end': self.noting('over'),
            'shutdown.begun': lambda: False})
        parts.in_flight.begin = self.noting('begin')
        parts.in_flight.end = self.noting('end')

        def build(name, instance, act, *args):
            self.done.append('guard')
            return act()

        parts.guard.build = build
        for name in ('build_and_run_instance', '_do_build_and_run_instance'):
            setattr(self.compute, name, types.MethodType(
                lambda self, *args, name=name, nova=self.nova, **kwargs:
                    nova(name), self.compute))
        self.result = build_results.ACTIVE
        apply.apply(table.rows(), {'manager': self.compute}, parts)

    def noting(self, what, answer=None):
        def note(*args):
            self.done.append(what)
            return answer

        return note

    def nova(self, name):
        self.done.append(name)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def test_a_build_that_arrives(self):
        self.compute.build_and_run_instance(
            None, self.instance, {}, node='n1')
        self.assertEqual(
            ['begin', 'copy', 'build_and_run_instance', 'adopt'], self.done)

    def test_a_build_that_is_carried_out(self):
        save = self.instance.save
        self.compute._do_build_and_run_instance(
            None, self.instance, node='n1')
        self.assertEqual(
            ['guard', '_do_build_and_run_instance', 'over', 'end'], self.done)
        self.assertIsNot(save, self.instance.save)

    def test_a_build_that_fails(self):
        self.result = OSError()
        self.assertRaises(
            OSError, self.compute._do_build_and_run_instance,
            None, self.instance, node='n1')
        self.assertEqual(
            ['guard', '_do_build_and_run_instance', 'end'],
            self.done)

    def test_novas_own_method(self):
        self.assertEqual(self.result, apply.novas(
            self.compute, '_do_build_and_run_instance')())
        self.assertEqual(['_do_build_and_run_instance'], self.done)
        other = mock.Mock()
        self.assertIs(other.method, apply.novas(other, 'method'))


class CallTestCase(base.BaseTestCase):

    def test_arguments(self):
        method = mock.Mock()
        call = apply.Call(
            None, 'm', method, ('one', 'two', 'three'), (1,), {'two': 2})
        self.assertEqual((1, 2, None),
                         (call['one'], call['two'], call['three']))
        self.assertIs(method.return_value, call())
        method.assert_called_once_with(1, two=2)
        call.changed(two=3)
        method.assert_called_with(one=1, two=3)

    def test_what_is_applied_twice(self):
        target = mock.Mock()
        row = table.Row('manager', '_get_nodes', '',
                        lambda parts, call: [*call(), 'ours'], '')
        nova = target._get_nodes = mock.Mock(return_value=['nova'])
        for _ in range(2):
            apply.apply([row], {'manager': target}, None)
        self.assertEqual(['nova', 'ours', 'ours'], target._get_nodes(None))
        self.assertIs(nova, apply.novas(target, '_get_nodes'))

    def test_parameters(self):
        self.assertIn('instance', apply.parameters(
            manager.ComputeManager.attach_interface))

    def test_driver_of_an_operator_that_names_its_parameters_otherwise(self):
        class Own(names.IronicDriver):
            def spawn(self, *args, **kwargs):
                return args

        seen = []
        target = object.__new__(Own)
        apply.apply(
            [table.Row(
                'driver', 'spawn', None, lambda parts, call: seen.append(
                    call['instance']) or call(), '')],
            {'driver': target}, None)
        self.assertEqual(('context', 'i1'), target.spawn('context', 'i1'))
        self.assertEqual(['i1'], seen)


class InsidesTestCase(base.BaseTestCase):
    """The table is the only place that knows the insides of nova."""

    def setUp(self):
        super().setUp()
        self.sources = {
            path: ast.parse(path.read_text())
            for path in PACKAGE.rglob('*.py') if 'tests' not in path.parts}

    def test_private_attributes_of_others(self):
        listed = {row.label for row in table.ROWS} | {'_NODE_FIELDS'}
        defined = {path: {node.name for node in ast.walk(source) if isinstance(
            node, (ast.FunctionDef, ast.ClassDef))} | {
                node.attr for node in ast.walk(source)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)}
            for path, source in self.sources.items()}
        ours = {node.name: path for path, source in self.sources.items()
                for node in ast.walk(source) if isinstance(node, ast.ClassDef)}
        for path, source in self.sources.items():
            # And those of a base class in another module.
            mine = defined[path].union(*(
                defined[ours[base.attr]] for node in ast.walk(source)
                if isinstance(node, ast.ClassDef) for base in node.bases
                if isinstance(base, ast.Attribute) and base.attr in ours))
            for node in ast.walk(source):
                if (isinstance(node, ast.Attribute)
                        and node.attr.startswith('_')
                        and not node.attr.startswith('__')
                        and node.attr not in mine
                        # Of enum and namedtuple.
                        and node.attr not in ('_replace', '_value_')
                        and 'client' not in path.parts):
                    self.assertIn(node.attr, listed, f'{path}:{node.lineno}')

    def test_private_modules(self):
        listed = PRIVATE_MODULES | {
            place.partition(':')[0]
            for row in table.ROWS for place in row.places}
        for path, source in self.sources.items():
            for node in ast.walk(source):
                for name in (
                        [f'{node.module}.{one.name}' for one in node.names]
                        if isinstance(node, ast.ImportFrom) else
                        [one.name for one in node.names]
                        if isinstance(node, ast.Import) else []):
                    if '._' in name and not name.startswith('__future__'):
                        self.assertIn(name, listed, f'{path}:{node.lineno}')
