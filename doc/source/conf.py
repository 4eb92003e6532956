# SPDX-License-Identifier: Apache-2.0

"""Configuration of the documentation build."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / '_ext'))

project = 'nova-ironic-multihost'
copyright = 'nova-ironic-multihost contributors'

extensions = [
    'command_help',
    'house_modules',
    'nova_rows',
    'openstackdocstheme',
    'oslo_config.sphinxconfiggen',
    'oslo_config.sphinxext',
    'ownership_rules',
    'reno.sphinxext',
    'sphinx.ext.autodoc',
]
source_suffix = '.rst'
master_doc = 'index'
html_theme = 'openstackdocs'
html_static_path = ['_static']
pygments_style = 'native'

openstackdocs_pdf_link = False
openstackdocs_auto_name = False

config_generator_config_file = [
    ('../../etc/nova/nova-ironic-multihost-config-generator.conf',
     '_static/nova-ironic-multihost'),
]

man_pages = [
    ('man/nova-ironic-multihost', 'nova-ironic-multihost',
     'who owns which Ironic node, and why', [], 1),
]

autodoc_member_order = 'bysource'
autodoc_typehints = 'none'
