# SPDX-License-Identifier: Apache-2.0

"""Each file can be read, and stands on the page of its tool."""

import configparser
import re
import tomllib

from oslotest import base
import yaml

from nova_ironic_multihost.tests.unit.etc.deploy import fragments

PAGES = fragments.ROOT / 'doc' / 'source' / 'user' / 'deploy'

#: What a page shows, below the root.
SHOWN = re.compile(r'\.\. literalinclude:: /\.\./\.\./(\S+)\n')

#: A list-table of what trips people up, by its title.
TRIPS = '\nWhat trips people up\n====================\n'

#: What is neither YAML nor made of sections.
OTHERS = {'Containerfile', 'Dockerfile', 'kolla-build.conf'}


class FilesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.files = {str(path.relative_to(fragments.ROOT)): path
                      for path in sorted(fragments.DEPLOY.glob('*/*'))}
        self.pages = {name: (PAGES / f'{name}.rst').read_text()
                      for name in fragments.TOOLS}

    def test_each_tool_has_its_files_and_its_page(self):
        self.assertEqual(
            fragments.TOOLS.keys(),
            {path.parent.name for path in self.files.values()})
        self.assertEqual(
            {*fragments.TOOLS, 'index'},
            {path.stem for path in PAGES.glob('*.rst')})

    def test_each_can_be_read(self):
        for name, path in self.files.items():
            if path.name in OTHERS:
                continue
            with self.subTest(name):
                try:
                    read = fragments.read(path.relative_to(fragments.DEPLOY
                                                           ).as_posix())
                except (yaml.YAMLError, configparser.Error) as e:
                    self.fail(f'{name}: {e}')
                self.assertIsInstance(read, dict)
                self.assertTrue(read)

    def test_each_is_shown_once_on_the_page_of_its_tool(self):
        for name, page in self.pages.items():
            self.assertEqual(
                sorted(file for file in self.files
                       if f'/{name}/' in file),
                sorted(SHOWN.findall(page)), name)

    def test_each_page_says_what_trips_and_how_to_upgrade(self):
        for name, page in self.pages.items():
            self.assertIn(TRIPS, page, name)
            upgrade = page.partition('\nUpgrade\n=======\n')[2]
            self.assertIn('\n.. include:: upgrade.inc\n', upgrade, name)
            self.assertIn('--by-service', page, name)
        self.assertIn('OWNER_NOVA', (PAGES / 'upgrade.inc').read_text())

    def test_one_step_from_the_first_question_to_the_page(self):
        index = (PAGES / 'index.rst').read_text()
        for name in self.pages:
            self.assertIn(f'     - :doc:`{name}`\n', index)

    def test_lines_are_short(self):
        """But for the value of an option, which must be in one line."""
        self.assertEqual([], [
            name for name, path in self.files.items()
            if any(len(line) > 79 and 'init_command=' not in line
                   for line in path.read_text().splitlines())])

    def test_each_page_has_the_two_sets(self):
        for name, page in self.pages.items():
            self.assertIn('.. include:: ../settings.inc\n', page, name)

    def test_a_wheel_brings_all_of_etc(self):
        project = tomllib.loads(
            (fragments.ROOT / 'pyproject.toml').read_text())
        brought = {
            f'etc/{target.removeprefix("share/nova-ironic-multihost/")}/'
            f'{path.name}'
            for target, patterns in
            project['tool']['setuptools']['data-files'].items()
            # The man page and the completions lie elsewhere.
            if target.startswith('share/nova-ironic-multihost/')
            for pattern in patterns for path in fragments.ROOT.glob(pattern)}
        self.assertEqual(
            {str(path.relative_to(fragments.ROOT))
             for path in (fragments.ROOT / 'etc').rglob('*')
             if path.is_file() and not path.match('etc/nova/*.sample')
             # Of who has built the task for masakari.
             and not {'build', '__pycache__'}.intersection(path.parts)
             and path.parent.suffix != '.egg-info'}, brought)
