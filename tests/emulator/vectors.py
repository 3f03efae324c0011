"""Single instructions with inputs at the edges: what a GPU made of them is recorded, and compared.

A `Vector` is a kernel of 256 threads that loads its operands, executes the instruction in question
and stores its results. ``tests/gpu/record_vectors.py`` runs all of them on a GPU and writes what
came out to ``recorded.json``; the emulator must give the same, bit for bit where the hardware
defines the bits, and within the stated bound where it approximates.

Never: computes an expected result; the file of the recorded ones is the authority.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.emulator.launch import BufferMap, BufferPointer, Launch, Value

THREADS = 256
HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
REGISTERS = """.reg .pred %p<8>;
.reg .b16 %h<16>;
.reg .b32 %r<160>;
.reg .b64 %d<24>;
.reg .f32 %f<160>;
.reg .f64 %g<16>;
"""
WIDTHS = {"16": 2, "32": 4, "64": 8}
SHARED = 65536
MOST = 400
"""Characters of exact results that are kept whole."""


@dataclass(frozen=True)
class Vector:
    """One instruction and what it is run on."""

    name: str
    body: str
    """PTX between the loads and the stores."""
    inputs: tuple[tuple[str, np.ndarray], ...] = ()
    """A register and its 256 values, each."""
    results: tuple[str, ...] = ()
    """Registers that are stored."""
    kind: str = "bits"
    """How the results are seen: bits, or the float type that they hold."""
    ulps: float = 0.0
    absolute: float = 0.0
    threads: int = THREADS
    maps: tuple[tuple[int, ...], ...] = ()
    """Tensor maps on the buffer "tensor": element bytes, extents, box and swizzle, flattened."""
    tensor: np.ndarray | None = None
    changes_tensor: bool = False
    """Whether the tensor is what is recorded."""

    def text(self) -> str:
        """The PTX module."""
        parameters = [".param .u64 pin", ".param .u64 pout"]
        parameters += [f".param .align 64 .b8 map{n}[128]" for n in range(len(self.maps))]
        lines = ["mov.u32 %r150, %tid.x;", "ld.param.u64 %d20, [pin];",
                 "ld.param.u64 %d21, [pout];"]  # fmt: skip
        offset = 0
        for register, values in self.inputs:
            width = values.dtype.itemsize
            lines += [
                f"mad.wide.u32 %d22, %r150, {width}, %d20;",
                f"ld.global.b{8 * width} {register}, [%d22+{offset}];",
            ]
            offset += width * self.threads
        lines.append(self.body)
        offset = 0
        for register in self.results:
            width = width_of(register)
            lines += [
                f"mad.wide.u32 %d22, %r150, {width}, %d21;",
                f"st.global.b{8 * width} [%d22+{offset}], {register};",
            ]
            offset += width * self.threads
        body = "\n".join(lines)
        head = ",\n".join(parameters)
        return (
            f"{HEAD}.visible .entry k(\n{head}\n) .maxntid {self.threads},1,1\n"
            f"{{\n{REGISTERS}{body}\nret;\n}}\n"
        )

    def input_bytes(self) -> np.ndarray:
        """The bytes that the inputs are loaded from."""
        parts = [np.ascontiguousarray(v).view(np.uint8) for _, v in self.inputs]
        return np.concatenate(parts) if parts else np.zeros(16, np.uint8)

    def output_bytes(self) -> int:
        """Bytes of the results."""
        return max(16, sum(width_of(r) for r in self.results) * self.threads)

    def launch(self) -> tuple[Launch, np.ndarray]:
        """The launch on fresh buffers, and the bytes that it writes."""
        out = np.zeros(self.output_bytes(), np.uint8)
        buffers = {"in": self.input_bytes(), "out": out}
        values: list[Value] = [BufferPointer("in"), BufferPointer("out")]
        if self.tensor is not None:
            buffers["tensor"] = self.tensor.copy().view(np.uint8).reshape(-1)
        for size, width, height, across, down, swizzle in self.maps:
            values.append(
                BufferMap(
                    "tensor", 0, size, (width, height), (width * size,), (across, down), swizzle
                )
            )
        if self.changes_tensor:
            out = buffers["tensor"]
        return Launch((1, 1, 1), (self.threads, 1, 1), SHARED, tuple(values), buffers), out


def width_of(register: str) -> int:
    """Bytes of a register by its name."""
    return {"h": 2, "r": 4, "f": 4, "d": 8, "g": 8}[register[1]]


def same(vector: Vector, found: np.ndarray, recorded: np.ndarray) -> str:
    """What differs; empty when nothing does."""
    if vector.kind == "bits":
        wrong = found != recorded
        return f"{int(wrong.sum())} of {len(wrong)} bytes differ" if wrong.any() else ""
    a, b = (_floats(vector.kind, x) for x in (found, recorded))
    with np.errstate(all="ignore"):
        equal = (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
        spacing = np.maximum(np.abs(b), 2.0**-126) * 2.0 ** -{"f16": 10, "bf16": 7}.get(
            vector.kind, 23 if vector.kind == "f32" else 52
        )
        near = np.abs(a - b) <= vector.ulps * spacing + vector.absolute
    wrong = ~(equal | near)
    if not wrong.any():
        return ""
    n = int(np.argmax(wrong))
    return f"{int(wrong.sum())} of {len(wrong)} differ, the first {a[n]!r}, recorded {b[n]!r}"


def digest(vector: Vector, data: np.ndarray) -> str:
    """The results as a hash, any NaN being one."""
    if vector.kind == "bits":
        return hashlib.sha256(data.tobytes()).hexdigest()
    values = _floats(vector.kind, data)
    return hashlib.sha256(np.where(np.isnan(values), np.nan, values).tobytes()).hexdigest()


def keep(vector: Vector, data: np.ndarray) -> dict[str, str]:
    """What is recorded of results: all of them, or of many exact ones a hash."""
    text = base64.b85encode(zlib.compress(data.tobytes(), 9)).decode()
    exact = vector.ulps == 0 and vector.absolute == 0
    return {"sha256": digest(vector, data)} if exact and len(text) > MOST else {"data": text}


def differs(vector: Vector, found: np.ndarray, kept: dict[str, str]) -> str:
    """What differs from the recorded results; empty when nothing does."""
    if "sha256" in kept:
        return "" if digest(vector, found) == kept["sha256"] else "the results differ"
    data = zlib.decompress(base64.b85decode(kept["data"]))
    return same(vector, found, np.frombuffer(data, np.uint8))


def _floats(kind: str, data: np.ndarray) -> np.ndarray:
    if kind == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        return data.view({"f16": "f2", "f32": "f4", "f64": "f8"}[kind]).astype(np.float64)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of 16 values."""
    assert len(values) == 16
    return np.repeat(values, 16), np.tile(values, 16)


def spread(values: np.ndarray, seed: int) -> np.ndarray:
    """256 values drawn from 16."""
    return values[np.random.default_rng(seed).integers(0, len(values), THREADS)]


def all_vectors() -> Iterator[Vector]:
    """Every vector that is recorded."""
    from tests.emulator import vectors_async, vectors_scalar, vectors_warp

    makers: list[Callable[[], Iterator[Vector]]] = [
        vectors_scalar.vectors,
        vectors_warp.vectors,
        vectors_async.vectors,
    ]
    for make in makers:
        yield from make()


def bits_of(kind: Any, *values: Any) -> np.ndarray:
    """Values of a NumPy type as unsigned integers of its width."""
    made = np.asarray(values, kind)
    return made.view(f"u{made.dtype.itemsize}")
