# SPDX-License-Identifier: Apache-2.0

"""The whole program, with a faked cloud."""

import contextlib
import importlib
import io
import pathlib
import tomllib
from unittest import mock

from cliff import commandmanager
import fixtures
import openstack
from oslotest import base

from nova_ironic_multihost.client.commands import app
from nova_ironic_multihost.tests import clouds

PROJECT = pathlib.Path(__file__).parents[5] / 'pyproject.toml'


def entry_points(group):
    """The entry points of a group as they stand: {name: value}."""
    return tomllib.loads(PROJECT.read_text())['project']['entry-points'][
        group]


def scripts():
    """The programs: {name: value}."""
    return tomllib.loads(PROJECT.read_text())['project']['scripts']


def load(value):
    """What an entry point names."""
    module, _, name = value.partition(':')
    loaded = importlib.import_module(module)
    return getattr(loaded, name) if name else loaded


def load_commands(manager, namespace):
    """Load commands by what stands here, whatever is installed."""
    for name, value in entry_points(namespace).items():
        manager.add_command(name.replace('_', ' '), load(value))


class ShellTestCase(base.BaseTestCase):
    """Has a cloud, and runs the program."""

    CLOUD = clouds.FakeCloud

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(self.CLOUD())
        self.connect = self.useFixture(fixtures.MockPatchObject(
            openstack, 'connect',
            side_effect=lambda **_: self.cloud.connection())).mock
        self.useFixture(fixtures.MockPatchObject(
            commandmanager.CommandManager, 'load_commands', load_commands))
        # cliff wraps tables to the width of a terminal.
        self.useFixture(fixtures.EnvironmentVariable('CLIFF_MAX_TERM_WIDTH'))
        self.useFixture(fixtures.EnvironmentVariable('CLIFF_FIT_WIDTH'))

    def shell(self, *argv):
        """Run the program: (status, standard output, standard error)."""
        out, err = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(err),
              mock.patch('logging.Logger.addHandler')):
            try:
                status = app.main(argv)
            except SystemExit as ended:
                status = ended.code
        return status, out.getvalue(), err.getvalue()
