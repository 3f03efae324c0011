"""From a syntax tree to a checked module: the stage between ``parse`` and ``lower``.

What stands outside kernels is read in ``imports``, a kernel's head in ``signature``, its body in
``statements``. All errors of the chosen kernels are raised together. A file of functions alone
needs no kernel; a function is checked where it is called.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.diagnostics import Diagnostic, DiagnosticError, did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import CheckedModule
from tilec.frontend.imports import Files
from tilec.frontend.report import Report
from tilec.frontend.statements import Checker
from tilec.source import SourceFile


def check(
    module: ast.Module, bindings: Mapping[str, object], kernel: str | None = None
) -> CheckedModule:
    """Type a module, or one kernel of it, with compile-time parameters bound by name.

    A parameter that ``bindings`` lacks takes its default. Raises ``DiagnosticError`` with all
    that is wrong.
    """
    report = Report()
    outer = Files(report).scope(module)
    names = list(dict.fromkeys(k.name for k in module.kernels))
    firsts = [next(k for k in module.kernels if k.name == name) for name in names]
    chosen = [k for k in firsts if kernel in (None, k.name)]
    if not chosen and (kernel is not None or not module.functions):
        raise DiagnosticError([*report.errors, no_such_kernel(module.source, kernel, names)])
    _check_bindings(report, chosen, bindings)
    checked = [Checker(report, outer).kernel(k, bindings) for k in chosen]
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
