# SPDX-License-Identifier: Apache-2.0

"""What a user types gets the package: one address, and no placeholder."""

import pathlib
import re

from oslotest import base

from nova_ironic_multihost.tests.unit.etc.deploy import fragments

ROOT = pathlib.Path(__file__).resolve().parents[4]

#: What a user reads or copies.
TEXTS = ('*.rst', 'pyproject.toml', '.zuul.yaml', 'devstack/*', 'doc/**/*.rst',
         'doc/**/*.inc', 'etc/**/*')

#: An address that ends with the name of the repository, but for a site of the
#: documentation.
ADDRESS = re.compile(
    r'(?:https?|git|ssh)://(?!docs[.])[^\s"\'`<>]+?/nova-ironic-multihost(?![\w.-])')

#: Angle brackets around words, as in a template that nobody has filled in.
PLACEHOLDER = re.compile(r'<(?:this|your|the|my) [\w ]+>', re.IGNORECASE)

#: pip asks an index for this name; what begins with a dot or a slash is here.
FROM_INDEX = re.compile(
    r'pip3? install (?:[^\n`]*? |[^\n`]*?\\\n\s+)?[\'"]?'
    r'nova-ironic-multihost(?:\[\w+\])?(?:[=<>~]=?[\d.]+)?[\'"]?(?=[\s`]|$)')


def texts():
    for pattern in TEXTS:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix not in ('.png', '.svg'):
                yield str(path.relative_to(ROOT)), path.read_text()


#: A file of the repository, below its address.
FILE = re.compile(r'/(?:src|raw)/branch/main/([^\s>"#]+)')


class AddressTestCase(base.BaseTestCase):

    def test_there_is_one_address(self):
        named = {name: set(ADDRESS.findall(text)) for name, text in texts()}
        self.assertEqual({}, {
            name: found for name, found in named.items()
            if found - {fragments.REPOSITORY}})
        for name in ('README.rst', 'CONTRIBUTING.rst', 'devstack/README.rst',
                     'devstack/local.conf.sample',
                     'doc/source/user/package.inc',
                     'etc/deploy/kolla-ansible/kolla-build.conf',
                     'etc/deploy/openstack-ansible/user_variables.yml'):
            self.assertIn(fragments.REPOSITORY, named[name], name)

    def test_links_of_the_readme_are_absolute_and_of_files(self):
        # An index shows it without the repository.
        readme = (ROOT / 'README.rst').read_text()
        links = re.findall(r'<([^<>]+)>`|image:: (\S+)', readme)
        self.assertEqual([], [link for pair in links for link in pair
                              if link and not link.startswith(
                                  fragments.REPOSITORY)])
        named = [name for _, text in texts() for name in FILE.findall(text)]
        self.assertGreater(len(named), 15)
        self.assertEqual([], [name for name in named
                              if not (ROOT / name).exists()])

    def test_nothing_is_a_placeholder(self):
        self.assertEqual([], [f'{name}: {word}' for name, text in texts()
                              for word in PLACEHOLDER.findall(text)])

    def test_pip_is_asked_for_nothing_that_no_index_has(self):
        self.assertEqual([], [f'{name}: {match}' for name, text in texts()
                              for match in FROM_INDEX.findall(text)])

    def test_what_is_found(self):
        for text in ("pip install 'nova-ironic-multihost[nova]'\n",
                     '# pip install --no-deps nova-ironic-multihost\n',
                     'pip install --no-deps \\\n     nova-ironic-multihost\n',
                     '``pip install nova-ironic-multihost``'):
            self.assertTrue(FROM_INDEX.search(text), text)
        for text in ('pip install ./nova_ironic_multihost-*.whl\n',
                     "pip install './nova-ironic-multihost[nova]'\n"):
            self.assertFalse(FROM_INDEX.search(text), text)
        self.assertTrue(PLACEHOLDER.search('git clone <this repository>'))
