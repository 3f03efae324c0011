"""What TMA loads put into shared memory, which coordinates it takes, and small matrices.

Idea: load one box of known bytes into poisoned shared memory and compare the dump with the formula;
the same for the small matrix instructions, whose order of registers the manual only draws.

Invariants: comparisons are of whole buffers, so a stray write shows.

Never: judges speed, or asks where a tensor ends (`fact_edges` does).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.gpu.fact_boxes import (
    EXACT,
    ROWS,
    Edge,
    box_image,
    copy_kernels,
    load,
    stored,
    window,
)
from tests.gpu.fact_kernels import (
    DUMP_BYTES,
    Kernel,
    ldmatrix_kernel,
    shared_base_kernel,
    stmatrix_kernel,
)
from tests.gpu.fact_record import Bench, Experiment, Fact, claim, listing, outcome, words
from tilec.backend_ptx.module import DeviceBuffer
from tilec.backend_ptx.tensormap import encode

Array = npt.NDArray[Any]

_SWIZZLES = (0, 32, 64, 128)


def kernels() -> list[Kernel]:
    """All kernels of this file."""
    return [
        *copy_kernels(),
        *_matrix_kernels(),
        *_base_kernels(),
    ]


def _matrix_kernels() -> list[Kernel]:
    return [
        *(stmatrix_kernel(transposed) for transposed in (False, True)),
        *(ldmatrix_kernel(transposed) for transposed in (False, True)),
    ]


def _base_kernels() -> list[Kernel]:
    return [shared_base_kernel(still, cluster) for still in (0, 20) for cluster in (1, 2)]


def _load_facts() -> list[Fact]:
    bench, rng = Bench(copy_kernels()), np.random.default_rng(3)
    data = rng.integers(0, 256, (200, 400), np.uint8)  # 200 rows of 200 bf16
    # Columns are multiples of 16 bytes; _inner_coordinate_facts tries others.
    starts = {"inside": (64, 32), "corner": (-8, -5), "far corner": (192, 190), "outside": (304, 8)}
    layout: dict[str, bool] = {}
    edges: dict[str, bool] = {}
    with DeviceBuffer.of(data) as source:
        for swizzle in _SWIZZLES:
            width = swizzle or 128
            box = (width // 2, ROWS)
            tensor_map = encode(source.address, "bf16", (200, 200), (400,), box, swizzle)
            for where, (column, row) in starts.items():
                got = load(bench, 2, tensor_map, (column, row), width * ROWS)
                landed = window(data, row, 2 * column, ROWS, width)
                same = bool(np.array_equal(got, box_image(landed, width, swizzle)))
                (layout if where == "inside" else edges)[f"{swizzle} {where}"] = same
    return [
        claim(
            "TMA load layout",
            "Does a box land row after row, 16-byte chunks XORed by the stated bits, for no, 32-, "
            "64- and 128-byte swizzle?",
            layout,
        ),
        claim(
            "TMA load edges",
            "Do elements outside the tensor (negative coordinates too) land as zeros, and does the "
            "transaction count the whole box?",
            edges,
        ),
    ]


def _stripes_facts() -> list[Fact]:
    bench, rng = Bench(copy_kernels()), np.random.default_rng(6)
    data = rng.integers(0, 256, (128, 256), np.uint8)  # 128 rows of 128 bf16
    with DeviceBuffer.of(data) as source:
        dims, strides, box = (64, 128, 2), (256, 128), (64, ROWS, 2)
        tensor_map = encode(source.address, "bf16", dims, strides, box, 128)
        got = load(bench, 3, tensor_map, (0, 32, 0), 256 * ROWS)
    stacked = np.concatenate([data[32:96, :128], data[32:96, 128:]])
    holds = bool(np.array_equal(got, box_image(stacked, 128, 128)))
    question = "Does a 3-D box (64, rows, 2) over strides (pitch, 128 bytes) land as two stripes?"
    return [Fact("TMA stripes", question, _yes(holds), holds)]


# --- innermost coordinates ------------------------------------------------------------------------

#: Start columns in bf16 elements; 8 of them are 16 bytes.
_INSIDE, _BEFORE, _UNALIGNED = (8,), (-8,), (1, 4, -3)
_FAULT_S = 30.0


def _try_load(swizzle: int, column: int) -> str:
    bench = Bench(copy_kernels())
    data = np.random.default_rng(7).integers(0, 256, (128, 256), np.uint8)
    with DeviceBuffer.of(data) as source:
        tensor_map = encode(source.address, "bf16", (128, 128), (256,), (64, ROWS), swizzle)
        got = load(bench, 2, tensor_map, (column, 8), 128 * ROWS)
    right = box_image(window(data, 8, 2 * column, ROWS, 128), 128, swizzle)
    return "exact" if np.array_equal(got, right) else "accepted, wrong bytes"


def _try_store(swizzle: int, column: int) -> str:
    bench = Bench(copy_kernels())
    image = np.random.default_rng(8).integers(0, 256, DUMP_BYTES, np.uint8)
    with DeviceBuffer.of(image) as source:
        end = stored(bench, source, image, Edge("bf16", swizzle, 120, column))
    return "exact" if end == EXACT else "accepted, wrong bytes"


def _inner_coordinate_facts(limit_s: float) -> list[Fact]:
    """Each trial in a child of its own: an illegal instruction ends the context."""
    facts = []
    for direction, trial in {"load": _try_load, "store": _try_store}.items():
        readings = {
            f"bf16 column {column}, swizzle {swizzle}": outcome(
                trial, swizzle, column, limit_s=min(limit_s, _FAULT_S)
            )
            for column in (*_INSIDE, *_BEFORE, *_UNALIGNED)
            for swizzle in (0, 128)
        }
        facts.append(inner_coordinate(direction, readings))
    return facts


def inner_coordinate(direction: str, readings: Mapping[str, str]) -> Fact:
    """What the innermost start coordinate of a load or a store may be."""
    ends: dict[int, set[str]] = defaultdict(set)
    for key, end in readings.items():
        if match := re.match(r"bf16 column (-?\d+),", key):
            ends[int(match[1])].add(end)
    refused = all(e.startswith("CUDA_ERROR_") for column in _UNALIGNED for e in ends[column])
    holds = refused and all(ends[column] == {"exact"} for column in _INSIDE)
    by_end: dict[str, list[int]] = defaultdict(list)
    for column, found in ends.items():
        by_end[" or ".join(sorted(found))].append(column)
    parts = (f"column {listing(columns)}: {end}" for end, columns in by_end.items())
    return Fact(
        f"TMA {direction} inner coordinate",
        f"Must the innermost start coordinate of a {direction} be a multiple of 16 bytes (8 bf16), "
        "while multiples inside the tensor work? And before the tensor?",
        f"{_yes(refused)}; {'; '.join(parts)}",
        holds,
        dict(readings),
    )


def _narrow_facts() -> list[Fact]:
    """How a box narrower than its swizzle lies in shared memory."""
    bench = Bench(copy_kernels())
    data = np.random.default_rng(4).integers(0, 256, (128, 256), np.uint8)
    readings: dict[str, str] = {}
    with DeviceBuffer.of(data) as source:
        for swizzle in _SWIZZLES:
            for width in (16, 32, 48, 64, 96, 112):
                if swizzle and width >= swizzle:
                    continue
                box = (width, ROWS)
                tensor_map = encode(source.address, "u8", (256, 128), (256,), box, swizzle)
                got = load(bench, 2, tensor_map, (16, 8), width * ROWS)
                landed = window(data, 8, 16, ROWS, width)
                pitches = {"rows packed": width}
                if swizzle:
                    pitches["pitch = swizzle width"] = swizzle
                fits = [
                    words_
                    for words_, pitch in pitches.items()
                    if np.array_equal(got, box_image(landed, pitch, swizzle))
                ]
                readings[f"{width} bytes in swizzle {swizzle}"] = fits[0] if fits else "neither"
    kinds = sorted(set(readings.values()))
    answer = "; ".join(
        f"{kind}: {listing(k for k, v in readings.items() if v == kind)}" for kind in kinds
    )
    question = "How do the rows of a box narrower than its swizzle lie in shared memory?"
    return [Fact("TMA narrow boxes", question, answer, None, dict(readings))]


def _tf32_facts() -> list[Fact]:
    bench = Bench(copy_kernels())
    values = (1 + np.arange(ROWS * 8) * 2.0**-13).astype(np.float32).reshape(ROWS, 8)
    with DeviceBuffer.of(values) as source:
        tensor_map = encode(source.address, "tf32", (8, ROWS), (32,), (8, ROWS), 0)
        got = load(bench, 2, tensor_map, (0, 0), 32 * ROWS)[: 32 * ROWS].view(np.uint32)
    raw = values.view(np.uint32).reshape(-1)
    even = (raw + 0xFFF + (raw >> 13 & 1)) & np.uint32(0xFFFFE000)
    candidates = {
        "leaves the bits as they are": raw,
        "truncates": raw & np.uint32(0xFFFFE000),
        "rounds to nearest, ties away": (raw + 0x1000) & np.uint32(0xFFFFE000),
        "rounds to nearest even": even,
    }
    fits = [words_ for words_, bits in candidates.items() if np.array_equal(got, bits)]
    answer = fits[0] if fits else "none of the roundings tried"
    return [Fact("TMA tf32 type", "What does a load through a tf32 map do to f32 bits?", answer)]


# --- stmatrix, ldmatrix, base address -------------------------------------------------------------


def _yes(right: bool) -> str:
    return "yes" if right else "no"


def _matrix_facts() -> list[Fact]:
    bench, facts = Bench(_matrix_kernels()), []
    matrix, row, column = np.meshgrid(np.arange(4), np.arange(8), np.arange(8), indexing="ij")
    for transposed in (False, True):
        i, j = (column, row) if transposed else (row, column)
        lane, half = 4 * i + j // 2, j % 2
        suffix, mark = ("_trans", ".trans") if transposed else ("", "")
        with words(128) as target:
            bench.run(f"stmatrix{suffix}", [target.address], threads=32, shared_bytes=1024)
            stored = target.read((4, 8, 8), np.uint16)
            bench.run(f"ldmatrix{suffix}", [target.address], threads=32, shared_bytes=1024)
            loaded = target.read((4, 32, 2), np.uint16)
        store_right = bool(np.array_equal(stored, 256 * lane + 2 * matrix + half))
        expected = np.empty((4, 32, 2), np.uint16)
        expected[matrix, lane, half] = 64 * matrix + 8 * row + column
        load_right = bool(np.array_equal(loaded, expected))
        facts.append(
            Fact(
                f"stmatrix{mark} order",
                f"stmatrix.x4{mark} and ldmatrix.x4{mark}: register q belongs to the matrix whose "
                "rows lanes 8q to 8q+7 address, and element (i, j) of it "
                f"{'(transposed: j, i) ' if transposed else ''}to lane 4i + j/2, half j%2?",
                f"stmatrix {_yes(store_right)}, ldmatrix {_yes(load_right)}",
                store_right and load_right,
            )
        )
    return facts


def _base_facts() -> list[Fact]:
    bench, readings = Bench(_base_kernels()), {}
    for still in (0, 20):
        for cluster in (1, 2):
            with words(2) as target:
                name = f"shared_base_s{still}_c{cluster}"
                bench.run(name, [target.address], threads=32, shared_bytes=4096, grid=cluster)
                found = target.read((2,), np.uint32)[:cluster]
            key = f"{still} static bytes, cluster {cluster}"
            readings[key] = [f"{value:#x}" for value in found]
    aligned = all(int(v, 16) % 1024 == 0 for values in readings.values() for v in values)
    question = (
        "Is the base of dynamic shared memory (declared .align 1024) a multiple of 1024, also with "
        "static shared memory beside it and in a cluster?"
    )
    places = "; ".join(f"{key}: {listing(values)}" for key, values in readings.items())
    answer = f"{_yes(aligned)}: {places}"
    return [Fact("dynamic shared base", question, answer, aligned, dict(readings))]


#: All experiments of this file (they need a GPU with TMA).
EXPERIMENTS = (
    Experiment("loads", _load_facts),
    Experiment("stripes", _stripes_facts),
    Experiment("inner coordinates", _inner_coordinate_facts, own_children=True),
    Experiment("narrow boxes", _narrow_facts),
    Experiment("tf32 map", _tf32_facts),
    Experiment("stmatrix and ldmatrix", _matrix_facts),
    Experiment("dynamic shared base", _base_facts),
)
