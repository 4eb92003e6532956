# SPDX-License-Identifier: Apache-2.0

"""Configuration of the release notes build."""

project = 'nova-ironic-multihost release notes'
copyright = 'nova-ironic-multihost contributors'

extensions = ['reno.sphinxext']
source_suffix = '.rst'
master_doc = 'index'
html_theme = 'furo'
html_title = project
