# SPDX-License-Identifier: Apache-2.0

"""Each command that a page, a finding or a log line recommends is tested.

A test on the whole stack runs it in the state for which it is recommended,
or a list says why none does.
"""

import ast
import pathlib
import re

from oslotest import base

ROOT = pathlib.Path(__file__).resolve().parents[4]

#: Where commands are recommended.
PLACES = ('nova_ironic_multihost', 'doc/source', 'etc', 'README.rst',
          'SECURITY.rst')

#: Their beginning. Of our own commands it is the one with subcommands; what
#: the others do has tests of its own.
COMMAND = re.compile(
    r"""(?<![\w./'-])(?<!namespace\ )(?<!namespace:\ )(?<!-n\ )(
    openstack\ (?:--os-|[a-z])[^`"'|;,()$\#]*|
    (?:nova-manage|placement-manage|rabbitmqctl|systemctl|pcs|
       journalctl|kubectl|docker|podman|oc)\ [a-z-][^`"'|;,()$\#]*|
    nova-ironic-multihost\ (?:--|(?:check|complete|drain|fence|leaks|list|node|
       plan|repair|report|silent|undrain|unfence)\b)[^`"'|;,()$\#]*|
    (?:SELECT|UPDATE|DELETE\ FROM|INSERT\ INTO)\ [^`"'|;$\#]*)""", re.VERBOSE)

#: Options that say who asks, and in which version.
GLOBAL_OPTION = re.compile(r' --os-[a-z-]+ \S+')

ADVICE = 'lab/tests/stack/test_advice.py'
OPERATOR = 'lab/tests/stack/test_operator.py'

#: How a command begins -> the file of the test that runs it.
RUN = {
    'UPDATE compute_nodes SET deleted': ADVICE,
    'nova-ironic-multihost check': OPERATOR,
    'nova-ironic-multihost drain': OPERATOR,
    'nova-ironic-multihost fence': OPERATOR,
    'nova-ironic-multihost leaks': OPERATOR,
    'nova-ironic-multihost list': 'lab/tests/stack/operating.py',
    'nova-ironic-multihost node list': ADVICE,
    'nova-ironic-multihost node show': OPERATOR,
    'nova-ironic-multihost plan': OPERATOR,
    'nova-ironic-multihost repair': ADVICE,
    'nova-ironic-multihost silent': OPERATOR,
    'nova-ironic-multihost undrain': OPERATOR,
    'nova-ironic-multihost unfence': OPERATOR,
    'nova-manage cell_v2 discover_hosts --by-service': OPERATOR,
    'nova-manage placement heal_allocations': ADVICE,
    'openstack aggregate add host': ADVICE,
    'openstack aggregate remove host': ADVICE,
    'openstack aggregate show': ADVICE,
    'openstack baremetal node list': ADVICE,
    'openstack baremetal node undeploy': ADVICE,
    'openstack baremetal node vif list': ADVICE,
    'openstack baremetal node unset --instance-uuid': ADVICE,
    'openstack compute service delete': ADVICE,
    'openstack compute service list': ADVICE,
    'openstack compute service set --disable': ADVICE,
    'openstack compute service set --down': ADVICE,
    'openstack compute service set --enable': ADVICE,
    'openstack compute service set --up': ADVICE,
    'openstack hypervisor show': ADVICE,
    'openstack resource provider allocation delete': ADVICE,
    'openstack resource provider delete': ADVICE,
    'openstack resource provider list': ADVICE,
    'openstack resource provider show --allocations': ADVICE,
    'openstack server event': ADVICE,
    'openstack server list --all-projects --host': ADVICE,
    'openstack server migration list --server': ADVICE,
    'openstack server set --state active': ADVICE,
    'openstack server set --state error': ADVICE,
    'openstack server show': ADVICE,
}

# Reasons.
SYSTEMD = 'the lab has no systemd; its processes are killed and started'
DEPLOYER = 'the lab has no such deployer'

#: How a command begins -> why no test runs it.
NOT_RUN = {
    'docker ': DEPLOYER,
    'journalctl ': SYSTEMD,
    'kubectl ': DEPLOYER,
    'nova-ironic-multihost report': (
        'it only reads, as unit tests of it show with files and a cloud'),
    'oc ': DEPLOYER,
    'openstack aggregate create': 'for an aggregate of virtual machines',
    'openstack baremetal node abort': (
        'no machine of the lab boots: its Ironic never waits for a call-back'),
    'openstack baremetal node set --shard': (
        'tests/functional/test_shard.py does it by the API'),
    'openstack server evacuate': 'advised against',
    'openstack server list --all-projects --long': 'it only reads',
    'openstack server list --all-projects --status BUILD': 'it only reads',
    'pcs ': DEPLOYER,
    'podman ': DEPLOYER,
    'systemctl ': SYSTEMD,
}


def strings(source):
    """Return the text of a module, values replaced by X."""
    found, parts = [], set()
    # From outside to inside, so that a text comes before its parts.
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            found.append(''.join(
                part.value if isinstance(part, ast.Constant) else 'X'
                for part in node.values))
        elif (isinstance(node, ast.Constant) and isinstance(node.value, str)
              and node not in parts):
            found.append(node.value)
    return ' '.join(found)


def plain(text):
    """Return a text as one line, commands that go on over lines joined."""
    return re.sub(r'\s+', ' ', re.sub(r'\\\n\s*#?', ' ', text))


def commands(path, text):
    """Return the commands in a file, without options of all commands."""
    found = COMMAND.findall(
        plain(strings(text) if path.suffix == '.py' else text))
    return {GLOBAL_OPTION.sub('', command).strip() for command in found}


def recommended():
    """Return {command: the files that recommend it}."""
    found = {}
    for place in PLACES:
        top = ROOT / place
        for path in [top] if top.is_file() else sorted(top.rglob('*')):
            if (not path.is_file() or 'tests' in path.parts
                    or path.suffix not in (
                        '', '.conf', '.py', '.rst', '.sample', '.service',
                        '.timer', '.txt', '.yaml')):
                continue
            for command in commands(path, path.read_text()):
                found.setdefault(command, set()).add(
                    str(path.relative_to(ROOT)))
    return found


def is_of(command, beginning):
    """Whether a command is meant by an entry, or is short for it."""
    return (f'{command} '.startswith(f'{beginning.strip()} ')
            or f'{beginning} '.startswith(f'{command} '))


class AdviceTestCase(base.BaseTestCase):

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.found = recommended()

    def test_each_command_is_run_or_has_a_reason(self):
        self.assertEqual({}, {
            command: places for command, places in self.found.items()
            if not any(is_of(command, beginning)
                       for beginning in (*RUN, *NOT_RUN))})

    def test_each_entry_is_of_a_command(self):
        self.assertEqual([], [
            beginning for beginning in (*RUN, *NOT_RUN)
            if not any(is_of(command, beginning) for command in self.found)])

    def test_each_test_runs_its_commands(self):
        tests = {file: GLOBAL_OPTION.sub('', plain(
            strings((ROOT / file).read_text()))) for file in RUN.values()}
        self.assertEqual([], [
            beginning for beginning, file in RUN.items()
            if beginning.removeprefix('nova-ironic-multihost ')
            not in tests[file]])

    def test_commands(self):
        text = ('See ``openstack server set --state\n   active SERVER``, or::'
                '\n\n   $ openstack --os-compute-api-version 2.11 \\\n'
                '       compute service set --down A nova-compute\n')
        self.assertEqual(
            {'openstack server set --state active SERVER',
             'openstack compute service set --down A nova-compute'},
            commands(pathlib.Path('page.rst'), text))
        self.assertEqual(
            {'openstack compute service delete X'},
            commands(pathlib.Path('module.py'),
                     "('run \"openstack compute '\n"
                     " f'service delete {one}\"')"))
