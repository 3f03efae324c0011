"""Puts the parsers' tables into the wheel, so that an installed tilec builds none at run time.

The tables are Python modules of plain literals, made in a temporary folder and given to the wheel
under the names that the parsers look for. A source checkout and an editable install have no such
files: there the parsers read the grammars, so an edited grammar is never shadowed by old tables.
Nothing is pickled.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TablesHook(BuildHookInterface):  # type: ignore[misc,type-arg,unused-ignore]
    """Generates the tables for a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the tables and name them in ``build_data``."""
        if version != "standard":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root))
        try:
            from tilec.frontend.indent import Indentation
            from tilec.tables import GRAMMARS, TK, write_tables
        finally:
            sys.path.remove(str(root))
        self._folder = tempfile.TemporaryDirectory(prefix="tilec-tables-")
        for grammar in GRAMMARS:
            place = Path(*grammar.module.split(".")).with_suffix(".py")
            made = Path(self._folder.name) / place.name
            write_tables(grammar, made, **({"postlex": Indentation()} if grammar is TK else {}))
            build_data["force_include"][str(made)] = place.as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if version == "standard":
            self._folder.cleanup()
