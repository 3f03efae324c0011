"""Functions: what a call means, that it leaves no trace in the program, and how files are found."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec.compiler import compile_source
from tilec.diagnostics import DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.interpret import bind_dims, choose_sizes, interpret
from tilec.ir.core import Module, Region, Value
from tilec.ir.declare import Effects
from tilec.ir.facts import Schedule
from tilec.ir.verify import verify
from tilec.passes.base import Context
from tilec.passes.simplify import simplify
from tilec.source import SourceFile
from tilec.targets import by_name

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def lowered(text: str, name: str = "m.tk") -> Module:
    """The verified level ``tile`` of a text's last kernel."""
    module = check(parse(SourceFile(name, text)), {})
    found = lower(module, module.kernels[-1].name)
    verify(found)
    return found


def simplified(text: str) -> str:
    """The IR after ``simplify`` without names, places, and the order of ops that have no effect."""
    module = lowered(text)
    kernel = module.kernels[0]
    simplify.run(kernel, Context(by_name("90"), schedule=Schedule()))
    return _spelt(kernel.body, {}, "")


def _spelt(region: Region, known: dict[Value[Any], str], place: str) -> str:
    """Each op as what it computes from what; those without an effect in the order of their text."""
    known.update({arg: f"{place}arg{n}:{arg.type}" for n, arg in enumerate(region.args)})
    pure, others = [], []
    for op in region.ops:
        inner = [_spelt(r, known, f"{place}{len(others)}.{n}.") for n, r in enumerate(op.regions)]
        given = ", ".join(known[v] for v in op.operands)
        types = [str(result.type) for result in op.results]
        spelt = f"{op.name}({given}){op.attributes}{types}{inner}"
        alone = op.effects is Effects.PURE and not op.regions and not op.is_terminator
        (pure if alone else others).append(spelt)
        short = hashlib.sha256(spelt.encode()).hexdigest()[:12]
        known.update({result: f"{short}.{n}" for n, result in enumerate(op.results)})
    return "\n".join([*sorted(pure), *others])


def outputs(text: str, *given: Any, name: str = "m.tk") -> Any:
    """What a kernel with arrays ``a0: f32[M]``, ... and ``c`` leaves in ``c``."""
    kernel = lowered(text, name).kernels[0]
    arrays = {f"a{n}": array.copy() for n, array in enumerate(given)}
    arrays["c"] = np.full_like(given[0], np.nan)
    interpret(kernel, arrays, {}, choose_sizes(kernel, bind_dims(kernel, arrays), 0))
    return arrays["c"]


def of_one(functions: str, value: str) -> str:
    """A kernel that stores ``value``, made of ``x`` and ``y``."""
    return f"""{functions}
kernel k(a0: f32[M], a1: f32[M], c: out f32[M]):
    for i in parallel(tiles(M)):
        x, y = a0[i], a1[i]
        c[i] = {value}
"""


GEMM = (_EXAMPLES / "gemm.tk").read_text()
SOFTMAX = (_EXAMPLES / "softmax.tk").read_text()

MOVED = {
    "the step of a product": (
        GEMM,
        "            acc += a[i, k] @ b[j, k].T\n",
        "            acc = step(acc, a[i, k], b[j, k])\n",
        "fn step(total, x, y):\n    total += x @ y.T\n    return total\n",
    ),
    "a product alone, which the sum continues": (
        GEMM,
        "            acc += a[i, k] @ b[j, k].T\n",
        "            acc += times(a[i, k], b[j, k])\n",
        "fn times(x: P[I, J], y: P[K, J]) -> f32:\n    return x @ y.T\n".replace("P", "bf16"),
    ),
    "the whole loop, with the arrays": (
        GEMM,
        "        for k in tiles(K):\n            acc += a[i, k] @ b[j, k].T\n",
        "        acc = all_steps(acc, a, b, i, j, K)\n",
        "fn all_steps(acc, x, y, i, j, K):\n    for k in tiles(K):\n"
        "        acc += x[i, k] @ y[j, k].T\n    return acc\n",
    ),
    "the store": (
        GEMM,
        "        c[i, j] = cast[T](acc)\n",
        "        put(c, i, j, acc)\n",
        "fn put(to, i, j, value):\n    to[i, j] = cast[bf16](value)\n",
    ),
    "the weights of a softmax": (
        SOFTMAX,
        "        p = exp2(row - rowmax(row)[:, None])\n",
        "        p = weights(row)\n",
        "fn weights(row):\n    return relative(row, rowmax(row))\n"
        "fn relative(row, to):\n    shift = to[:, None]\n    return exp2(row - shift)\n",
    ),
    "the last two lines of a softmax": (
        SOFTMAX,
        "        p = exp2(row - rowmax(row)[:, None])\n"
        "        y[i, :] = cast[T](p * (1 / rowsum(p))[:, None])\n",
        "        y[i, :] = normal[T](row)\n",
        "fn normal[S: dtype](x: f32) -> S:\n    p = exp2(x - rowmax(x)[:, None])\n"
        "    return cast[S](p * (1 / rowsum(p))[:, None])\n",
    ),
}


@pytest.mark.parametrize("case", MOVED.values(), ids=MOVED.keys())
def test_lines_moved_into_a_function_leave_the_same_program(
    case: tuple[str, str, str, str],
) -> None:
    text, lines, call, function = case
    assert text.count(lines) == 1
    moved = function + text.replace(lines, call)
    assert simplified(moved) == simplified(text)


def test_programs_that_differ_are_told_apart() -> None:
    assert simplified(GEMM) != simplified(GEMM.replace("+=", "-="))
    assert simplified(SOFTMAX) != simplified(SOFTMAX.replace("rowmax", "rowsum"))


@pytest.mark.parametrize("case", ["the step of a product", "the last two lines of a softmax"])
def test_moved_lines_leave_the_same_instructions(case: str) -> None:
    text, lines, call, function = MOVED[case]
    name = "gemm" if text is GEMM else "softmax"
    first, second = (
        compile_source(SourceFile("m.tk", t), name, {}, by_name("90"))
        for t in (text, function + text.replace(lines, call))
    )
    assert first.schedule == second.schedule
    counts = [Counter(re.findall(r"^\s*(?:@\S+ )?([a-z][\w.:]*) ", c.ptx, re.MULTILINE))
              for c in (first, second)]  # fmt: skip
    assert counts[0] == counts[1]
    assert any("wgmma.mma" in op for op in counts[0]) == (name == "gemm")


def test_everything_in_a_call_is_at_the_place_of_the_call_in_the_kernel() -> None:
    text = of_one("fn f(x):\n    return g(x) + 1\nfn g(x):\n    return exp(x)\n", "f(x)")
    module = lowered(text)
    call = text.splitlines().index("        c[i] = f(x)") + 1
    places = {op.name: op.loc for op in module.kernels[0].body.walk()}
    for name in ("math.exp", "math.add"):
        assert (places[name].line, places[name].column) == (call, 16)  # type: ignore[union-attr]


MEANINGS = {
    "names of a body are its own": (
        "fn f(y):\n    x = y * 2\n    return x\n",
        "f(y) + x",
        lambda x, y: x + 2 * y,
    ),
    "arguments may be named": (
        "fn f(a, b):\n    return a - b\n",
        "f(b=x, a=y)",
        lambda x, y: y - x,
    ),
    "several results are several values": (
        "fn f(a, b):\n    return b, a\nfn g(a, b):\n    u, v = f(a, b)\n    return u - v\n",
        "g(x, y)",
        lambda x, y: y - x,
    ),
    "a literal stays one and meets integers and floats": (
        "fn f(a, b):\n    return a * b\n",
        "f(x, 2) * cast[f32](f(cast[s32](y), 3))",
        lambda x, y: 2 * x * (np.trunc(y) * 3),
    ),
    "a number stays known while compiling": (
        "fn f(n):\n    return n * 2\nfn g(x, n):\n    y = zeros[f32](f(n))\n"
        "    return x + cast[f32](f(n)) + max(y, axis=0)\n",
        "g(x, 3)",
        lambda x, y: x + 6,
    ),
    "a generic function follows its arguments": (
        "fn f[T: dtype](x: T, n: T) -> T:\n    if T == s32:\n        return x // n\n"
        "    return cast[T](cast[f32](x) / cast[f32](n))\n",
        "f(x, 4) + cast[f32](f(cast[s32](y), 4))",
        lambda x, y: x / 4 + np.trunc(y) // 4,
    ),
    "a written parameter wins over the default": (
        "fn f[N: int = 2](x):\n    return x * N\n",
        "f(x) + f[5](y)",
        lambda x, y: 2 * x + 5 * y,
    ),
    "a loop and a run-time choice in a body": (
        "fn f(x, n):\n    for t in range(n):\n        if t % 2 == 0:\n            x += 1\n"
        "        else:\n            x = -x\n    return x\n",
        "f(x, 5)",
        lambda x, y: -(-(x + 1) + 1) + 1,
    ),
    "a call in the condition of a loop is made in every round": (
        "fn small(n):\n    m = n * 2\n    return m < 9\n"
        "fn f(x):\n    n = 0\n    while small(n):\n        n += 1\n"
        "    return x + cast[f32](n)\n",
        "f(x)",
        lambda x, y: x + 5,
    ),
    "a function of the file stands in for one of the language": (
        "fn exp(x):\n    return x + 1\n",
        "exp(x) + exp2(y * 0)",
        lambda x, y: x + 2,
    ),
    "a constant may be computed by a function": (
        "fn f(n):\n    return n + 1\nA = f(2)\n",
        "x * A",
        lambda x, y: 3 * x,
    ),
}


@pytest.mark.parametrize("case", MEANINGS.values(), ids=MEANINGS.keys())
def test_meaning(case: tuple[str, str, Any]) -> None:
    functions, value, expected = case
    chance = np.random.default_rng(3)
    x, y = ((chance.standard_normal(37) * 8).astype(np.float32) for _ in range(2))
    found = outputs(of_one(functions, value), x, y)
    np.testing.assert_allclose(found, expected(x.astype(float), y.astype(float)), rtol=1e-6)


def test_a_file_is_found_beside_the_importing_one_and_read_once(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.tk").write_text(
        'from "b.tk" import half\nfn quarter(x):\n    return half(half(x))\n'
    )
    (tmp_path / "parts" / "b.tk").write_text("BY = 2\nfn half(x):\n    return x / BY\n")
    head = 'import "parts/a.tk"\nimport "parts/b.tk" as p\n'
    text = of_one(head, "a.quarter(x) + p.half(y) * p.BY")
    ones = np.ones(5, np.float32)
    found = outputs(text, ones, ones, name=str(tmp_path / "main.tk"))
    np.testing.assert_array_equal(found, ones * 1.25)


def test_files_in_a_circle_are_refused_with_the_circle(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "b")):
        (tmp_path / f"{name}.tk").write_text(f'import "{other}.tk"\nfn f(x):\n    return x\n')
    with pytest.raises(DiagnosticError) as raised:
        check(parse(SourceFile.read(tmp_path / "a.tk")), {})
    (found,) = raised.value.diagnostics
    assert found.code == "import-cycle"
    assert found.notes == ("`b.tk` imports `c.tk` imports `b.tk`",)
    assert found.span is not None
    assert Path(found.span.file.name).name == "c.tk"


def test_a_file_of_functions_alone_is_checked_without_a_kernel() -> None:
    assert check(parse(SourceFile("f.tk", "fn f(x):\n    return x\n")), {}).kernels == []
