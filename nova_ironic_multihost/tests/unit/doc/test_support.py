# SPDX-License-Identifier: Apache-2.0

"""The page of what is tested says what tox.ini and pyproject.toml say."""

import configparser
import csv
import pathlib
import re
import tomllib

from oslotest import base

from nova_ironic_multihost.tests.unit import tools

ROOT = pathlib.Path(__file__).resolve().parents[4]
PAGE = ROOT / 'doc' / 'source' / 'reference' / 'support.rst'

#: Functional tests of a nova that is not the latest, in tox.ini.
FUNCTIONAL = re.compile(
    r'functional-nova(\d+): .*posargs:\[\.\]test_\((.*)\)\[\.\]')


class SupportTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.page = PAGE.read_text()
        self.rows = list(csv.reader(
            (line.strip() for line in self.page.splitlines()
             if line.startswith('   "')), skipinitialspace=True))
        self.novas = sorted(tools.load('test').NOVAS)

    def cells(self, name):
        [cells] = [cells for first, *cells in self.rows if first == name]
        return cells

    def test_releases(self):
        header = re.search(r'^   :header: (.*)', self.page, re.MULTILINE)[1]
        self.assertEqual(self.novas, re.findall(r'nova (\d+)', header))

    def test_functional(self):
        wanted = {nova: set(tests.split('|')) for nova, tests
                  in FUNCTIONAL.findall((ROOT / 'tox.ini').read_text())}
        found = {nova: set(re.findall('``(.+?)``', cell)) for nova, cell
                 in zip(self.novas[:-1], self.cells('functional'))}
        self.assertEqual(wanted, found)

    def test_pythons(self):
        # The best one of each nova is what runs with each change.
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(ROOT / 'tox.ini')
        first = [tox['python'][f'nova{nova}'].partition(',')[0]
                 for nova in self.novas]
        daily = self.cells('Python, with each change')
        self.assertEqual(first, [f'python{version}' for version in daily])
        classifiers = tomllib.loads(
            (ROOT / 'pyproject.toml').read_text())['project']['classifiers']
        wanted = {name.rpartition(' ')[2] for name in classifiers
                  if re.search(r':: 3\.\d+$', name)}
        asked = self.cells('Python, unit and loading, on request')
        for found in daily + asked, self.cells('Python')[:1]:
            self.assertEqual(
                wanted, set(re.findall(r'3\.\d+', ' '.join(found))))

    def test_services(self):
        # Of the series of the lab: its Ironic and its placement.
        [tested, _] = self.cells('Ironic, placement')
        for series in sorted((ROOT / 'lab' / 'releases').glob('*.txt')):
            versions = dict(re.findall(
                r'^(ironic|openstack-placement)==(\d+\.\d+)',
                series.read_text(), re.MULTILINE))
            self.assertIn(f'{versions["ironic"]} and '
                          f'{versions["openstack-placement"]} ({series.stem})',
                          tested)
