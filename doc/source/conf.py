# SPDX-License-Identifier: Apache-2.0

"""Configuration of the documentation build."""

import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / '_ext'))

project = 'nova-ironic-multihost'
copyright = 'nova-ironic-multihost contributors, Apache License 2.0'
# Before a tag pbr calls 0.1.0 what comes before it 0.1.0.dev and a number.
release = importlib.metadata.version(project).partition('.dev')[0]
version = release

extensions = [
    'command_help',
    'house_modules',
    'nova_rows',
    'oslo_config.sphinxconfiggen',
    'oslo_config.sphinxext',
    'ownership_rules',
    'reno.sphinxext',
    'sphinx.ext.autodoc',
]
source_suffix = '.rst'
master_doc = 'index'
# openstackdocstheme has the header, the search and the analytics of
# openstack.org, which this project is no part of.
html_theme = 'furo'
html_title = f'{project} {release}'
html_static_path = ['_static']
html_css_files = ['tables.css']
html_copy_source = False

config_generator_config_file = [
    ('../../etc/nova/nova-ironic-multihost-config-generator.conf',
     '_static/nova-ironic-multihost'),
]

autodoc_member_order = 'bysource'
autodoc_typehints = 'none'
