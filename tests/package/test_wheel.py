"""The wheel is small, brings its grammars and parser tables, and works with no checkout near."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
_MOST_BYTES = 1_000_000


TABLES = ("frontend/_tk_parser.py", "ir/_ir_parser.py", "emulator/_ptx_parser.py")


def _run(installed: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Python with only the wheel's files ahead of the dependencies; not the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=cwd,
        env=environment,
    )


def test_the_wheel_is_under_one_megabyte(wheel: Path) -> None:
    assert wheel.stat().st_size < _MOST_BYTES


def test_the_wheel_holds_every_module_grammar_and_table(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = {str(p.relative_to(CHECKOUT)) for p in (CHECKOUT / "tilec").rglob("*.py")}
    wanted |= {f"tilec/grammar/{name}.lark" for name in ("tk", "ir", "ptx")} | {"tilec/py.typed"}
    wanted |= {f"tilec/{name}" for name in TABLES}
    assert wanted - names == set()
    strange = {n for n in names if n.startswith("tilec/") and not n.endswith((".py", ".lark"))}
    assert strange == {
        "tilec/py.typed",
        *(str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "tilec" / "std").glob("*.tk")),
    }


def test_the_tables_are_literals_that_can_be_read_as_text(installed: Path) -> None:
    for name in TABLES:
        tree = ast.parse((installed / "tilec" / name).read_text(encoding="utf-8"))
        tables = {
            target.id: statement.value
            for statement in tree.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name) and target.id in ("DATA", "MEMO")
        }
        assert set(tables) == {"DATA", "MEMO"}
        assert all(isinstance(ast.literal_eval(value), dict) for value in tables.values())


def test_an_installed_tilec_builds_no_parser(installed: Path, tmp_path: Path) -> None:
    program = """
import lark
def refuse(*arguments, **options):
    raise AssertionError("a parser is being built")
lark.Lark.__init__ = refuse
from tilec.frontend.check import check
from tilec.frontend.parse import parse
from tilec.ir.parser import parse_module
from tilec.source import SourceFile
import tilec
assert parse(SourceFile("k.tk", "kernel k(a: f32[M]):\\n    pass\\n")).kernels[0].name == "k"
shipped = "from std.math import gelu\\nfn f(x):\\n    return gelu(x)\\n"
assert check(parse(SourceFile("f.tk", shipped)), {}).kernels == []
assert parse_module("tir 1 level tile target sm_90a\\nkernel @k {}\\n").level == "tile"
print(tilec.__file__)
"""
    done = _run(installed, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed)
