"""The head of a kernel: compile-time parameters get values, arrays bind their dimensions.

A dimension is a name that first appears in an array's type and is no parameter; the same name in
two arrays is the same dimension. Element types and compile-time numbers are known from here on.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.diagnostics import did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import (
    ArrayType,
    CheckedKernel,
    Const,
    Constant,
    ExtentValue,
    Ref,
    ScalarType,
    Variable,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import weak_const
from tilec.frontend.names import Binding, Broken
from tilec.frontend.nibbles import check_array, refuse_alone
from tilec.frontend.report import Abandoned
from tilec.ir.types import DTYPES, S32, DType, Extent

KINDS = ("dtype", "int", "bool", "float")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


def bind_signature(
    check: Expressions, node: ast.Kernel, bindings: Mapping[str, object]
) -> CheckedKernel:
    """Bind all names of a kernel's head in the current scope."""
    kernel = CheckedKernel(node.name, node.span, {}, [], {})
    for item in node.comptime:
        _bind_comptime(check, kernel, item, bindings)
    taken = {p.name.id: p for p in reversed(node.parameters)}
    for parameter in node.parameters:
        try:
            _bind_parameter(check, kernel, parameter, taken)
        except Abandoned:
            leave_broken(check, parameter.name)
    return kernel


def _bind_comptime(
    check: Expressions,
    kernel: CheckedKernel,
    item: ast.ComptimeParameter,
    bindings: Mapping[str, object],
) -> None:
    name = item.name.id
    try:
        claim(check, item.name)
        value = _comptime_value(check, item, bindings)
    except Abandoned:
        leave_broken(check, item.name)
        return
    kernel.bindings[name] = value
    meaning = value if isinstance(value, DType) else weak_const(value, item.name.span)
    check.scope.bind(name, Binding(meaning, item.span, rebindable=False))


def leave_broken(check: Expressions, name: ast.Name) -> None:
    """After a refusal: the name is known to mean nothing, unless it has a meaning already."""
    if check.scope.find(name.id) is None:
        check.scope.bind(name.id, Binding(Broken(), name.span, rebindable=False))


def claim(check: Expressions, name: ast.Name) -> None:
    """Refuse a name that already means something here."""
    taken = check.scope.find(name.id)
    if taken is not None:
        labels = [(name.span, "named here")]
        if taken.span is not None:
            labels.append((taken.span, "this has the name already"))
        check.report.fail(
            "name-taken",
            f"`{name.id}` already means something here",
            labels,
            notes=[] if taken.span else ["it is a word of the language"],
            help="choose another name",
        )


def _comptime_value(
    check: Expressions, item: ast.ComptimeParameter, bindings: Mapping[str, object]
) -> Constant | DType:
    kind, name = item.kind.id, item.name.id
    if kind not in KINDS:
        check.report.fail(
            "bad-parameter",
            f"`{kind}` is no kind of compile-time parameter",
            [(item.kind.span, "declared here")],
            help=did_you_mean(kind, KINDS) or f"there are {', '.join(KINDS)}",
        )
    if name in bindings:
        value = convert_binding(kind, bindings[name])
        if value is None:
            check.report.fail(
                "bad-parameter",
                f"`{bindings[name]}` is no value for `{name}`",
                [(item.span, f"it is declared as {kind} here")],
            )
        return value
    if item.default is None:
        check.report.fail(
            "parameter-has-no-value",
            f"`{name}` has neither a value nor a default",
            [(item.span, "declared here")],
            help=f"compile with `-D {name}=...`, call `.using({name}=...)` from Python, "
            f"or give a default: `{name}: {kind} = ...`",
        )
    if kind == "dtype":
        return check.dtype(item.default, "this default")
    value = convert_binding(kind, check.constant(item.default, "a default"))
    if value is None:
        check.report.fail(
            "bad-parameter",
            f"this default is no value for `{name}`",
            [(item.default.span, f"{kind} is needed")],
        )
    return value


def convert_binding(kind: str, given: object) -> Constant | DType | None:
    """A value from the command line or from Python as a value of ``kind``; None if it is none."""
    text = str(given).strip()
    if kind == "dtype":
        return DTYPES.get(text)
    if kind == "bool":
        return _TRUTH.get(text.lower())
    try:
        return int(text, 0) if kind == "int" and not isinstance(given, bool) else float(text)
    except ValueError:
        return None


def _bind_parameter(
    check: Expressions,
    kernel: CheckedKernel,
    parameter: ast.Parameter,
    taken: Mapping[str, ast.Parameter],
) -> None:
    name = parameter.name
    claim(check, name)
    if taken[name.id] is not parameter:
        check.report.fail(
            "name-taken",
            f"there are two parameters `{name.id}`",
            [(name.span, "one here"), (taken[name.id].span, "the other here")],
        )
    if parameter.type is None:
        check.report.fail(
            "bad-parameter",
            f"`{name.id}` has no type",
            [(parameter.span, "declared here")],
            help=f"write `{name.id}: f32[M, N]` for an array, `{name.id}: f32` for a scalar",
        )
    dtype = check.dtype(parameter.type.name, "a parameter")
    if parameter.type.dims is None:
        refuse_alone(check.report, dtype, parameter.span, "a number")
        if parameter.mode != "in":
            check.report.fail(
                "bad-parameter",
                "a scalar parameter is only read",
                [(parameter.span, f"declared `{parameter.mode}` here")],
                help=f"for a result declare an array: `{name.id}: out {dtype}[1]`",
            )
        variable = Variable(name.id, ScalarType(dtype), parameter.span)
    else:
        variable = Variable(name.id, ArrayType(dtype, (), parameter.mode), parameter.span)
        dims = [
            _dimension(check, kernel, variable, axis, dim, taken)
            for axis, dim in enumerate(parameter.type.dims)
        ]
        variable.type = ArrayType(dtype, tuple(dims), parameter.mode)
        check_array(check.report, dtype, dims, parameter.span)
    kernel.parameters.append(variable)
    ref = Ref(variable.type, name.span, variable)
    check.scope.bind(name.id, Binding(ref, parameter.span, rebindable=False))


def _dimension(
    check: Expressions,
    kernel: CheckedKernel,
    array: Variable,
    axis: int,
    node: ast.Expression,
    parameters: Mapping[str, ast.Parameter],
) -> Extent:
    if isinstance(node, ast.Name):
        known = check.scope.find(node.id)
        if known is None and node.id not in parameters:
            value = ExtentValue(ScalarType(S32), node.span, node.id)
            check.scope.bind(node.id, Binding(value, node.span, rebindable=False))
            kernel.dims[node.id] = (array, axis)
            return node.id
        if known is not None and isinstance(known.meaning, ExtentValue):
            return node.id
    if isinstance(node, ast.Name | ast.Literal):
        meaning = check.expression(node) if not _is_parameter(node, parameters) else None
        extent = meaning.value if isinstance(meaning, Const) else None
        if isinstance(extent, int) and not isinstance(extent, bool) and extent >= 1:
            return extent
    check.report.fail(
        "bad-dimension",
        "a dimension is a name or a positive integer",
        [(node.span, "this is neither")],
        help="name it, and say what holds with `require`: `require N == 2 * M`",
    )


def _is_parameter(node: ast.Expression, parameters: Mapping[str, ast.Parameter]) -> bool:
    return isinstance(node, ast.Name) and node.id in parameters
