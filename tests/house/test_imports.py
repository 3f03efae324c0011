"""Imports go one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
FILES = sorted(p for p in (CHECKOUT / "tilec").rglob("*.py") if not p.name.startswith("_ir_"))

# Who stands above whom; a file may import from its own part and from parts further down.
STORY = (
    (
        "cli",
        "cli_bisect",
        "cli_emulate",
        "cli_explain",
        "cli_fmt",
        "cli_options",
        "cli_report",
        "cli_run",
        "pygments_lexer",
        "__main__",
    ),
    ("runtime", "dump"),
    ("compiler",),
    ("pipeline",),
    ("frontend", "passes", "interp", "backend_ptx"),
    ("ir",),
    ("layout", "targets", "emulator"),
    ("diagnostics", "tables"),
    ("source",),
)
HEIGHT = {part: height for height, parts in enumerate(reversed(STORY)) for part in parts}
# Parts of one height that are one another's business: the dump shows what the runtime launches.
MAY_MEET = {
    *(("dump", "runtime"), ("runtime", "dump")),
    *(
        ("cli", "cli_bisect"),
        ("cli_bisect", "cli_run"),
        ("cli", "cli_explain"),
        ("cli_explain", "cli_options"),
        ("cli", "cli_fmt"),
        ("cli", "cli_options"),
        ("cli", "cli_run"),
        ("cli", "cli_emulate"),
        *((part, "cli_report") for part in ("cli", "cli_emulate", "cli_run")),
        ("cli_report", "cli_options"),
        ("__main__", "cli"),
    ),
}

CUDA = {"cuda", "cupy", "torch", "pycuda", "numba", "triton", "jax"}
MAY_TOUCH_CUDA = {"backend_ptx/module.py", "backend_ptx/tensormap.py"}
UNSTEADY = {"time", "random", "secrets", "uuid", "datetime"}
STEADY_PARTS = {"frontend", "passes", "ir", "layout", "targets", "pipeline", "compiler"}


def _part(module: str) -> str:
    """``tilec.ir.core`` is of part ``ir``."""
    names = module.split(".")
    return names[1] if len(names) > 1 else ""


def _imports(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Module names imported anywhere in a file, their lines, and whether it happens on loading."""
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        at_once = id(node) not in inner
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, at_once
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module, node.lineno, at_once
            if module == "tilec":
                for alias in node.names:
                    yield f"tilec.{alias.name}", node.lineno, at_once
            assert node.level == 0, "imports are written out in full"


def _trees() -> Iterator[tuple[str, str, ast.Module]]:
    for path in FILES:
        name = path.relative_to(CHECKOUT / "tilec").as_posix()
        part = name.split("/")[0].removesuffix(".py")
        yield name, part, ast.parse(path.read_text(), str(path))


def test_every_part_has_its_place_in_the_story() -> None:
    assert {part for _, part, _ in _trees()} - {"__init__"} <= set(HEIGHT)


def test_imports_go_one_way() -> None:
    wrong = []
    for name, part, tree in _trees():
        if part == "__init__":
            continue
        for module, line, _ in _imports(tree):
            if not module.startswith("tilec."):
                continue
            other = _part(module)
            if other == part or (part, other) in MAY_MEET:
                continue
            if HEIGHT[other] >= HEIGHT[part]:
                wrong.append(f"{name}:{line}: {part} imports {other}")
    assert wrong == []


def test_layout_knows_nothing_else_of_tilec() -> None:
    wrong = [
        f"{name}:{line}: {module}"
        for name, part, tree in _trees()
        if part == "layout"
        for module, line, _ in _imports(tree)
        if module.startswith("tilec") and _part(module) != "layout"
    ]
    assert wrong == []


def test_only_two_files_know_cuda_and_only_when_called() -> None:
    wrong = []
    for name, _, tree in _trees():
        for module, line, at_once in _imports(tree):
            if module.split(".")[0] in CUDA and (at_once or name not in MAY_TOUCH_CUDA):
                wrong.append(f"{name}:{line}: {module}")
    assert wrong == []


def test_what_compiles_asks_neither_the_clock_nor_chance() -> None:
    wrong = [
        f"{name}:{line}: {module}"
        for name, part, tree in _trees()
        if part in STEADY_PARTS
        for module, line, _ in _imports(tree)
        if module.split(".")[0] in UNSTEADY
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import tilec", "lark networkx cuda numpy click rich torch"),
        ("import tilec.layout", "tilec.ir numpy"),
        ("import tilec.ir.levels", "tilec.frontend tilec.passes lark networkx numpy"),
        ("import tilec.pipeline", "tilec.runtime tilec.interp cuda"),
        ("import tilec.frontend.lower", "tilec.passes tilec.interp tilec.backend_ptx numpy"),
    ],
)
def test_loading_loads_no_more_than_is_needed(statement: str, absent: str) -> None:
    program = f"import sys; {statement}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=CHECKOUT
    ).stdout.split()
    assert [name for name in absent.split() if name in loaded] == []
