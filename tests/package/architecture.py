"""Writes the map in docs/architecture.md: one row a module, the first sentence of its docstring.

    python -m tests.package.architecture

A module that opens with a clear sentence needs nothing else to be on the map.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "architecture.md"
BEGIN, END = "<!-- map: begin -->", "<!-- map: end -->"
_GENERATED = {"_tk_parser.py", "_ir_parser.py", "_ptx_parser.py"}

# The folders in the order of the story, each with what it is for.
FOLDERS: dict[str, str] = {
    "tilec": "From the command line down to spans and errors",
    "tilec/layout": "Layouts: which bit of the hardware holds which element; pure algebra",
    "tilec/targets": "Facts about each GPU",
    "tilec/ir": "The one IR of all levels",
    "tilec/ir/levels": "The ops, a file a level",
    "tilec/frontend": "From the text of a `.tk` file to level `tile`",
    "tilec/passes": "The steps of the pipeline, a file a pass",
    "tilec/passes/select": "From `cta` ops to instructions",
    "tilec/interp": "What programs mean, in NumPy: level `tile`",
    "tilec/interp/cta": "What programs mean, in NumPy: level `cta`, where order matters too",
    "tilec/backend_ptx": "From level `ptx` to text, and from text to a running kernel",
    "tilec/runtime": "From a call with arrays to a launch",
    "tilec/emulator": "PTX text on NumPy, and what is wrong with it",
    "tilec/emulator/instructions": "The instruction table, a family a file",
    "tilec/emulator/report": "What a run did by line, and a model of when",
    "benchmarks": "How figures are taken",
}


def modules(folder: str) -> list[Path]:
    """The modules of one folder that hold code, in order."""
    paths = sorted((CHECKOUT / folder).glob("*.py"))
    return [p for p in paths if p.name not in _GENERATED and p.read_text(encoding="utf-8").strip()]


def folders() -> set[str]:
    """Every folder with modules."""
    return {
        str(path.parent.relative_to(CHECKOUT))
        for top in ("tilec", "benchmarks")
        for path in (CHECKOUT / top).rglob("*.py")
    }


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    words = " ".join(text.split("\n\n", 1)[0].replace("``", "`").split())
    first = re.split(r"(?<=[.?])\s+(?=[A-Z`])", words, maxsplit=1)[0]
    return first.replace("|", "\\|")


def table() -> str:
    """The whole map."""
    lines: list[str] = []
    for folder, purpose in FOLDERS.items():
        rows = [f"| `{p.relative_to(CHECKOUT)}` | {sentence(p)} |" for p in modules(folder)]
        if rows:
            lines += [f"### `{folder}/`", "", f"{purpose}.", "", "| file | what it is |"]
            lines += ["| --- | --- |", *rows, ""]
    return "\n".join(lines).rstrip()


def rewritten(page: str) -> str:
    """The page with its map made anew."""
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
