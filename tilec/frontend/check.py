"""From a syntax tree to a checked module: the stage between ``parse`` and ``lower``.

Here are the names that the language itself defines and what stands outside kernels; a kernel's
head is checked in ``signature``, its body in ``statements``. All errors of the chosen kernels
are raised together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilec.diagnostics import Diagnostic, DiagnosticError, did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import CheckedModule, Constant
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import weak_const
from tilec.frontend.names import Binding, Scope
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


def check(
    module: ast.Module, bindings: Mapping[str, object], kernel: str | None = None
) -> CheckedModule:
    """Type a module, or one kernel of it, with compile-time parameters bound by name.

    A parameter that ``bindings`` lacks takes its default. Raises ``DiagnosticError`` with all
    that is wrong.
    """
    report = Report()
    outer = _language_scope(module.source)
    functions = frozenset(f.name for f in module.functions)
    _check_top_level(report, module, outer, functions)
    chosen = [k for k in module.kernels if kernel in (None, k.name)]
    names = [k.name for k in module.kernels]
    if not chosen:
        raise DiagnosticError([*report.errors, no_such_kernel(module.source, kernel, names)])
    _check_bindings(report, chosen, bindings)
    checked = [Checker(report, functions, outer).kernel(k, bindings) for k in chosen]
    if report.errors:
        raise DiagnosticError(report.errors)
    return CheckedModule(module.source, checked)


def no_such_kernel(source: SourceFile, asked: str | None, names: list[str]) -> Diagnostic:
    """The diagnostic for a kernel that a file does not have."""
    there = f"there are: {', '.join(names)}" if names else "write `kernel name(...):`"
    return Diagnostic(
        "no-such-kernel",
        f"{source.name} has no kernel" + (f" `{asked}`" if asked else ""),
        help=did_you_mean(asked or "", names) or there,
    )


def _language_scope(source: SourceFile) -> Scope:
    """The names that the language itself gives a meaning."""
    scope = Scope()
    nowhere = Span(source, 0, 0)
    for name, value in _CONSTANTS.items():
        scope.bind(name, Binding(weak_const(value, nowhere), None, rebindable=False))
    for name, dtype in DTYPES.items():
        scope.bind(name, Binding(dtype, None, rebindable=False))
    return scope


def _check_top_level(
    report: Report, module: ast.Module, outer: Scope, functions: frozenset[str]
) -> None:
    """Imports are refused, constants get their values, names must differ."""
    check = Expressions(report, functions)
    check.scope = outer
    for item in module.imports:
        try:
            report.not_yet("an import", item.span, "write what is needed into this file")
        except Abandoned:
            continue
    for constant in module.constants:
        try:
            claim(check, constant.name)
            value = check.constant(constant.value, "a constant")
            meaning = weak_const(value, constant.name.span)
            outer.bind(constant.name.id, Binding(meaning, constant.span, rebindable=False))
        except Abandoned:
            leave_broken(check, constant.name)
    seen: dict[str, Span] = {}
    definitions: list[ast.Function | ast.Kernel] = [*module.functions, *module.kernels]
    for node in definitions:
        if node.name in seen:
            report.error(
                "name-taken",
                f"`{node.name}` is defined twice",
                [(node.span, "defined here"), (seen[node.name], "and here")],
            )
        seen[node.name] = node.span


def _check_bindings(
    report: Report, kernels: list[ast.Kernel], bindings: Mapping[str, object]
) -> None:
    """Every bound name must be a parameter of some kernel."""
    known = {p.name.id for k in kernels for p in k.comptime}
    for name in bindings:
        if name not in known:
            report.error(
                "unknown-parameter",
                f"no kernel has a compile-time parameter `{name}`",
                [],
                help=did_you_mean(name, known)
                or "dimensions are not bound here: they come from the arrays at launch",
            )
