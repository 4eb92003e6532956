# SPDX-License-Identifier: Apache-2.0

"""The page of log lines has each WARNING and ERROR, and nothing else."""

import ast
import pathlib
import re
import textwrap

from oslotest import base

from nova_ironic_multihost import conf

PACKAGE = pathlib.Path(__file__).resolve().parents[3]
PAGE = PACKAGE.parent / 'doc' / 'source' / 'user' / 'log-lines.rst'

#: What logs -> its level.
LEVELS = {'warning': 'WARNING', 'error': 'ERROR', 'exception': 'ERROR',
          'critical': 'CRITICAL'}

#: Logs sentences that are made elsewhere: where, and by what expression.
INDIRECT = {
    # Of conf.py.
    ('service.py', 'LOG.error(sentence)'),
    # A notice of its own module.
    ('engine/audit/operator_news.py', 'LOG.log(level, sentence)'),
}

CONTRADICTIONS = 'conf.py'

#: A term of the page, and its level if that is not WARNING.
ENTRY = re.compile(r'^(?:\* )?``(?P<text>[^`]+)``(?: : (?P<level>[A-Z]+))?',
                   re.MULTILINE)

#: What differs from one time to the next, in % and in {}.
VALUE = re.compile(r'%\(\w+\)[sd]|%[sd]|\{\w+\}')

DOTS = '...'


def entries():
    """Return [(text, level)] of the page."""
    return [(entry['text'], entry['level'] or 'WARNING')
            for entry in ENTRY.finditer(PAGE.read_text())]


def text_of(node):
    """What a message says, with dots for values; None if it is made elsewhere.

    :param node: an ast expression.
    """
    if isinstance(node, ast.Constant):
        return VALUE.sub(DOTS, node.value)
    if isinstance(node, ast.JoinedStr):
        return ''.join(
            part.value if isinstance(part, ast.Constant)
            else conf.GROUP.name
            if ast.unparse(part.value) == 'GROUP.name' else DOTS
            for part in node.values)
    return None


def messages(source, path):
    """Return what a module logs: ({(text, level)}, {(path, expression)}).

    The second are calls that log what is made elsewhere.

    :param source: the text of the module.
    :param path: of the module, below the package.
    """
    found, indirect = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Yield) and path == CONTRADICTIONS:
            found.add((text_of(node.value), 'ERROR'))
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            level = ast.unparse(node.elts[0]).removeprefix('logging.')
            if level in LEVELS.values():
                found.add((text_of(node.elts[1]), level))
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name == 'LOG.log':
            indirect.add((path, ast.unparse(node)))
        elif name.startswith('LOG.') and name[4:] in LEVELS:
            text = text_of(node.args[0])
            if text is None:
                indirect.add((path, ast.unparse(node)))
            else:
                found.add((text, LEVELS[name[4:]]))
    return found, indirect


def covers(entry, message):
    """Whether a term of the page is the beginning of a message."""
    (begins, entry_level), (text, level) = entry, message
    return level == entry_level and text.startswith(
        begins.removesuffix(DOTS).rstrip())


class LogLinesTestCase(base.BaseTestCase):

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.entries = entries()
        cls.messages, cls.indirect = set(), set()
        for path in sorted(PACKAGE.rglob('*.py')):
            name = path.relative_to(PACKAGE)
            if name.parts[0] != 'tests':
                found, indirect = messages(path.read_text(), str(name))
                cls.messages |= found
                cls.indirect |= indirect

    def test_each_message_has_an_entry(self):
        self.assertEqual([], sorted(
            message for message in self.messages
            if not any(covers(entry, message) for entry in self.entries)))

    def test_each_entry_is_of_one_message(self):
        counts = {entry: sum(covers(entry, message)
                             for message in self.messages)
                  for entry in self.entries}
        self.assertEqual({}, {entry: count for entry, count
                              in counts.items() if count != 1})

    def test_no_entry_stands_twice(self):
        self.assertEqual(len(set(self.entries)), len(self.entries))

    def test_what_is_made_elsewhere_is_known(self):
        self.assertEqual(INDIRECT, self.indirect)

    def test_contradictions_are_seen(self):
        self.assertIn(
            ('[ironic_multihost]takeover_after is ... s, and a compute '
             'service is not even called down before '
             '[DEFAULT]service_down_time, ... s: make takeover_after longer.',
             'ERROR'), self.messages)

    def test_messages(self):
        source = textwrap.dedent("""
            LOG.warning('%(count)d of %s: %(exc)s', values)
            LOG.exception(f'{host} is gone')
            LOG.info('Nothing')
            LOG.error(sentence)
            (logging.INFO, 'Nothing')
            (logging.WARNING, '{count} nodes')
            """)
        self.assertEqual(
            ({('... of ...: ...', 'WARNING'), ('... is gone', 'ERROR'),
              ('... nodes', 'WARNING')},
             {('driver.py', 'LOG.error(sentence)')}),
            messages(source, 'driver.py'))
