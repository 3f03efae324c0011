"""What pyproject.toml promises agrees with what the code imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

_DISTRIBUTION = {"cuda": "cuda-bindings"}
# Frameworks whose arrays are accepted: imported only when the caller already has them.
_FROM_THE_CALLER = {"torch", "cupy", "jax", "ml_dtypes"}


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            named = node.args[0]
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                found.add(named.value.split(".")[0])
    return found


def _declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", text, maxsplit=1)[0] for text in requirements}


def test_everything_that_the_package_imports_is_a_runtime_dependency() -> None:
    used: set[str] = set()
    for path in (CHECKOUT / "tilec").rglob("*.py"):
        used |= _imports(path)
    used -= set(sys.stdlib_module_names) | _FROM_THE_CALLER | {"tilec"}
    needed = {_DISTRIBUTION.get(name, name) for name in used}
    assert "cuda-bindings" in needed  # imported by name, so this shows that those are seen
    assert needed - _declared(PROJECT["dependencies"]) == set()


def test_every_dependency_has_a_lower_bound() -> None:
    extras = PROJECT["optional-dependencies"].values()
    for text in [*PROJECT["dependencies"], *(item for extra in extras for item in extra)]:
        assert ">=" in text, text


def test_cuda_is_required_only_where_it_has_wheels() -> None:
    (text,) = [t for t in PROJECT["dependencies"] if t.startswith("cuda-bindings")]
    for word in ("sys_platform == 'linux'", "x86_64", "aarch64", "sys_platform == 'win32'"):
        assert word in text
