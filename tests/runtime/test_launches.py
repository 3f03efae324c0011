"""Several launches of one call, and workspace between them, on a driver that only takes notes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilec
from tests.ptx.assemblers import assemble_cleanly
from tilec.compiler import Workspace
from tilec.ir.types import DTYPES
from tilec.runtime import launch, workspace
from tilec.runtime.arrays import ArrayView
from tilec.runtime.workspace import block_for, borrowed
from tilec.targets import by_name

TEXT = """
kernel centred(x: f32[M, N], y: out f32[M, N], by: f32):
    sums = temp[f32](N)
    rows = temp[f32](3, M, N)
    for j in parallel(tiles(N)):
        total = zeros[f32](j)
        for i in tiles(M):
            total += sum(x[i, j], axis=0)
        sums[j] = total
    for i, j in parallel(tiles(M), tiles(N)):
        rows[1, i, j] = x[i, j] - sums[j][None, :]
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = rows[1, i, j] * by
"""
TARGET = by_name("90")


class _Launch:
    """Keeps what it is given, and notes when it is issued."""

    log: list[tuple[str, int]]
    made: list[_Launch]

    def __init__(self, function: str, grid: Any, block: Any, shared: int, arguments: Any) -> None:
        self.function, self.grid, self.arguments = function, grid, arguments
        _Launch.made.append(self)

    def __call__(self, stream: int) -> None:
        _Launch.log.append((self.function, stream))


class _Driver:
    """Lends addresses, each once, and notes what comes back."""

    def __init__(self) -> None:
        self.next, self.lent, self.log = 1 << 30, set[int](), list[tuple[str, int, int]]()

    def allocate(self, stream: int, size: int, ordinal: int) -> int:
        self.next += 1 << 20
        self.lent.add(self.next)
        self.log.append(("lent", stream, size))
        return self.next

    def free(self, stream: int, address: int) -> None:
        self.lent.remove(address)
        self.log.append(("back", stream, address))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> _Driver:
    _Launch.log, _Launch.made = [], []
    found = _Driver()
    loaded = SimpleNamespace(notes=(), function=lambda name: name)
    monkeypatch.setattr(launch, "activate", lambda ordinal: None)
    monkeypatch.setattr(launch.Module, "load", lambda ptx, ordinal: loaded)
    monkeypatch.setattr(launch, "Launch", _Launch)
    monkeypatch.setattr(launch, "encode", lambda *map_of: repr(map_of).encode()[:128].ljust(128))
    monkeypatch.setattr(launch, "zero_on", lambda *at: found.log.append(("zero", *at[:2])))
    monkeypatch.setattr(workspace, "allocate_on", found.allocate)
    monkeypatch.setattr(workspace, "free_on", found.free)
    return found


def arrays(m: int, n: int) -> dict[str, ArrayView]:
    return {
        name: ArrayView(place << 22, (m, n), (n, 1), "f32", ("cuda", 0), None)
        for place, name in enumerate("xy", 1)
    }


def loaded_for(m: int, n: int) -> tuple[Any, Any]:
    k = tilec.compile(TEXT).centred
    call = k.sort_out(arrays(m, n), {"by": 2.0}, TARGET)
    return k.load(call, TARGET, 0), call


def passed(made: _Launch, compiled: Any) -> dict[tuple[Any, ...], int]:
    """The values that a launch passes, by what they are."""
    (entry,) = [e for e in compiled.launches if e.name == made.function]
    return {
        tuple(parameter): int.from_bytes(made.arguments.value_bytes(index), "little")
        for index, parameter in enumerate(entry.parameters)
    }


def test_launches_follow_each_other_on_the_stream_and_workspace_goes_back(driver: _Driver) -> None:
    loaded, call = loaded_for(100, 30)
    loaded(call.views, call.scalars, 7)
    names = ["centred_1", "centred_2", "centred_3"]
    assert _Launch.log == [(name, 7) for name in names]
    assert [kind for kind, *_ in driver.log] == ["lent", "back"]
    assert not driver.lent
    # 30 numbers to the next 256 bytes, then 3 x 100 rows of 32.
    assert driver.log[0] == ("lent", 7, 256 + 3 * 100 * 32 * 4)
    first, second, third = (passed(made, loaded.compiled) for made in _Launch.made)
    base = driver.log[1][2]
    assert first["pointer", "sums"] == second["pointer", "sums"] == base
    assert second["pointer", "rows"] == third["pointer", "rows"] == base + 256
    assert third["stride", "rows", 0] == 100 * 32
    assert third["stride", "rows", 1] == 32
    assert ("scalar", "by") in third
    assert ("scalar", "by") not in first
    assemble_cleanly(loaded.compiled.ptx)


def test_a_call_at_another_place_passes_that_place(driver: _Driver) -> None:
    loaded, call = loaded_for(64, 64)
    for stream in (7, 8):
        loaded(call.views, call.scalars, stream)
    bases = [address for kind, _, address in driver.log if kind == "back"]
    places = [passed(m, loaded.compiled)["pointer", "sums"] for m in _Launch.made[::3]]
    assert places == bases
    assert len(set(bases)) == 2


def test_launches_without_ctas_are_left_out(driver: _Driver) -> None:
    loaded, call = loaded_for(0, 40)
    loaded(call.views, call.scalars, 3)
    assert _Launch.log == [("centred_1", 3)]
    assert [kind for kind, *_ in driver.log] == ["lent", "zero", "back"]


def test_workspace_goes_back_when_a_launch_fails(
    driver: _Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, call = loaded_for(16, 16)

    def fail(self: _Launch, stream: int) -> None:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(_Launch, "__call__", fail)
    with pytest.raises(RuntimeError, match="lost"):
        loaded(call.views, call.scalars, 3)
    assert not driver.lent


def test_calls_of_several_threads_are_issued_one_after_the_other(driver: _Driver) -> None:
    loaded, call = loaded_for(16, 16)
    threads = [
        threading.Thread(target=loaded, args=(call.views, call.scalars, stream))
        for stream in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    streams = [stream for _, stream in _Launch.log]
    assert streams == [s for s in streams[::3] for _ in range(3)]
    assert not driver.lent


def test_torch_lends_for_its_own_calls(driver: _Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def empty(size: int, dtype: str, device: str) -> Any:
        asked.append((size, dtype, device))
        return SimpleNamespace(data_ptr=lambda: 4096)

    fake = SimpleNamespace(empty=empty, uint8="uint8")
    monkeypatch.setitem(__import__("sys").modules, "torch", fake)
    loaded, call = loaded_for(16, 16)
    loaded(call.views, call.scalars, 3, "torch")
    assert asked == [(256 + 3 * 16 * 16 * 4, "uint8", "cuda:0")]
    assert driver.log == []
    assert passed(_Launch.made[0], loaded.compiled)["pointer", "sums"] == 4096


@pytest.mark.parametrize(
    ("dtype", "columns", "pitch"),
    [("bf16", 9, 16), ("u8", 1, 16), ("bf16", 511, 512), ("bf16", 513, 576), ("f32", 255, 256)],
)
def test_rows_start_at_sixteen_bytes_and_long_ones_at_lines(
    dtype: str, columns: int, pitch: int
) -> None:
    wanted = [Workspace("w", DTYPES[dtype], (("scalar", "n"), 5, ("extent", "x", 0)))]
    block = block_for(wanted, {"x": (columns,)}, {"n": 3}, 0)
    view = block.at(1 << 20)["w"]
    assert view.shape == (3, 5, columns)
    assert view.strides == (5 * pitch, pitch, 1)
    assert block.size_bytes == 15 * pitch * view.element_bytes


def test_nothing_is_asked_for_without_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "allocate_on", None)
    with borrowed(0, "numpy", 0, 5) as base:
        assert base == 0


@contextmanager
def _interpreted() -> Iterator[Any]:
    from tilec.runtime import kernel as kernels

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "gpu_available", lambda: False)
        yield tilec.compile(TEXT).centred


def test_without_a_gpu_the_interpreter_runs_all_launches() -> None:
    x = np.random.default_rng(0).standard_normal((20, 33)).astype(np.float32)
    with _interpreted() as k:
        np.testing.assert_allclose(k(x, by=2.0), 2 * (x - x.sum(0)), rtol=1e-4, atol=1e-4)
