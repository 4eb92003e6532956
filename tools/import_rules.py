# SPDX-License-Identifier: Apache-2.0

"""A kind of contract for import-linter: what a package may import at all.

import-linter's own contracts name what is forbidden, and know no "nothing
but". See [tool.importlinter] in pyproject.toml.
"""

import sys

from importlinter.application import contract_utils
from importlinter import Contract
from importlinter import ContractCheck
from importlinter import fields
from importlinter import output


class NothingButContract(Contract):
    """A package imports itself, the standard library and what is listed.

    Options:

    - package: name of the package or module
    - may_import: "importer -> imported" besides, with import-linter's
      wildcards; one that nobody uses is an error
    """

    type_name = 'nothing_but'

    package = fields.StringField()
    may_import = fields.SetField(
        subfield=fields.ImportExpressionField(), required=False, default=())

    def check(self, graph, verbose):
        """Look at the imports that are left without the listed ones."""
        contract_utils.remove_ignored_imports_and_report(
            graph=graph, ignore_imports=self.may_import,
            unmatched_alerting=contract_utils.AlertLevel.ERROR)
        inside = {self.package, *graph.find_descendants(self.package)}
        wrong = sorted(
            (importer, imported) for importer in inside
            for imported in graph.find_modules_directly_imported_by(importer)
            if imported not in inside
            and imported.partition('.')[0] not in sys.stdlib_module_names)
        return ContractCheck(kept=not wrong, metadata={'wrong': [
            (importer, imported, detail['line_number'])
            for importer, imported in wrong
            for detail in graph.get_import_details(
                importer=importer, imported=imported)]})

    def render_broken_contract(self, check):
        """Print one line for each import that is not allowed."""
        for importer, imported, line in check.metadata['wrong']:
            output.print_error(
                f'{importer} must not import {imported} (l. {line})')
