"""Files and what their names mean: constants, functions and imports, each file read once.

``import "layers.tk"`` is looked for beside the importing file, ``std.math`` among the files that
ship with tilec. A file that is wrong is reported with the line that imports it. Kernels are never
imported: a kernel is a launch, not a part of another one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from tilec.diagnostics import DiagnosticError, did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import Constant
from tilec.frontend.meet import weak_const
from tilec.frontend.names import Binding, Function, Library, Scope
from tilec.frontend.parse import parse
from tilec.frontend.report import Abandoned, Report
from tilec.frontend.signature import claim, leave_broken
from tilec.frontend.statements import Checker
from tilec.ir.types import DTYPES
from tilec.source import SourceFile, Span

_CONSTANTS: dict[str, Constant] = {
    "true": True,
    "false": False,
    "inf": math.inf,
    "nan": math.nan,
    "PI": math.pi,
    "LOG2E": math.log2(math.e),
    "LN2": math.log(2.0),
}
_SHIPPED = Path(__file__).resolve().parent.parent / "std"
_NOT_FOR_FUNCTIONS = frozenset({"tiles", "parallel", "range", "static_assert", "cast", "zeros"})
"""Names with brackets or a meaning of their own, which a file cannot take for its functions."""


@cache
def _shipped(name: str) -> ast.Module:
    """A file that ships with tilec; it never changes while a program runs."""
    path = _SHIPPED / f"{name}.tk"
    return parse(SourceFile(f"std/{name}.tk", path.read_text(encoding="utf-8")))


def shipped_names() -> list[str]:
    """The modules that ship with tilec."""
    return sorted(f"std.{path.stem}" for path in _SHIPPED.glob("*.tk"))


def offering(name: str) -> str:
    """The shipped file that has a function of this name; empty if none has."""
    for module in ("std.math", *shipped_names()):
        if any(f.name == name for f in _shipped(module.removeprefix("std.")).functions):
            return module
    return ""


@cache
def shipped_scope(module: str) -> Scope:
    """The names of a file that ships with tilec, read when a program first needs them."""
    return Files(Report()).scope(_shipped(module.removeprefix("std.")), module)


class Files:
    """The scopes of all files of one compilation."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.known: dict[str, Scope] = {}
        self.open: list[str] = []

    def scope(self, module: ast.Module, key: str = "") -> Scope:
        """The names of one file, on top of the language's own."""
        key = key or str(Path(module.source.name).resolve())
        check = Checker(self.report, _language_scope(module.source))
        self.known[key] = check.scope
        self.open.append(key)
        folder = Path(module.source.name).parent
        for item in module.imports:
            try:
                self._import(check, item, folder)
            except Abandoned:
                for name in [i.alias for i in item.names] or [_library_name(item)]:
                    leave_broken(check, name)
        self._functions(check, module)
        for constant in module.constants:
            try:
                claim(check, constant.name)
                value = check.constant(constant.value, "a constant")
                meaning = weak_const(value, constant.name.span)
                binding = Binding(meaning, constant.span, rebindable=False)
                check.scope.bind(constant.name.id, binding)
            except Abandoned:
                leave_broken(check, constant.name)
        self.open.pop()
        return check.scope

    def _functions(self, check: Checker, module: ast.Module) -> None:
        seen: dict[str, Span] = {}
        definitions: list[ast.Function | ast.Kernel] = [*module.functions, *module.kernels]
        for node in definitions:
            if node.name in seen:
                self.report.error(
                    "name-taken",
                    f"`{node.name}` is defined twice",
                    [(node.span, "defined here"), (seen[node.name], "and here")],
                )
                continue
            seen[node.name] = node.span
            if isinstance(node, ast.Function):
                try:
                    self._bind(check, ast.Name(node.span, node.name), Function(node, check.scope))
                except Abandoned:
                    continue

    def _bind(self, check: Checker, name: ast.Name, meaning: Function | Library) -> None:
        if name.id in _NOT_FOR_FUNCTIONS:
            self.report.fail(
                "name-taken",
                f"`{name.id}` is part of the language",
                [(name.span, "named here")],
                notes=["functions such as `exp` may be replaced, this one not"],
                help="choose another name",
            )
        claim(check, name)
        check.scope.bind(name.id, Binding(meaning, name.span, rebindable=False))

    # Imports --------------------------------------------------------------------------------

    def _import(self, check: Checker, item: ast.Import, folder: Path) -> None:
        if not item.names and not item.is_file and item.module in shipped_names():
            read = partial(shipped_scope, item.module)
            self._bind(check, _library_name(item), Library(item.module, read))
            return
        file = self._file(item, folder)
        if not item.names:
            self._bind(check, _library_name(item), Library(item.module, lambda: file))
            return
        for wanted in item.names:
            name, alias = wanted.name.id, wanted.alias
            found = file.own.get(name)
            if found is None or name.startswith("_"):
                self.report.error(
                    "unknown-name",
                    f"`{item.module}` has no `{name}`",
                    [(wanted.name.span, "asked for here")],
                    notes=["a name that starts with `_` belongs to its file"] if found else [],
                    help=did_you_mean(name, file.public())
                    or f"it has {', '.join(file.public()) or 'nothing to import'}",
                )
                leave_broken(check, alias)
            elif isinstance(found.meaning, Function):
                self._bind(check, alias, found.meaning)
            else:
                claim(check, alias)
                check.scope.bind(alias.id, replace(found, span=alias.span))

    def _file(self, item: ast.Import, folder: Path) -> Scope:
        """The scope of the file that an import names."""
        key = str((folder / item.module).resolve()) if item.is_file else item.module
        if key in self.open:
            self._cycle(item, key)
        if key not in self.known:
            module = self._read(item, folder)
            self.report.context.append((item.span, "imported here"))
            try:
                self.scope(module, key)
            finally:
                self.report.context.pop()
        return self.known[key]

    def _cycle(self, item: ast.Import, key: str) -> None:
        around = [Path(name).name for name in self.open[self.open.index(key) :]]
        self.report.fail(
            "import-cycle",
            f"`{item.module}` imports itself",
            [(item.span, "imported here")],
            notes=[" imports ".join(f"`{name}`" for name in [*around, around[0]])],
            help="move what both need into a third file",
        )

    def _read(self, item: ast.Import, folder: Path) -> ast.Module:
        try:
            if item.is_file:
                return parse(SourceFile.read(folder / item.module))
            if item.module in shipped_names():
                return _shipped(item.module.removeprefix("std."))
        except OSError:
            pass
        except DiagnosticError as error:
            here = (item.span, "imported here")
            for found in error.diagnostics:
                self.report.errors.append(replace(found, labels=(*found.labels, here)))
            raise Abandoned from None
        if item.is_file:
            there = [path.name for path in sorted(folder.glob("*.tk"))]
            help = did_you_mean(item.module, there) or "the place is relative to this file"
        else:
            help = did_you_mean(item.module, shipped_names()) or (
                f"there are {', '.join(shipped_names())}; a file of your own is named in quotes"
            )
        self.report.fail(
            "import-not-found",
            f"there is no file `{item.module}` to import",
            [(item.span, "asked for here")],
            help=help,
        )


def _library_name(item: ast.Import) -> ast.Name:
    """The name that an ``import`` binds: its alias, or the last part without ``.tk``."""
    if item.alias is not None:
        return item.alias
    last = Path(item.module).stem if item.is_file else item.module.rpartition(".")[2]
    return ast.Name(item.span, last)


def _language_scope(source: SourceFile) -> Scope:
    """The names that the language itself gives a meaning."""
    scope = Scope()
    nowhere = Span(source, 0, 0)
    for name, value in _CONSTANTS.items():
        scope.bind(name, Binding(weak_const(value, nowhere), None, rebindable=False))
    for name, dtype in DTYPES.items():
        scope.bind(name, Binding(dtype, None, rebindable=False))
    return scope
