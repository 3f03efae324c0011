"""Kernels called from Python on a machine without a GPU, and what a launch would pass to one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilec
from tests.ptx.assemblers import assemble_cleanly
from tilec.backend_ptx.assembler_log import AssemblerNote
from tilec.runtime import kernel as kernels
from tilec.runtime import launch
from tilec.runtime.arrays import ArrayView
from tilec.runtime.findings import findings
from tilec.runtime.host import host_array
from tilec.targets import by_name

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "gpu_available", lambda: False)


def example(name: str) -> Any:
    return getattr(tilec.load(str(EXAMPLES / f"{name}.tk")), name)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float16)


def test_outputs_are_allocated_and_returned() -> None:
    a, b = random(20, 30), random(40, 30)
    c = example("gemm")(a, b)
    assert c.shape == (20, 40)
    assert c.dtype == np.float16
    wide = a.astype(np.float64) @ b.T.astype(np.float64)
    assert np.abs(c - wide).max() < 0.02


def test_outputs_may_be_given_by_place_or_by_name() -> None:
    a, b = random(5, 7), random(5, 7)
    c, d = np.empty((5, 7), np.float16), np.empty((7, 5), np.float16).T
    add = example("add")
    assert add(a, b, c) is c
    assert add(a, b, c=d) is d
    assert np.array_equal(c, a + b)
    assert np.array_equal(d, c)
    assert np.array_equal(add(a, b, None), c)
    assert np.array_equal(add(a, b=b), c)


def test_a_missing_number_is_named() -> None:
    text = "kernel k(x: f32, c: out f32[M]):\n    for i in parallel(tiles(M)):\n        c[i] = x\n"
    k = tilec.compile(text).k
    c = np.empty(4, np.float32)
    assert np.all(k(2.5, c) == 2.5)
    with pytest.raises(tilec.LaunchError, match=r"x of k.* must be given, got None"):
        k(None, c)


def test_the_element_type_comes_from_the_arrays_and_bits_stand_for_bf16() -> None:
    x = np.full((3, 4), 0x3F80, np.uint16)  # 1.0
    y = example("add")(x, x)
    assert y.dtype == np.uint16
    assert np.all(y == 0x4000)
    ones = np.ones((3, 4), np.float32)
    assert np.array_equal(example("add")(ones, ones), ones + ones)


def test_bound_parameters_win() -> None:
    x = np.full((3, 4), 0x3F80, np.uint16)  # 1.0 as bf16 bits
    assert np.all(example("add").using(T="bf16")(x, x) == 0x4000)
    with pytest.raises(
        tilec.LaunchError, match=r"a is .* of f16, .* takes bf16 for T; .*\.using\(T="
    ):
        example("add").using(T="bf16")(random(3, 4), random(3, 4))


@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_integers_are_no_f16(dtype: Any) -> None:
    x = np.ones((3, 4), dtype)
    with pytest.raises(tilec.LaunchError, match=r"a is an array of [us]16, .* takes f16"):
        example("add").using(T="f16")(x, x)
    with pytest.raises(tilec.LaunchError, match=r"b is an array of [us]16, .* takes f16"):
        example("add")(random(3, 4), x)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda k: k(random(2, 3)), "takes 2 or 3 arguments here, got 1"),
        (lambda k: k(random(2, 3), 1.0), "b of add.* is an array, got 1.0"),
        (lambda k: k(random(2, 3), random(2, 3), d=random(2, 3)), "no parameter `d`"),
        (lambda k: k(random(2, 3), None), "b of add.* must be given, got None"),
        (lambda k: k(None, random(2, 3)), "a of add.* must be given"),
        (lambda k: k(random(2, 3), b=None), "b of add.* must be given"),
        (lambda k: k(random(2, 3), random(2, 3), a=random(2, 3)), "a of add.* is given twice"),
        (lambda k: k(random(2, 3), random(2, 4)), r"N is 3 in a .* and 4 in b"),
        (lambda k: k(random(2, 3), random(2, 3).astype("f4")), "b is an array of f32"),
    ],
)
def test_calls_that_do_not_fit_are_refused(call: Any, said: str) -> None:
    with pytest.raises(tilec.LaunchError, match=said):
        call(example("add"))


def test_what_is_written_may_not_overlap() -> None:
    a = random(8, 8)
    add = example("add")
    with pytest.raises(tilec.LaunchError, match="c is written and overlaps a"):
        add(a, random(8, 8), a)
    with pytest.raises(tilec.LaunchError, match="its elements overlap"):
        add(a, a, np.lib.stride_tricks.as_strided(random(8), (8, 8), (0, 2)))
    halves = random(8, 16)
    add(halves[:, :8], a, halves[:, 8:])  # interleaved, not overlapping
    add(a, a)  # inputs may be the same
    frozen = random(8, 8)
    frozen.flags.writeable = False
    with pytest.raises(tilec.LaunchError, match="the array is read-only"):
        add(a, a, frozen)


def test_a_requirement_is_named_in_the_refusal() -> None:
    k = tilec.compile(
        "kernel twice(a: f32[M], c: out f32[M]):\n"
        "    require M % 16 == 0\n"
        "    for i in parallel(tiles(M)):\n"
        "        c[i] = a[i] * 2.0\n"
    ).twice
    ones = np.ones(32, np.float32)
    assert np.array_equal(k(ones), ones * 2)
    with pytest.raises(
        tilec.LaunchError, match=r"(?s)twice requires M % 16 == 0; here M = 33\n.*:2:5"
    ):
        k(np.ones(33, np.float32))


def test_nothing_runs_for_empty_outputs_and_no_sum_is_zero() -> None:
    gemm = example("gemm")
    assert gemm(random(0, 5), random(4, 5)).shape == (0, 4)
    c = np.full((3, 4), np.nan, np.float16)
    gemm(random(3, 0), random(4, 0), c)
    assert np.array_equal(c, np.zeros((3, 4)))


def test_names_are_suggested() -> None:
    program = tilec.load(str(EXAMPLES / "gemm.tk"))
    with pytest.raises(AttributeError, match="did you mean `gemm`"):
        _ = program.gem
    assert "gemm" in dir(program)
    assert repr(program.gemm) == "<kernel gemm(a: T[M, K], b: T[N, K], c: out T[M, N])>"


@pytest.mark.parametrize("text", [None, 3, b"kernel"])
def test_a_program_is_a_text(text: Any) -> None:
    with pytest.raises(TypeError, match=f"is a str, got {type(text).__name__}"):
        tilec.compile(text)


def test_a_program_has_a_kernel() -> None:
    with pytest.raises(tilec.DiagnosticError, match="nothing has no kernel"):
        tilec.compile("", "nothing")


def test_prepared_calls_do_not_keep_arrays_alive() -> None:
    import weakref

    class Owned(np.ndarray):
        """An array that can be watched."""

    a = random(4, 4).view(Owned)
    watched = weakref.ref(a)
    add = example("add")
    add(a, random(4, 4))
    del a
    assert watched() is None


def test_memory_of_any_strides_is_read_in_place() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    from tilec.runtime.arrays import view

    for array in (base, base.T, base[::-1, ::2], base[1:1]):
        assert np.array_equal(host_array(view(array)), array)


@dataclass(frozen=True)
class Device:
    """A torch device."""

    type: str
    index: int | None


CPU = Device("cpu", None)


class Tensor:
    """As much of a torch tensor on the CPU as a call reads."""

    __module__ = "torch"

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, "torch.float16"
        self.device = CPU

    def data_ptr(self) -> int:
        """The address."""
        return int(self.array.ctypes.data)

    def stride(self) -> tuple[int, ...]:
        """Strides in elements."""
        return tuple(step // 2 for step in self.array.strides)


def filled(dtype: str) -> Any:
    """A kernel that fills an array with its scalar argument."""
    return tilec.compile(
        f"kernel fill(x: {dtype}, c: out {dtype}[M]):\n"
        "    for i in parallel(tiles(M)):\n        c[i] = x\n"
    ).fill


def test_a_prepared_call_is_found_by_the_bits_of_its_numbers() -> None:
    k, c = filled("f32"), np.empty(4, np.float32)
    assert not np.signbit(k(0.0, c)).any()
    assert np.signbit(k(-0.0, c)).all()
    k(True, c)
    k(1, c)
    for _ in range(2):
        k(float("nan"), c)
    assert np.isnan(c).all()
    assert len(k._ready) == 5


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [
        ("s32", 1 << 31, "x of fill.* is of type s32, a whole number from -2147483648 to"),
        ("s32", 3.9, "a whole number from .* got 3.9"),
        ("f32", 1e300, r"of type f32, at most 3.40282e\+38 either way, got 1e\+300"),
        ("f32", "7", "is a number of type f32, got '7'"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(dtype: str, value: Any, said: str) -> None:
    k = filled(dtype)
    with pytest.raises(tilec.LaunchError, match=said):
        k(value, np.empty(4, {"s32": np.int32, "f32": np.float32}[dtype]))


def test_a_repeated_call_finds_its_launch_by_address_and_sees_new_values() -> None:
    a, b, c = (Tensor(random(4, 6)) for _ in range(3))
    add = example("add")
    for _ in range(3):
        a.array += 1
        assert add(a, b, c) is c
        assert np.array_equal(c.array, a.array + b.array)
    assert len(add._quick) == 1
    with pytest.raises(tilec.LaunchError, match="overlaps"):
        add(a, b, a)


def test_losses_of_the_assembler_are_warnings_at_the_source_line() -> None:
    k = example("gemm")
    views = {x: device_array((64, 64), (64, 1), (1 + i) << 20) for i, x in enumerate("abc")}
    compiled = k.compile(k.sort_out(views, {}, by_name("90")), by_name("90"))
    line = next(n for n, t in enumerate(compiled.ptx.splitlines(), 1) if "wgmma.mma_async" in t)
    loss = AssemblerNote("advisory", "Potential Performance Loss: wgmma", None, line, "C7510")
    spill = AssemblerNote("spills", "...", "gemm", value=16)
    fine = AssemblerNote("registers", "Used 40 registers", "gemm", value=40)
    found = findings(compiled, [loss, spill, fine])
    assert [d.code for d in found] == ["assembler-loss", "spills"]
    assert "acc += a[i, k] @ b[j, k].T" in found[0].labels[0][0].text
    assert "16 bytes" in found[1].message


# --- what a launch passes -------------------------------------------------------------------------


class _FakeModule:
    """A module that loads nothing, and of which the assembler says nothing."""

    notes: tuple[AssemblerNote, ...] = ()

    def function(self, name: str) -> str:
        return name


class _FakeLaunch:
    """Keeps what it is given."""

    made: list[_FakeLaunch]

    def __init__(self, function: str, grid: Any, block: Any, shared: int, arguments: Any) -> None:
        self.function, self.grid, self.block, self.shared = function, grid, block, shared
        self.arguments = arguments
        self.streams: list[int] = []
        _FakeLaunch.made.append(self)

    def __call__(self, stream: int) -> None:
        self.streams.append(stream)


@pytest.fixture
def _fake_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    _FakeLaunch.made = []
    monkeypatch.setattr(launch, "activate", lambda ordinal: None)
    monkeypatch.setattr(launch.Module, "load", lambda ptx, ordinal: _FakeModule())
    monkeypatch.setattr(launch, "Launch", _FakeLaunch)
    monkeypatch.setattr(launch, "encode", lambda *map_of: repr(map_of).encode()[:128].ljust(128))


def device_array(shape: tuple[int, int], strides: tuple[int, int], address: int) -> ArrayView:
    return ArrayView(address, shape, strides, "bf16", ("cuda", 0), None)


@pytest.mark.usefixtures("_fake_driver")
def test_a_launch_passes_what_the_kernel_lists() -> None:
    k = example("gemm")
    views = {
        "a": device_array((300, 72), (72, 1), 1 << 20),
        "b": device_array((130, 72), (72, 1), 1 << 21),
        "c": device_array((300, 130), (130, 1), 1 << 22),
    }
    call = k.sort_out(views, {}, by_name("90"))
    loaded = k.load(call, by_name("90"), 0)
    loaded(call.views, {}, 7)
    loaded(call.views, {}, 8)
    (made,) = _FakeLaunch.made
    assert made.streams == [7, 8]
    assert made.block == (loaded.compiled.threads, 1, 1)
    tiles = dict(loaded.compiled.schedule.tiles)
    assert made.grid[0] == -(-300 // tiles["i"]) * -(-130 // tiles["j"])
    for index, parameter in enumerate(loaded.compiled.parameters):
        stored = made.arguments.value_bytes(index)
        kind, name, *rest = parameter
        if kind == "map":
            assert stored.startswith(f"({views[name].address}, 'bf16'".encode())
        elif kind == "extent":
            assert int.from_bytes(stored, "little") == views[name].shape[rest[0]]
        elif kind == "pointer":
            assert int.from_bytes(stored, "little") == views[name].address
        else:
            assert kind == "stride"
            assert int.from_bytes(stored, "little") == views[name].strides[rest[0]]


@pytest.mark.usefixtures("_fake_driver")
def test_sizes_of_one_class_share_a_compilation() -> None:
    k = example("add")
    target = by_name("90")

    def compiled(m: int, n: int) -> Any:
        views = {x: device_array((m, n), (n, 1), (1 + i) << 24) for i, x in enumerate("abc")}
        return k.compile(k.sort_out(views, {}, target), target)

    assert compiled(1000, 1000) is compiled(1016, 1000)
    assert compiled(1000, 2048) is compiled(1000, 4096)
    assert compiled(1000, 1000) is not compiled(1000, 1001)


@pytest.mark.usefixtures("_fake_driver")
@pytest.mark.parametrize(("dtype", "value"), [("bool", True), ("bool", False), ("s32", -3)])
def test_a_small_scalar_is_passed_in_a_parameter_that_ptx_has(dtype: str, value: Any) -> None:
    text = (
        f"kernel k(x: {dtype}, a: bf16[M, N], c: out bf16[M, N]):\n"
        "    for i, j in parallel(tiles(M), tiles(N)):\n"
        f"        c[i, j] = where({'x' if dtype == 'bool' else 'x > -4'}, a[i, j], 0.0)\n"
    )
    k = tilec.compile(text).k
    views = {x: device_array((64, 64), (64, 1), (1 + i) << 20) for i, x in enumerate("ac")}
    call = k.sort_out(views, {"x": value}, by_name("90"))
    loaded = k.load(call, by_name("90"), 0)
    loaded(call.views, call.scalars, 0)
    place = loaded.compiled.parameters.index(("scalar", "x"))
    (made,) = _FakeLaunch.made
    stored = int.from_bytes(made.arguments.value_bytes(place), "little", signed=value < 0)
    assert stored == value
    assemble_cleanly(loaded.compiled.ptx)
