# SPDX-License-Identifier: Apache-2.0

import configparser
import pathlib

import fixtures
from openstack import config
from oslotest import base

from lab import configuration
from lab import errors
from lab import settings


class ConfigurationTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.settings = settings.load(self.directory, 20000)

    @staticmethod
    def parse(text):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(text)
        return parser

    def compute(self, name='compute-1', driver='ours', options=()):
        files = configuration.compute(self.settings, name, driver, options)
        return self.parse(files[f'nova/{name}.conf'])

    def test_booleans_and_lists(self):
        self.assertEqual(
            '[a]\nyes = true\nmany = 1\nmany = 2\n\n',
            configuration.ini({'a': {'yes': True, 'many': [1, 2]}}))

    def test_compute_has_no_database(self):
        sections = self.compute().sections()
        self.assertNotIn('database', sections)
        self.assertNotIn('api_database', sections)

    def test_drivers(self):
        for driver, expected in (
                ('ours', 'ironic_multihost.IronicMultiHostDriver'),
                ('stock', 'ironic.IronicDriver')):
            found = self.compute(driver=driver)
            self.assertEqual(expected, found['DEFAULT']['compute_driver'])

    def test_computes_share_no_directory(self):
        one, other = self.compute('compute-1'), self.compute('compute-2')
        for section, option in (('DEFAULT', 'state_path'),
                                ('DEFAULT', 'host'),
                                ('oslo_concurrency', 'lock_path')):
            self.assertNotEqual(one[section][option], other[section][option])

    def test_option_replaces_and_adds(self):
        found = self.compute(options=[
            'DEFAULT.update_resources_interval=60',
            'ironic_multihost.partitions=7'])
        self.assertEqual(
            '60', found['DEFAULT']['update_resources_interval'])
        self.assertEqual('2', found['DEFAULT']['report_interval'])
        self.assertEqual('7', found['ironic_multihost']['partitions'])

    def test_each_compute_has_a_port_of_its_own_for_metrics(self):
        def port(name, *options):
            return self.compute(name, options=options).get(
                *configuration.METRICS_PORT, fallback=None)

        given = 'ironic_multihost.metrics_port=20100'
        self.assertEqual(
            ['20100', '20109', '20100'],
            [port(name, given)
             for name in ('compute-1', 'compute-10', 'spare')])
        self.assertIsNone(port('compute-2'))
        self.assertEqual(
            '0', port('compute-2', 'ironic_multihost.metrics_port=0'))

    def test_option_reaches_the_other_nova_services(self):
        # Whether a compute is down is for the API to tell.
        files = configuration.shared(
            self.settings, ['DEFAULT.service_down_time=30'])
        nova = self.parse(files['nova/nova.conf'])
        self.assertEqual('30', nova['DEFAULT']['service_down_time'])

    def test_value_may_hold_equals_signs(self):
        self.assertEqual({'a': {'b': 'c=d.e'}},
                         configuration.overrides(['a.b=c=d.e']))

    def test_option_of_ironic(self):
        options = ['ironic:fake.deploy_delay=5', 'a.b=c']
        files = configuration.shared(self.settings, options)
        self.assertEqual('5', self.parse(
            files['ironic/ironic.conf'])['fake']['deploy_delay'])
        nova = self.parse(files['nova/nova.conf'])
        self.assertEqual(('c', False), (nova['a']['b'], 'fake' in nova))
        self.assertNotIn('fake', self.compute(options=options))

    def test_bus_behind_a_relay(self):
        url = configuration.transport(self.settings, 'relay')
        found = self.compute(options=[f'DEFAULT.transport_url={url}'])
        self.assertIn(f':{self.settings.port("relay")}/',
                      found['DEFAULT']['transport_url'])

    def test_malformed_option(self):
        for text in ('a.b', 'b=c', '.b=c', 'a.=c', ''):
            error = self.assertRaises(
                errors.LabError, configuration.overrides, [text])
            self.assertIn('SECTION.OPTION=VALUE', str(error))

    def test_nova_sees_nodes_as_a_service_of_the_service_project(self):
        # A token of the whole system would get a refusal instead of an
        # empty list when the policy is wrong.
        ironic = self.compute()['ironic']
        self.assertEqual('service', ironic['project_name'])
        self.assertNotIn('system_scope', ironic)
        self.assertEqual(
            {'ironic/policy.yaml':
             'service_role: "role:service and project_name:service"\n'},
            configuration.ironic_policy())

    def test_policy_that_hides_all_nodes_replaces_the_other(self):
        shared = configuration.shared(self.settings)
        hiding = configuration.ironic_policy(nova_sees_nodes=False)
        self.assertEqual({'ironic/policy.yaml': 'service_role: "!"\n'},
                         hiding)
        self.assertLessEqual(hiding.keys(), shared.keys())
        ironic = self.parse(shared['ironic/ironic.conf'])
        self.assertEqual(
            str(self.settings.conf / 'ironic' / 'policy.yaml'),
            ironic['oslo_policy']['policy_file'])

    def test_nothing_listens_beyond_loopback(self):
        files = configuration.shared(self.settings)
        self.assertNotIn('0.0.0.0', ''.join(files.values()))
        mariadb = self.parse(files['mariadb.cnf'])['mariadbd']
        self.assertEqual('127.0.0.1', mariadb['bind_address'])
        self.assertIn('listeners.tcp.1 = 127.0.0.1:20002',
                      files['rabbitmq.conf'])

    def test_all_files_of_services_are_below_the_lab(self):
        files = configuration.shared(self.settings)
        for file, section, option in (
                ('glance/glance-api.conf', 'images',
                 'filesystem_store_datadir'),
                ('nova/nova.conf', 'DEFAULT', 'state_path'),
                ('ironic/ironic.conf', 'DEFAULT', 'state_path'),
                ('neutron/neutron.conf', 'DEFAULT', 'state_path')):
            path = self.parse(files[file])[section][option]
            self.assertTrue(path.startswith(str(self.directory)), path)

    def test_prepared_databases_learn_where_the_lab_is(self):
        text = configuration.shared(self.settings)['mariadb-place.sql']
        for line in text.splitlines():
            self.assertRegex(line, r'^UPDATE .*;$')
        for name in ('keystone', 'placement', 'glance', 'neutron', 'ironic',
                     'nova'):
            self.assertIn(f"'{self.settings.url(name)}", text)
        self.assertIn(f"'{configuration.transport(self.settings)}'", text)
        for name in ('nova_cell0', 'nova_cell1'):
            self.assertIn(f"'{self.settings.database_url(name)}'", text)
        self.assertIn(f"'file://{self.settings.data}/", text)

    def test_a_directory_with_a_quote_in_its_name(self):
        quoted = settings.load(self.directory / "it's", 20000)
        self.assertIn("/it''s/data/glance/images/', image_id)",
                      configuration.shared(quoted)['mariadb-place.sql'])

    def test_clients_find_an_admin_of_either_scope(self):
        self.settings.clouds.write_text(configuration.clouds(self.settings))
        found = config.OpenStackConfig(
            config_files=[str(self.settings.clouds)], load_envvars=False)
        project = found.get_one('lab-admin').get_auth_args()
        self.assertEqual('admin', project['project_name'])
        self.assertNotIn('system_scope', project)
        system = found.get_one('lab-system-admin').get_auth_args()
        self.assertEqual('all', system['system_scope'])
        self.assertNotIn('project_name', system)
        for one in project, system:
            self.assertEqual('http://127.0.0.1:20005/v3', one['auth_url'])

    def test_tells_the_files_that_differ(self):
        files = {'a.conf': 'a', 'nova/b.conf': 'b', 'c.conf': 'c'}
        configuration.write(self.directory, files)
        self.assertEqual([], configuration.differing(self.directory, files))
        self.assertEqual(
            ['nova/b.conf', 'new.conf'],
            configuration.differing(self.directory, files | {
                'nova/b.conf': 'other', 'new.conf': ''}))

    def test_written_below_the_directory(self):
        configuration.write(self.directory, {'a/b.conf': 'text'})
        self.assertEqual(
            'text', (self.directory / 'a' / 'b.conf').read_text())


class NumberTestCase(base.BaseTestCase):

    def test_what_up_was_told_counts(self):
        self.assertEqual(8, configuration.number(
            ['DEFAULT.debug=true'], 'DEFAULT', 'service_down_time', 8))
        self.assertEqual(60, configuration.number(
            ['DEFAULT.debug=true', 'DEFAULT.service_down_time=60'],
            'DEFAULT', 'service_down_time', 8))
