# SPDX-License-Identifier: Apache-2.0

import pathlib

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit import tools

#: A repository with nothing wrong: path -> text.
TREE = {
    '.zuul.yaml': """
- job:
    name: everything
    parent: ironic-base
    abstract: true
    nodeset: openstack-two-node-noble
    description: the parent of
    pre-run:
      - name: playbooks/before.yaml
    run: playbooks/now.yaml
    group-vars:
      subnode:
        devstack_localrc:
          IRONIC_MULTIHOST_COMPUTES: 2
- job:
    name: something
    parent: everything
    description: red or green
    vars:
      tox_envlist: docs,py3-nova34
      look_twice_first: 1
      devstack_localrc:
        IRONIC_MULTIHOST_COMPUTES: 3
        IRONIC_VM_COUNT: 6
- project:
    queue: ours
    check:
      jobs:
        - something:
            voting: false
        - a-linter:
            vars:
              tox_envlist: pep8
""",
    'playbooks/before.yaml': """
- hosts: all
  roles:
    - theirs
    - role: look-twice
""",
    'playbooks/now.yaml': """
- hosts: all
  tasks:
    - block:
        - ansible.builtin.include_role:
            name: look-twice
            tasks_from: again
""",
    'roles/look-twice/README.rst': """
.. zuul:rolevar:: look_twice_first
   :default: 1

.. zuul:rolevar:: look_twice_name
""",
    'roles/look-twice/defaults/main.yaml': 'look_twice_first: 1',
    'roles/look-twice/tasks/main.yaml': '[]',
    'roles/look-twice/tasks/again.yaml': '- command: "{{look_twice_name}}"',
    'devstack/settings': """
IRONIC_MULTIHOST_COMPUTES=${IRONIC_MULTIHOST_COMPUTES:-3}
""",
    'tox.ini': """
[tox]
env_list =
  {py3,upstream}-nova{33,34}
  pep8
[testenv:docs]
""",
}


class ZuulCheckTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.check = tools.load('zuul-check')
        self.check.UPSTREAM_JOBS = {'ironic-base': '', 'a-linter': ''}
        self.check.UPSTREAM_NODESETS = {'openstack-two-node-noble': ''}
        self.check.UPSTREAM_ROLES = {'theirs': ''}

    def complaints(self, changes):
        """What is wrong with TREE, changed.

        :param changes: {path: {text: what it is replaced by}}; or None in
            the place of the replacements when there is no such file.
        """
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for path, text in TREE.items():
            replacements = changes.get(path, {})
            if replacements is None:
                continue
            for old, new in replacements.items():
                self.assertIn(old, text)
                text = text.replace(old, new)
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        config = self.check.configuration((root / '.zuul.yaml').read_text())
        return self.check.complaints(config, root)

    def zuul(self, old, new):
        """What is wrong with a change of .zuul.yaml."""
        return self.complaints({'.zuul.yaml': {old: new}})

    def test_all_is_well(self):
        self.assertEqual([], self.complaints({}))

    def test_no_such_parent(self):
        self.assertEqual(
            ['everything: there is no job basic to be its parent',
             'nothing uses the job ironic-base'],
            self.zuul('parent: ironic-base', 'parent: basic'))

    def test_no_such_nodeset(self):
        self.assertEqual(
            ['everything: there is no nodeset ours',
             'nothing uses the nodeset openstack-two-node-noble'],
            self.zuul('nodeset: openstack-two-node-noble', 'nodeset: ours'))

    def test_a_nodeset_of_the_job_itself(self):
        [sentence] = self.zuul(
            'nodeset: openstack-two-node-noble', 'nodeset: {nodes: []}')
        self.assertIn('nothing uses', sentence)

    def test_no_description(self):
        [sentence] = self.zuul('description: red or green', 'timeout: 1')
        self.assertEqual(
            'something does not describe what it means when it is red',
            sentence)

    def test_a_pipeline_runs_what_nobody_defines(self):
        self.assertEqual(
            ['check: there is no job something-else',
             'nothing uses the job something'],
            self.zuul('- something:', '- something-else:'))

    def test_a_pipeline_runs_an_abstract_job(self):
        self.assertEqual(
            ['check runs everything, which is abstract',
             'nothing uses the job something'],
            self.zuul('- something:', '- everything:'))

    def test_no_such_playbook(self):
        self.assertEqual(
            ['everything: there is no playbook playbooks/soon.yaml',
             'no job runs playbooks/now.yaml'],
            self.zuul('playbooks/now.yaml', 'playbooks/soon.yaml'))
        self.assertEqual(
            ['everything: there is no playbook playbooks/soon.yaml',
             'no job runs playbooks/before.yaml'],
            self.zuul('playbooks/before.yaml', 'playbooks/soon.yaml'))

    def test_no_such_role(self):
        self.assertEqual(
            ['nothing uses the role theirs',
             'playbooks/before.yaml: there is no role unknown'],
            self.complaints({'playbooks/before.yaml': {
                'theirs': 'unknown'}}))

    def test_no_such_file_of_tasks(self):
        self.assertEqual(
            ['playbooks/now.yaml: there is no '
             'roles/look-twice/tasks/thrice.yaml'],
            self.complaints({'playbooks/now.yaml': {'again': 'thrice'}}))

    def test_a_role_uses_a_role(self):
        [sentence] = self.complaints({'roles/look-twice/tasks/main.yaml': {
            '[]': '[{ansible.builtin.import_role: {name: blink}}]'}})
        self.assertEqual('roles/look-twice/tasks/main.yaml: there is no role '
                         'blink', sentence)

    def test_an_unused_role(self):
        self.assertEqual(
            ['nothing uses the role look-twice'],
            self.complaints({
                'playbooks/before.yaml': {'    - role: look-twice\n': ''},
                'playbooks/now.yaml': {'look-twice': 'theirs'}}))

    def test_a_role_without_documentation(self):
        self.assertEqual(
            ['roles/look-twice has no README.rst'],
            self.complaints({'roles/look-twice/README.rst': None}))

    def test_a_variable_without_documentation(self):
        [sentence] = self.complaints({'roles/look-twice/defaults/main.yaml': {
            ': 1': ': 1\nlook_twice_long: true'}})
        self.assertEqual('roles/look-twice/README.rst says nothing of '
                         'look_twice_long', sentence)

    def test_a_documented_variable_that_is_not_used(self):
        [sentence] = self.complaints({'roles/look-twice/tasks/again.yaml': {
            'look_twice_name': 'a_name'}})
        self.assertEqual('roles/look-twice does not use look_twice_name',
                         sentence)

    def test_a_job_sets_a_variable_that_no_role_has(self):
        [sentence] = self.zuul('look_twice_first:', 'look_twice_fist:')
        self.assertEqual('something: the role look-twice has no '
                         'look_twice_fist', sentence)

    def test_a_job_sets_a_variable_that_the_plugin_does_not_have(self):
        self.assertEqual(
            ['something: devstack/settings has no IRONIC_MULTIHOST_SERVICES'],
            self.zuul('IRONIC_MULTIHOST_COMPUTES: 3',
                      'IRONIC_MULTIHOST_SERVICES: 3'))
        self.assertEqual(
            ['everything: devstack/settings has no IRONIC_MULTIHOST_SERVICES'],
            self.zuul('IRONIC_MULTIHOST_COMPUTES: 2',
                      'IRONIC_MULTIHOST_SERVICES: 2'))

    def test_no_such_environment(self):
        self.assertEqual(
            ['something: tox.ini has no environment py3-nova35'],
            self.zuul('py3-nova34', 'py3-nova35'))
        self.assertEqual(
            ['a-linter: tox.ini has no environment pep9'],
            self.zuul('pep8', 'pep9'))
