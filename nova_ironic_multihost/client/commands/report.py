# SPDX-License-Identifier: Apache-2.0

"""report: write one file for a bug report."""

from importlib import metadata
import io
import os
import pathlib
import platform
import re

from cliff import command
from oslo_config import cfg

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client.commands import check
from nova_ironic_multihost.client.commands import list as compute_list
from nova_ironic_multihost import conf

FILE = 'nova-ironic-multihost-report.txt'

PACKAGES = (base.PROGRAM, 'nova', 'openstacksdk', 'keystoneauth1',
            'oslo.messaging', 'oslo.service', 'tooz')

#: The only settings that are written, by group; none may hold a secret.
SETTINGS = {
    'DEFAULT': (
        'host', 'compute_driver', 'service_down_time', 'report_interval',
        'rpc_response_timeout', 'graceful_shutdown_timeout',
        'manager_shutdown_timeout', 'max_concurrent_builds',
        'update_resources_interval'),
    'ironic': (
        'peer_list', 'conductor_group', 'shard', 'api_max_retries',
        'connect_retries', 'status_code_retries'),
    'filter_scheduler': (
        'host_subset_size', 'shuffle_best_same_weighed_hosts'),
    'ironic_multihost': tuple(option.name for option in conf.OPTS)}

#: Bytes of the end of a log in which lines of this package are looked for.
_TAIL = 4_000_000
#: The name of its loggers, as oslo.log writes it.
_OURS = ' nova_ironic_multihost.'
_ACCOUNT = re.compile(r'(\w+://)\S*@')


class Report(base.CloudCommand, command.Command):
    """Write one file for a bug report: what this host and the cloud show.

    It has the output of "list --long" and "check", versions, settings of the
    nova.conf of this host, and what the driver has logged here of late. Of
    settings it has a fixed list without secrets, of the log the lines of the
    driver alone, which logs none. The file names a part that is missing, and
    why. It has names of hosts, nodes and servers: read it before you send it.
    """

    _epilog = f"""\
examples:
  nova-ironic-multihost report
        writes {FILE}
  nova-ironic-multihost report --nova-log /var/log/nova/nova-compute.log -
        to standard output

exit status: 0 the file is complete, 1 a part is missing, 2 there is no file
"""

    def add_options(self, parser):
        """Add the options."""
        parser.add_argument(
            '--config-file', action='append', default=[], metavar='FILE',
            help='as of nova-compute, may be given several times (default: '
            'where nova-compute looks)')
        parser.add_argument(
            '--nova-log', metavar='FILE',
            help='log of nova-compute (default: by nova.conf)')
        parser.add_argument(
            'file', metavar='FILE', nargs='?', default=FILE,
            help='- for standard output (default: %(default)s)')

    def take_action(self, parsed_args):
        """Write the file; keep the exit status."""
        parts, missing = [], []
        for name, read in (
                ('versions', versions),
                ('list --long', lambda: self._output(
                    compute_list.ListComputes, '--long')),
                ('check', lambda: self._output(check.Check)),
                ('settings', lambda: settings(parsed_args.config_file)),
                ('log', lambda: log(parsed_args))):
            try:
                text = read()
            except base.Refused as error:
                missing.append(name)
                text = f'Missing:\n{error}'
            parts.append(f'== {name}\n\n{text}\n')
        self._write(parsed_args.file, '\n'.join(parts))
        if missing:
            self.status = arguments.LEFT
            self.tell(f'missing in {parsed_args.file}: {", ".join(missing)}')

    def _output(self, kind, *argv):
        """Return what another command prints."""
        app, one = self.app, kind(self.app, None)
        streams, printed = (app.stdout, app.stderr), io.StringIO()
        app.stdout = app.stderr = printed
        try:
            status = one.run(one.get_parser('').parse_args(argv))
        finally:
            app.stdout, app.stderr = streams
        if status == arguments.UNKNOWN:
            raise base.Refused(printed.getvalue())
        return printed.getvalue()

    def _write(self, file, text):
        if file == '-':
            print(text, file=self.app.stdout)
            return
        try:
            # A directory may be one that others write in, too.
            number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                             | os.O_NOFOLLOW, 0o600)
            with open(number, 'w') as opened:
                opened.write(text)
        except OSError as error:
            raise base.Refused(f'{file} cannot be written: {error.strerror}. '
                               'Name another file.') from error


def versions():
    """Return the versions of this system, and of the packages here."""
    known = {'Python': platform.python_version(),
             'system': platform.platform()}
    for name in PACKAGES:
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            known[name] = 'not installed here'
    return '\n'.join(f'{name} {version}' for name, version in known.items())


def nova_conf(files):
    """Return {group: {option: its texts}} of nova.conf, with $variables.

    :param files: [] for where nova-compute looks.
    """
    place = 'nova', 'nova-compute'
    files = [*(files or cfg.find_config_files(*place)), *sorted(
        str(file) for directory in cfg.find_config_dirs(*place)
        for file in pathlib.Path(directory).glob('*.conf'))]
    found = {}
    try:
        for file in files:
            cfg.ConfigParser(file, found).parse()
    except (cfg.ParseError, OSError, ValueError):
        # Without the text of the error: it may show a line with a secret.
        found = {}
    if not found:
        raise base.Refused('nova.conf is not there, or this user cannot read '
                           'it: name it with --config-file.')
    return found


def settings(files):
    """Return the settings of nova.conf that :data:`SETTINGS` names."""
    found = nova_conf(files)
    return '\n'.join(
        f'[{group}]{name} = {found[group][name][-1]}'
        for group, names in SETTINGS.items() for name in names
        if name in found.get(group, ()))


def log(parsed_args):
    """Return the last lines of the driver in the log of nova-compute."""
    path = parsed_args.nova_log
    if path is None:
        found = nova_conf(parsed_args.config_file).get('DEFAULT', {})
        path = os.path.join(found.get('log_dir', [''])[-1],
                            found.get('log_file', ['nova-compute.log'])[-1])
    try:
        with pathlib.Path(path).open('rb') as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - _TAIL))
            text = opened.read().decode(errors='replace')
    except OSError as error:
        raise base.Refused(f'{path}: {error.strerror}. Name the log of '
                           'nova-compute with --nova-log.') from error
    lines = [line for line in text.splitlines() if _OURS in line]
    return f'file: {path}\n' + _ACCOUNT.sub(r'\1***@', '\n'.join(lines))
