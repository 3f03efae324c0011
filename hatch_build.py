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
            from tilec.tables import IR, PTX, TK, write_tables
        finally:
            sys.path.remove(str(root))
        self._folder = tempfile.TemporaryDirectory(prefix="tilec-tables-")
        made = {
            "frontend/_tk_parser.py": Path(self._folder.name) / "_tk_parser.py",
            "ir/_ir_parser.py": Path(self._folder.name) / "_ir_parser.py",
            "emulator/_ptx_parser.py": Path(self._folder.name) / "_ptx_parser.py",
        }
        write_tables(TK, made["frontend/_tk_parser.py"], postlex=Indentation())
        write_tables(IR, made["ir/_ir_parser.py"])
        write_tables(PTX, made["emulator/_ptx_parser.py"])
        for name, path in made.items():
            build_data["force_include"][str(path)] = f"tilec/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if version == "standard":
            self._folder.cleanup()
