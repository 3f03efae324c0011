"""What ``assert`` and ``print`` say of a compiled kernel, as the interpreter says it.

The ``cta`` interpreter and the emulator fill the check buffer as a GPU does, and the launcher's
code reads it; what comes out is compared with the interpreter's.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilec
from tilec.ir import checks
from tilec.ir.levels import author
from tilec.runtime.checks import AssertFails
from tilec.runtime.specialise import LaunchError

COMPILED = ("cta", "emulator")

TILES = """\
kernel k(x: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M, 32), tiles(N, 16)):
        print("row sums", rowsum(x[i, j]), len(j), "all of", x[i, j])
        assert x[i, j] < 5, "x stays below five"
        y[i, j] = x[i, j]
"""
PRODUCT = """\
kernel k(a: f16[M, K], b: f16[N, K], c: out f32[M, N]):
    for i, j in parallel(tiles(M, 128), tiles(N, 64)):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[j, k].T
            print("so far", rowmax(acc))
        assert acc < 100
        print("in all", acc)
        c[i, j] = acc
"""


def said(
    capsys: pytest.CaptureFixture[str], text: str, on: str, *arrays: Any, **options: Any
) -> tuple[str, str, Any]:
    """What a call prints, what its error says, and what it gives."""
    out, error = None, ""
    try:
        out = tilec.compile(text).k.using(on=on, **options)(*arrays)
    except AssertFails as raised:
        error = str(raised)
    return capsys.readouterr().out, error, out


def check_alike(capsys: pytest.CaptureFixture[str], text: str, *arrays: Any, **options: Any) -> str:
    """All executors say the same; what they print."""
    shown, error, out = said(capsys, text, "interp", *arrays)
    for on in COMPILED:
        other = said(capsys, text, on, *arrays, **options)
        assert (on, *other[:2]) == (on, shown, error)
        np.testing.assert_array_equal(other[2], out)
    return shown


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_ragged_tiles_print_alike_in_one_order(
    capsys: pytest.CaptureFixture[str], target: str
) -> None:
    x = np.arange(67 * 35, dtype=np.float32).reshape(67, 35) % 5
    shown = check_alike(capsys, TILES, x, target=target)
    assert shown.count("row sums") == 9
    assert "row sums[64:67]: " in shown


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_an_element_that_fails_is_named_alike(
    capsys: pytest.CaptureFixture[str], target: str
) -> None:
    x = np.ones((67, 35), np.float32)
    x[66, 33], x[66, 34] = 7, 8
    for on in ("interp", *COMPILED):
        _, error, _ = said(capsys, TILES, on, x, target=target)
        assert "assert: x stays below five (element [66, 33], and 1 more)" in error
        assert ":4:9" in error


def test_the_first_of_many_tiles_is_named_and_the_kernel_runs_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The interpreter stops there; compiled kernels count what fails anywhere."""
    x = np.full((67, 35), 9, np.float32)
    x[:40] = 1
    for on in COMPILED:
        y = np.zeros_like(x)
        _, error, _ = said(capsys, TILES, on, x, y)
        assert f"(element [40, 0], and {27 * 35 - 1} more)" in error
        np.testing.assert_array_equal(x, y)


def test_what_fails_is_an_assertion_and_an_error_of_a_call() -> None:
    for on in ("interp", *COMPILED):
        kernel = tilec.compile(TILES).k.using(on=on)
        with pytest.raises(AssertionError, match="stays below five") as raised:
            kernel(np.full((3, 3), 9, np.float32))
        assert isinstance(raised.value, tilec.LaunchError)
        assert raised.value.diagnostics[0].code == "assert-fails"


def test_what_does_not_exist_is_not_asserted(capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond the edge lies 0 / 0, which is no number."""
    text = """\
kernel k(x: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M, 32), tiles(N, 16)):
        q = x[i, j] / x[i, j]
        assert q == 1
        y[i, j] = q
"""
    check_alike(capsys, text, np.ones((33, 18), np.float32))


@pytest.mark.parametrize(
    ("target", "rows"),
    [("sm_80", 64), pytest.param("sm_90", 64, marks=pytest.mark.long), ("sm_90", 128)],
)
def test_results_of_products_are_put_together(
    capsys: pytest.CaptureFixture[str], target: str, rows: int
) -> None:
    """Small integers, whose sums are exact in any order; of 128 rows two groups hold half each."""
    rng = np.random.default_rng(1)
    a = rng.integers(-2, 3, (150, 70)).astype(np.float16)
    b = rng.integers(-2, 3, (70, 70)).astype(np.float16)
    text = PRODUCT.replace("tiles(M, 128)", f"tiles(M, {rows})")
    shown = check_alike(capsys, text, a, b, target=target)
    assert shown.count("so far[128:150]") == 4
    assert f"in all[0:{rows}, 64:70]" in shown


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("f64", np.array([1.5, -0.0, np.inf, 1e-300])),
        ("bf16", np.array([0x3FC0, 0xC040, 0x7F80, 0x3A83], np.uint16)),
        ("f16", np.array([1.5, -3, 6e-8, 65504], np.float16)),
        ("s8", np.array([-128, 127, 0, 5], np.int8)),
        ("u8", np.array([255, 127, 0, 5], np.uint8)),
        ("u32", np.array([2**32 - 1, 1, 0, 5], np.uint32)),
        ("s64", np.array([-(2**63), 2**62 + 1, 0, 5], np.int64)),
        ("u64", np.array([2**64 - 1, 2**63 + 1, 0, 5], np.uint64)),
        ("bool", np.array([True, False, True, True])),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_elements_of_every_type_come_out_exactly(
    capsys: pytest.CaptureFixture[str], dtype: str, values: np.ndarray
) -> None:
    text = f"""\
kernel k(x: {dtype}[M], y: out {dtype}[M]):
    for i in parallel(tiles(M, 16)):
        print("x", x[i])
        y[i] = x[i]
"""
    assert "x[0:4]: [" in check_alike(capsys, text, values)


def test_a_scalar_says_where_the_loops_stand(capsys: pytest.CaptureFixture[str]) -> None:
    text = """\
kernel k(x: s32[B, M], y: out s32[B]):
    for b in parallel(B):
        total = 0
        for n in range(M):
            total += x[b, n]
            print("total", total)
            assert total < 10, "too much"
        y[b] = total
"""
    x = np.array([[1, 2, 3], [1, 1, 1], [4, 5, 6]], np.int32)
    check_alike(capsys, text, x[:2])
    for on in ("interp", *COMPILED):
        shown, error, _ = said(capsys, text, on, x)
        assert "assert: too much (b = 2, n = 2)" in error
        assert shown.split() == [
            f for t in (1, 3, 6, 1, 2, 3, 4, 9, 15) for f in ("total:", str(t))
        ]


def test_a_value_that_repeats_in_a_while_loop_keeps_its_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No index tells the rounds apart, only the order in which they were written."""
    text = """\
kernel k(n: s32[M], y: out s32[M]):
    for i in parallel(M):
        v = n[i]
        while v > 1:
            print("v", v)
            v = v // 2
        y[i] = v
"""
    shown = check_alike(capsys, text, np.array([9, 1, 20], np.int32))
    assert [int(w) for w in shown.split()[1::2]] == [9, 4, 2, 20, 10, 5, 2]


def test_launches_report_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    text = """\
kernel k(x: f32[M], y: out f32[M]):
    t = temp[f32](M)
    for i in parallel(tiles(M, 32)):
        print("first", x[i])
        t[i] = x[i] + 1
    for i in parallel(tiles(M, 64)):
        print("second", t[i])
        assert t[i] > 0
        y[i] = t[i]
"""
    shown = check_alike(capsys, text, np.arange(70, dtype=np.float32))
    assert [line.split("[")[0] for line in shown.splitlines() if "[" in line[:7]] == (
        ["first"] * 3 + ["second"] * 2
    )
    for on in COMPILED:
        _, error, _ = said(capsys, text, on, np.arange(-3, 70, dtype=np.float32))
        assert "assert: this does not hold (element [0], and 2 more)" in error


def test_ranges_of_memory_end_where_they_end(capsys: pytest.CaptureFixture[str]) -> None:
    text = """\
kernel k(x: f32[T, N], ends: s32[4], y: out f32[T, N]):
    for g, i, j in parallel(3, tiles(ends[g], ends[g + 1], max=T), tiles(N, 16)):
        print("rows", rowsum(x[i, j]))
        assert x[i, j] > 0
        y[i, j] = x[i, j]
"""
    x = np.ones((50, 16), np.float32)
    ends = np.array([0, 3, 40, 50], np.int32)
    shown, error, _ = said(capsys, text, "emulator", x, ends)
    assert error == ""
    assert sum(line.count("16.") for line in shown.splitlines()) == 50


def test_what_has_no_room_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A warp has a record of 2 rows: what is shown of them has the indices that it had."""
    text = """\
kernel k(x: f32[M, 1024], y: out f32[M]):
    for i in parallel(tiles(M, 128)):
        print("x", x[i, :])
        y[i] = rowsum(x[i, :])
"""
    x = np.repeat(np.arange(9 * 128, dtype=np.float32)[:, None], 1024, 1)
    shown, _, _ = said(capsys, text, "cta", x)
    room = checks.CAPACITY - checks.ASSERTS - checks.RESERVED
    fit = room // (5 + 2 * 1024 + 2)
    assert f"({9 * 64 - fit} records more had no room in the buffer's {room} words for" in shown
    seen = 0
    for low, high, first in re.findall(r"x\[(\d+):(\d+), 0:1024\]:\n\[\[ *(\d+)\. ", shown):
        assert low == first
        seen += int(high) - int(low)
    assert seen == fit * 2


@pytest.mark.parametrize("on", ["interp", *COMPILED])
def test_checks_can_be_left_out(capsys: pytest.CaptureFixture[str], on: str) -> None:
    x = np.full((3, 3), 9, np.float32)
    shown, error, out = said(capsys, TILES, on, x, checks=False)
    assert (shown, error) == ("", "")
    np.testing.assert_array_equal(out, x)


def test_without_checks_the_code_is_that_of_a_kernel_without_them() -> None:
    from tilec.compiler import compile_source
    from tilec.ir.facts import Schedule
    from tilec.source import SourceFile
    from tilec.targets import by_name

    bare = "".join(
        "\n" if "print" in line or "assert" in line else line
        for line in TILES.splitlines(keepends=True)
    )
    texts = [
        compile_source(SourceFile("k.tk", text), None, {}, by_name("90"), schedule=pinned).ptx
        for text, pinned in ((TILES, Schedule(checks=False)), (bare, None))
    ]
    assert texts[0] == texts[1]
    assert "checks" not in texts[0]


def test_a_graph_has_no_moment_to_read_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec.runtime import launch

    loaded = object.__new__(launch.Loaded)
    kernel = tilec.compile(TILES).k
    call = kernel.sort_out(
        {n: tilec.runtime.arrays.view(np.ones((3, 3), np.float32)) for n in ("x", "y")}, {},
        tilec.targets.by_name("90"),
    )  # fmt: skip
    loaded.compiled = kernel.compile(call, tilec.targets.by_name("90"))
    monkeypatch.setattr(launch, "is_capturing", lambda stream: True)
    with pytest.raises(LaunchError, match="being captured") as raised:
        loaded(call.views, call.scalars, 0)
    assert raised.value.diagnostics[0].code == "checks-in-graph"
    assert "checks=False" in str(raised.value.diagnostics[0].help)


def test_an_axis_that_is_not_there_has_no_index() -> None:
    from tilec.compiler import front, read_module
    from tilec.diagnostics import DiagnosticError
    from tilec.ir.printer import module_text
    from tilec.source import SourceFile
    from tilec.targets import by_name

    module = front(SourceFile("k.tk", TILES), None, {}, by_name("90"))
    asserted = next(op for op in module.kernels[0].body.walk() if isinstance(op, author.Assert))
    asserted.axes = (0, 2)
    with pytest.raises(DiagnosticError, match=r"axes \(0, 2\) of a value"):
        read_module(SourceFile("k.tir", module_text(module)))
