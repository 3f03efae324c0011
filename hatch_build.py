"""Puts the parsers' tables into the wheel, so that an installed tilec builds none at run time.

The tables are Python modules of plain literals, made in a temporary folder and given to the wheel
under the names that the parsers look for. A source checkout and an editable install have no such
files: there the parsers read the grammars, so an edited grammar is never shadowed by old tables.
Nothing is pickled.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def ir_tables(grammar: Path) -> str:
    """Lark's stand-alone parser of the IR text; it needs no Lark at run time."""
    from lark import Lark
    from lark.tools.standalone import gen_standalone

    parser = Lark(grammar.read_text(encoding="utf-8"), parser="lalr", propagate_positions=True)
    text = io.StringIO()
    gen_standalone(parser, out=text)
    return text.getvalue()


class TablesHook(BuildHookInterface):  # type: ignore[misc,type-arg,unused-ignore]
    """Generates the tables for a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the tables and name them in ``build_data``."""
        if version != "standard":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root))
        try:
            from tilec.frontend.build_tables import write_tables
        finally:
            sys.path.remove(str(root))
        self._folder = tempfile.TemporaryDirectory(prefix="tilec-tables-")
        made = {
            "frontend/_tk_parser.py": Path(self._folder.name) / "_tk_parser.py",
            "ir/_ir_parser.py": Path(self._folder.name) / "_ir_parser.py",
        }
        write_tables(made["frontend/_tk_parser.py"])
        tables = ir_tables(root / "grammar" / "ir.lark")
        made["ir/_ir_parser.py"].write_text(tables, encoding="utf-8")
        for name, path in made.items():
            build_data["force_include"][str(path)] = f"tilec/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if version == "standard":
            self._folder.cleanup()
