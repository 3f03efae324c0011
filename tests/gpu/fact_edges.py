"""Where a tensor ends inside a TMA box, and how its rows may lie in memory.

Idea: inner extents on both sides of every multiple of 16 bytes are loaded and stored with poison
behind each row; then maps whose strides or address are unusual are read and compared.

Invariants: what a run found is said by a function of its readings, which the page calls again.

Never: tries a coordinate that is no multiple of 16 bytes (`fact_tma` does, in children).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from tests.gpu.fact_boxes import (
    CHUNK,
    EXACT,
    ROWS,
    SIZES,
    WHOLE_CHUNKS,
    WIDTH,
    Array,
    Edge,
    box_image,
    copy_kernels,
    load,
    loaded,
    stored,
    window,
)
from tests.gpu.fact_kernels import DUMP_BYTES, Kernel
from tests.gpu.fact_record import Bench, Experiment, Fact, claim, listing, outcome
from tilec.backend_ptx.module import DeviceBuffer
from tilec.backend_ptx.tensormap import encode

_SWIZZLES = (0, 128)
_FAULT_S = 30.0


def kernels() -> list[Kernel]:
    """All kernels of this file."""
    return copy_kernels()


# --- inner extents --------------------------------------------------------------------------------


def _extents(size: int) -> list[int]:
    whole = 96 // size
    return sorted({whole - 3, *(whole + extra for extra in range(CHUNK // size + 1))})


def _by_extent(measure: Callable[[Edge], str]) -> dict[str, str]:
    """What came of each element type and inner extent, over swizzles and starts."""
    ends: dict[str, set[str]] = defaultdict(set)
    for dtype, size in SIZES.items():
        for inner in _extents(size):
            key = f"{dtype} extent {inner} ({inner * size % CHUNK} bytes over {CHUNK})"
            for swizzle in _SWIZZLES:
                for column in (0, CHUNK // size):
                    ends[key].add(measure(Edge(dtype, swizzle, inner, column)))
    return {key: " or ".join(sorted(found)) for key, found in ends.items()}


def _is_whole(key: str) -> bool:
    return key.endswith(f"(0 bytes over {CHUNK})")


def _spans(keys: Iterable[str]) -> str:
    """Extents of keys as made above, such as "u8 93, 97 to 111; bf16 45"."""
    extents: dict[str, list[int]] = defaultdict(list)
    for key in keys:
        if match := re.match(r"(\w+) extent (\d+)", key):
            extents[match[1]].append(int(match[2]))
    parts = []
    for dtype, found in extents.items():
        found.sort()
        breaks = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(found)) if b > a + 1), len(found)]
        runs = [(found[i], found[j - 1]) for i, j in pairwise(breaks)]
        parts.append(f"{dtype} " + listing(str(a) if a == b else f"{a} to {b}" for a, b in runs))
    return "; ".join(parts) or "none"


def store_clipping(readings: Mapping[str, Any]) -> Fact:
    """Where stores clip; a reading is a rule's name, or in old ones whether all was exact."""
    exact = [key for key, end in readings.items() if end in (True, EXACT)]
    others = [key for key in readings if key not in exact]
    holds = all(map(_is_whole, exact)) and not any(map(_is_whole, others))
    if all(readings[key] == WHOLE_CHUNKS for key in others):
        instead = f"rows are written {WHOLE_CHUNKS}"
    elif all(readings[key] is False for key in others):
        instead = "the bytes differ; this run did not keep where"
    else:
        instead = listing(f"{_spans([key])}: written {readings[key]}" for key in others)
    scope = "just where the inner extent is a multiple of 16 bytes" if holds else "not by that rule"
    answer = f"{scope}: exact for {_spans(exact)}. For {_spans(others)} {instead}"
    question = (
        "A store whose tensor ends inside the box, pitch a multiple of 16 bytes: for which inner "
        "extents is every element inside written and every byte outside left alone, and what is "
        "written for the others?"
    )
    return Fact("TMA store clipping", question, answer, holds, dict(readings))


def load_fill(readings: Mapping[str, Any]) -> Fact:
    """Whether loads put zeros beyond any inner extent."""
    wrong = [key for key, end in readings.items() if end != EXACT]
    answer = f"yes, for {_spans(readings)}"
    if wrong:
        ends = sorted({str(readings[key]) for key in wrong})
        parts = (f"{_spans(k for k in wrong if readings[k] == end)} are read {end}" for end in ends)
        answer = f"no: {'; '.join(parts)}"
    question = (
        "A load whose tensor ends inside the box, with poison (NaN where the type has one) from "
        "the end of each row to the next: does everything beyond the inner extent land as zero, "
        "also where the extent is no multiple of 16 bytes?"
    )
    return Fact("TMA load fill", question, answer, not wrong, dict(readings))


def _store_facts() -> list[Fact]:
    bench = Bench(copy_kernels())
    image = np.random.default_rng(5).integers(0, 256, DUMP_BYTES, np.uint8)
    with DeviceBuffer.of(image) as source:
        return [store_clipping(_by_extent(lambda case: stored(bench, source, image, case)))]


def _load_facts() -> list[Fact]:
    bench, rng = Bench(copy_kernels()), np.random.default_rng(9)
    return [load_fill(_by_extent(lambda case: loaded(bench, case, rng)))]


# --- strides and addresses ------------------------------------------------------------------------


def _planes(bench: Bench, data: Array, shape: tuple[int, int, int], strides: Any) -> bool:
    """Whether a 3-D box of 128 bytes, 32 rows and 2 planes of bf16 lands as it should.

    `shape` counts bf16, rows and planes of the tensor, `strides` the bytes between rows and planes.
    """
    rows, start = ROWS // 2, (8, 3, 1)
    columns, height, depth = shape
    planes = np.zeros((depth, height, 2 * columns), np.uint8)
    for plane in range(depth):
        for row in range(height):
            at = plane * strides[1] + row * strides[0]
            planes[plane, row] = data[at : at + 2 * columns]
    with DeviceBuffer.of(data) as source:
        tensor_map = encode(source.address, "bf16", shape, strides, (WIDTH // 2, rows, 2), 128)
        got = load(bench, 3, tensor_map, start, WIDTH * rows * 2)
    parts = [
        window(planes[p], start[1], 2 * start[0], rows, WIDTH)
        if p < depth
        else np.zeros((rows, WIDTH), np.uint8)
        for p in (start[2], start[2] + 1)
    ]
    return bool(np.array_equal(got, box_image(np.concatenate(parts), WIDTH, 128)))


def _try_repeated(stride_bytes: tuple[int, ...]) -> str:
    """A tensor that repeats its rows (one stride, 0) or its planes (two, the second 0)."""
    bench = Bench(copy_kernels())
    data = np.random.default_rng(10).integers(0, 256, 64 * 256, np.uint8)
    if len(stride_bytes) == 2:
        right = _planes(bench, data, (96, 40, 5), stride_bytes)
    else:
        with DeviceBuffer.of(data) as source:
            tensor_map = encode(source.address, "bf16", (96, 50), (0,), (WIDTH // 2, ROWS), 128)
            got = load(bench, 2, tensor_map, (8, 3), WIDTH * ROWS)
        box = window(np.tile(data[:192], (50, 1)), 3, 16, ROWS, WIDTH)
        right = bool(np.array_equal(got, box_image(box, WIDTH, 128)))
    return "read right" if right else "accepted, wrong bytes"


def _repeated_facts(limit_s: float) -> list[Fact]:
    kinds = {"rows": (0,), "planes of a 3-D tensor": (256, 0)}
    readings = {
        kind: outcome(_try_repeated, strides, limit_s=min(limit_s, _FAULT_S))
        for kind, strides in kinds.items()
    }
    answer = listing(f"{kind}: {end}" for kind, end in readings.items())
    question = "Does a tensor map take a stride of 0, and do loads then repeat what is there?"
    return [Fact("TMA stride 0", question, answer, None, dict(readings))]


def _stride_facts() -> list[Fact]:
    bench, rng = Bench(copy_kernels()), np.random.default_rng(11)
    readings: dict[str, bool] = {}
    for pitch in (144, 272, 4112, 65552):
        data = rng.integers(0, 256, (60, pitch), np.uint8)
        with DeviceBuffer.of(data) as source:
            for swizzle in _SWIZZLES:
                box = (WIDTH // 2, ROWS)
                tensor_map = encode(source.address, "bf16", (64, 60), (pitch,), box, swizzle)
                got = load(bench, 2, tensor_map, (8, 3), WIDTH * ROWS)
                right = box_image(window(data[:, :128], 3, 16, ROWS, WIDTH), WIDTH, swizzle)
                same = bool(np.array_equal(got, right))
                readings[f"rows of 128 bytes every {pitch}, swizzle {swizzle}"] = same
    for gap in (16, 4096):
        strides = (208, 208 * 20 + gap)
        data = rng.integers(0, 256, strides[1] * 4, np.uint8)
        key = f"planes of 20 rows, {gap} bytes between"
        readings[key] = _planes(bench, data, (96, 20, 3), strides)
    question = (
        "Do strides that are larger than what they step over (padded rows, gaps between planes) "
        "leave the gaps unread?"
    )
    return [claim("TMA wide strides", question, readings)]


def _address_facts() -> list[Fact]:
    bench, rng = Bench(copy_kernels()), np.random.default_rng(12)
    image = rng.integers(0, 256, DUMP_BYTES, np.uint8)
    readings: dict[str, bool] = {}
    with DeviceBuffer.of(image) as source:
        for shift in (16, 32, 48, 64, 112):
            for swizzle in _SWIZZLES:
                case = Edge("bf16", swizzle, 48, 8, shift)
                key = f"{shift} bytes after a multiple of 1024, swizzle {swizzle}"
                readings[f"load {key}"] = loaded(bench, case, rng) == EXACT
                readings[f"store {key}"] = stored(bench, source, image, case) == EXACT
    question = "Is a global address that is a multiple of only 16 bytes enough, for any swizzle?"
    return [claim("TMA address alignment", question, readings)]


#: All experiments of this file (they need a GPU with TMA).
EXPERIMENTS = (
    Experiment("store clipping", _store_facts),
    Experiment("load fill", _load_facts),
    Experiment("stride 0", _repeated_facts, own_children=True),
    Experiment("wide strides", _stride_facts),
    Experiment("address alignment", _address_facts),
)
