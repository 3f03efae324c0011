"""Which shared-memory and register layouts wgmma reads, measured with data that depends on K.

Idea: whole numbers make every product exact, so the result must equal numpy's; a wrong descriptor
or a permuted K shows as a difference.  Where the stated descriptor fails, the exchanged one (LBO
and SBO swapped) is tried and reported.

Invariants: A and B use the same swizzle; K is 128 bytes, four instructions.

Never: tolerates a rounding error.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.gpu import fact_images as images
from tests.gpu.fact_kernels import Kernel, Wgmma, chained_s8_kernel, wgmma_kernel
from tests.gpu.fact_record import Bench, Experiment, Fact, listing, words
from tilec.backend_ptx.module import MAX_DYNAMIC_SHARED_BYTES, DeviceBuffer

Array = npt.NDArray[Any]

_NS = (8, 16, 24, 64, 80, 128, 176, 256)
_RS_NS = (8, 80, 256)
_PAIRS = (
    ("bf16", "bf16"), ("f16", "f16"), ("tf32", "tf32"), ("e4m3", "e4m3"), ("e5m2", "e5m2"),
    ("e4m3", "e5m2"), ("s8", "s8"), ("u8", "u8"), ("s8", "u8"),
)  # fmt: skip
_SWIZZLES = (0, 32, 64, 128)
# All of shared memory, so that an exchanged descriptor reads other bytes and does not fault.
_SHARED_BYTES = MAX_DYNAMIC_SHARED_BYTES
_ACCUMULATION_N = 24
_ACCUMULATION = ("bf16", "f16", "tf32", "e4m3", "e5m2")


def forms() -> list[Wgmma]:
    """Every form that is tried."""
    found = []
    for a, b in _PAIRS:
        majors = (False, True) if a in ("bf16", "f16") else (False,)
        for n, transpose_a, transpose_b in product(_NS, majors, majors):
            found.append(Wgmma(a, b, n, transpose_a, transpose_b))
        found += [
            Wgmma(a, b, n, False, transpose_b, True) for n, transpose_b in product(_RS_NS, majors)
        ]
    return found


def kernels() -> list[Kernel]:
    """All kernels of this file."""
    return [*(wgmma_kernel(form) for form in forms()), chained_s8_kernel()]


def _operands(form: Wgmma, swizzle: int) -> tuple[images.Operand, images.Operand]:
    size = images.ELEMENT_BYTES[form.a]
    majors = {False: images.k_major, True: images.mn_major}
    return (
        majors[form.transpose_a](64, size, swizzle),
        majors[form.transpose_b](form.n, size, swizzle),
    )


def _launch(
    bench: Bench,
    form: Wgmma,
    a: images.Operand,
    b: images.Operand,
    a_bits: Array,
    b_bits: Array,
    initial: float | None = None,
) -> Array:
    """The product (64 x n) that the hardware computes; `initial` starts the accumulator."""
    image = np.zeros(images.IMAGE_BYTES, np.uint8)
    if form.a_in_registers:
        packed = images.a_registers(a_bits).view(np.uint8).reshape(-1)
        image[: packed.size] = packed
    else:
        images.place(image, images.A_PLACE, a, a_bits)
    images.place(image, images.B_PLACE, b, b_bits)
    start = np.float32(0 if initial is None else initial).view(np.uint32)
    with DeviceBuffer.of(image) as source, words(128 * form.n // 2) as target:
        values = [source.address, target.address]
        values += [a.descriptor(images.A_PLACE), b.descriptor(images.B_PLACE)]
        values += [step >> 4 for step in (*a.steps_bytes, *b.steps_bytes)]
        values += [int(initial is not None), int(start)]
        bench.run(form.name, values, threads=128, shared_bytes=_SHARED_BYTES)
        kind = np.int32 if form.is_integer else np.float32
        registers = target.read((form.n // 2, 128), kind)
    return images.read_accumulator(registers, form.n)


def _verdict(bench: Bench, form: Wgmma, swizzle: int, rng: np.random.Generator) -> str:
    depth = images.K_BYTES // images.ELEMENT_BYTES[form.a]
    left = images.small_integers(rng, (64, depth), form.a)
    right = images.small_integers(rng, (form.n, depth), form.b)
    expected = left @ right.T
    a, b = _operands(form, swizzle)
    a_bits, b_bits = images.bits_of(left, form.a), images.bits_of(right, form.b)
    tried = {
        "as stated": (a, b),
        "LBO and SBO of B exchanged": (a, b.exchanged()),
        "LBO and SBO of A exchanged": (a.exchanged(), b),
        "LBO and SBO of both exchanged": (a.exchanged(), b.exchanged()),
    }
    for words_, (one, other) in tried.items():
        if np.array_equal(_launch(bench, form, one, other, a_bits, b_bits), expected):
            return words_
    return "wrong"


def _descriptor_facts() -> list[Fact]:
    bench, rng = Bench(wgmma_kernel(form) for form in forms()), np.random.default_rng(1)
    found: dict[tuple[str, int], dict[str, dict[str, list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for form in forms():
        form_name = "registers" if form.a_in_registers else "MN" if form.transpose_a else "K"
        majors = f"A {form_name}{'' if form.a_in_registers else '-major'}, "
        majors += f"B {'MN' if form.transpose_b else 'K'}-major"
        for swizzle in _SWIZZLES:
            verdict = _verdict(bench, form, swizzle, rng)
            found[majors, swizzle][f"{form.a} x {form.b}"][verdict].append(form.n)
    facts = []
    for (majors, swizzle), table in found.items():
        verdicts = {word for row in table.values() for word in row}
        holds = verdicts == {"as stated"}
        sizes = sorted({n for row in table.values() for ns in row.values() for n in ns})
        answer = (
            f"exact for {listing(table)} at n = {listing(sizes)}" if holds else _exceptions(table)
        )
        name = (
            f"wgmma {majors}, {swizzle}-byte swizzle" if swizzle else f"wgmma {majors}, no swizzle"
        )
        facts.append(
            Fact(
                name,
                f"{majors}, {f'{swizzle}-byte' if swizzle else 'no'} swizzle: does the descriptor "
                "of the table read the operands?",
                answer,
                holds,
                {dtype: dict(row) for dtype, row in table.items()},
            )
        )
    return facts


def _exceptions(table: dict[str, dict[str, list[int]]]) -> str:
    parts = [
        f"{dtype}: {word} at n = {listing(ns)}"
        for dtype, row in table.items()
        for word, ns in row.items()
    ]
    return "; ".join(parts)


def _power_of_two(exponents: Array, dtype: str) -> Array:
    """Element bits of 2 to the minus `exponents`."""
    values = np.exp2(-exponents.astype(np.float64))
    if dtype == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "tf32":
        return values.astype(np.float32).view(np.uint32)
    if dtype == "e5m2":
        return (values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)
    normal = np.maximum(7 - exponents, 0) << 3
    subnormal = 1 << np.maximum(9 - exponents, 0)
    codes: Array = np.where(exponents <= 6, normal, subnormal).astype(np.uint8)
    return codes


def _kept_bits(result: Array, sums: Array) -> int:
    """The largest s such that 1 + 2^-s came out exactly, for it and for all smaller s."""
    kept = -1
    for s in range(int(sums.max()) + 1):
        here = result[sums == s]
        if not np.array_equal(here, np.full_like(here, np.float32(1 + 2.0**-s))):
            break
        kept = s
    return kept


def _accumulation_facts() -> list[Fact]:
    tried = {dtype: Wgmma(dtype, dtype, _ACCUMULATION_N) for dtype in _ACCUMULATION}
    bench, readings = Bench(wgmma_kernel(form) for form in tried.values()), {}
    for dtype, form in tried.items():
        depth = images.K_BYTES // images.ELEMENT_BYTES[dtype]
        top = 9 if dtype == "e4m3" else 14
        rows, columns = np.minimum(np.arange(64), 9), np.minimum(np.arange(form.n), top)
        sums = rows[:, None] + columns[None, :]
        one = _power_of_two(np.zeros(1, np.int64), dtype)[0]
        a_bits = np.zeros((64, depth), one.dtype)
        b_bits = np.zeros((form.n, depth), one.dtype)
        a_bits[:, 0], b_bits[:, 0] = _power_of_two(rows, dtype), _power_of_two(columns, dtype)
        a, b = _operands(form, 128)
        across = _launch(bench, form, a, b, a_bits, b_bits, initial=1.0)
        a_bits[:, 1], b_bits[:, 1] = one, one
        inside = _launch(bench, form, a, b, a_bits, b_bits)
        readings[dtype] = {
            "into the accumulator": _kept_bits(across, sums),
            "inside one instruction": _kept_bits(inside, sums),
            "largest tried": int(sums.max()),
        }
    words_ = [
        f"{dtype} {row['into the accumulator']} / {row['inside one instruction']} "
        f"(tried to {row['largest tried']})"
        for dtype, row in readings.items()
    ]
    question = (
        "How small a term survives beside 1 in an f32 accumulator: the largest s for which "
        "1 + 2^-s is kept, added to the accumulator / inside one instruction?"
    )
    return [Fact("accumulation width", question, listing(words_), None, readings)]


def _tf32_facts() -> list[Fact]:
    form = Wgmma("tf32", "tf32", 8)
    bench = Bench([wgmma_kernel(form)])
    values = (1 + np.arange(64) * 2.0**-13).astype(np.float32)
    a_bits = np.zeros((64, 32), np.uint32)
    b_bits = np.zeros((8, 32), np.uint32)
    a_bits[:, 0], b_bits[:, 0] = values.view(np.uint32), np.float32(1).view(np.uint32)
    a, b = _operands(form, 128)
    got = _launch(bench, form, a, b, a_bits, b_bits)[:, 0]
    truncated = (values.view(np.uint32) & 0xFFFFE000).view(np.float32)
    holds = bool(np.array_equal(got, truncated))
    rounded = ((values.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)
    answer = "truncates" if holds else "rounds" if np.array_equal(got, rounded) else "neither"
    question = "Does wgmma truncate or round f32 bits read as tf32?"
    return [Fact("tf32 inputs", question, answer, holds)]


def _chained_facts() -> list[Fact]:
    bench, rng = Bench([chained_s8_kernel()]), np.random.default_rng(2)
    a, b = (rng.integers(-1, 2, (rows, 32)) for rows in (64, 32))
    v = rng.integers(-3, 4, (64, 32))
    slot = np.arange(32)
    h, t, j = slot // 16, slot % 16 // 4, slot % 4
    column = 16 * h + 2 * t + np.where(j < 2, j, 8 + j - 2)
    image = np.zeros(images.IMAGE_BYTES, np.uint8)
    places = {0: (a, 64), images.B_PLACE: (b, 32), images.B_PLACE + 8192: (v[:, column], 64)}
    descriptors = []
    for at, (matrix, rows) in places.items():
        operand = images.k_major(rows, 1, 128)
        padded = np.zeros((rows, images.K_BYTES), np.int64)
        padded[:, :32] = matrix
        images.place(image, at, operand, images.bits_of(padded, "s8"))
        descriptors.append(operand.descriptor(at))
    with DeviceBuffer.of(image) as source, words(128 * 32) as target:
        values = [source.address, target.address, *descriptors]
        bench.run("chained_s8", values, threads=128, shared_bytes=images.IMAGE_BYTES)
        got = images.read_accumulator(target.read((32, 128), np.int32), 64)
    holds = bool(np.array_equal(got, (a @ b.T) @ v.T))
    question = (
        "An accumulator packed to 8 bits without moving registers: does permuting the K order of "
        "the second operand (slot 16h+4t+j holds column 16h+2t+j, or 16h+8+2t+j-2 for j >= 2) make "
        "the product right?"
    )
    return [Fact("8-bit P permutation", question, "yes, exact" if holds else "no", holds)]


#: All experiments of this file (they need a GPU with wgmma).
EXPERIMENTS = (
    Experiment("descriptors", _descriptor_facts),
    Experiment("8-bit P", _chained_facts),
    Experiment("accumulation", _accumulation_facts),
    Experiment("tf32 inputs", _tf32_facts),
)
