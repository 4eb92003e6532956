# SPDX-License-Identifier: Apache-2.0

"""Inputs of the checks from nova.conf files, with all else as it should be."""

import dataclasses
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.client.upgrade import checks
from nova_ironic_multihost.client.upgrade import command
from nova_ironic_multihost.client.upgrade import inputs
from nova_ironic_multihost.tests import views

OURS = f'compute_driver = {checks.OURS}\n'

ALL = frozenset(f'node-{i}' for i in range(6))

#: What comes of loading the driver.
LOADED = {'error': None, 'lacking': [], 'shadowed': []}


class UpgradeTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def write(self, name, text=f'[DEFAULT]\n{OURS}'):
        """Write a file; return its path."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def inputs(self, *argv, kind=inputs.UpgradeInputs):
        return kind(command.parser().parse_args(['upgrade', 'check', *argv]))


class CheckTestCase(UpgradeTestCase):
    """The subclass names the check."""

    CHECK = None

    def known(self, text='', driver=OURS, host='compute-1', others=(),
              zones=(), marked=ALL, seen=None, **more):
        """Inputs of a host with this nova.conf.

        :param others: the nova.conf of other hosts, by name
        :param zones: availability zones of hosts
        :param marked: providers with the trait OWNER_NOVA
        :param seen: the cloud without its zones
        :param more: inputs that are otherwise
        """
        mine = self.write('mine.conf',
                          f'[DEFAULT]\n{driver}host = {host}\n{text}')
        argv = ['--config-file', mine]
        for name, settings in dict(others).items():
            self.write(f'all/{name}.conf', f'[DEFAULT]\n{settings}')
            argv += ['--collected', str(self.root / 'all')]
        return self.inputs(*argv, kind=type('Inputs', (
            inputs.UpgradeInputs,), {
                'probe': LOADED, 'nova': '34.0.0', 'units': [],
                'seen': dataclasses.replace(
                    seen or views.consistent(), zones=dict(zones)),
                'cloud': mock.Mock(**{'marked.return_value': marked}),
                'placement': ('p.conf', 1, False), **more}))

    def assert_silent(self, *args, **more):
        self.assertEqual([], list(self.CHECK(self.known(*args, **more))))

    def assert_found(self, words, *args, fatal=False, **more):
        """There is one problem, and it says all this."""
        [found] = self.CHECK(self.known(*args, **more))
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, found)
        self.assertEqual(fatal, isinstance(found, checks.Fatal), found)
